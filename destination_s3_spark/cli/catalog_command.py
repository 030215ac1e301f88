"""Command `catalog`: makes a configured catalog from what a source discovers."""

from __future__ import annotations

import sys

from destination_s3_spark.cli.configuration import read_input
from destination_s3_spark.cli.terminal import write_json
from destination_s3_spark.protocol.discovered import Choice, configured_catalog, discovered_streams
from destination_s3_spark.wording import LINE_END, counted, printable


def run(discovered: str, choice: Choice) -> int:
    """Print the configured catalog, and on stderr how each stream is synced. Raises ConfigError when there is no catalog or stream."""
    catalog = configured_catalog(discovered_streams(read_input(discovered, "catalog")), choice)
    write_json(catalog)
    sys.stdout.flush()
    for entry in catalog["streams"]:
        key = ", ".join(".".join(path) for path in entry["primary_key"]) or "none"
        cursor = ".".join(entry["cursor_field"]) or "none"
        modes = f"{entry['sync_mode']}, {entry['destination_sync_mode']}"
        described = f"{entry['stream']['name']}: {modes}, key {key}, cursor {cursor}"
        sys.stderr.write(f"{printable(described, LINE_END)}\n")
    sys.stderr.write(f"{counted(len(catalog['streams']), 'stream')}\n")
    return 0
