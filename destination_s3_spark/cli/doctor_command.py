"""Command `doctor`: says what is right and wrong about a configuration, the bucket and this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from destination_s3_spark.cli.configuration import read_file, read_options
from destination_s3_spark.cli.diagnosis import (
    Finding,
    Verdict,
    find_java,
    look_at_bucket,
    look_at_catalogs,
    look_at_machine,
    look_at_options,
    look_at_streams,
)
from destination_s3_spark.cli.terminal import Output, Terminal, write_json
from destination_s3_spark.config.config import Config
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.sync.check import CHECK_LIMITS
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.wording import counted

_SIGNS = {
    Verdict.GOOD: ("✓", "green"),
    Verdict.DOUBTFUL: ("!", "yellow"),
    Verdict.BAD: ("✗", "bold red"),
    Verdict.SKIPPED: ("-", "dim"),
}


def run(config_path: str, catalog_path: str | None, output: Output) -> int:
    """Print the findings as they come and return 1 if any is bad."""
    options = read_options(config_path)
    catalog = None if catalog_path is None else read_file(catalog_path, "catalog")
    findings: list[Finding] = []
    terminal = Terminal()
    for finding in _findings(options, catalog):
        if output is Output.TABLE:
            _print(terminal, finding, new_part=not findings or findings[-1].part != finding.part)
        findings.append(finding)
    bad = sum(finding.verdict is Verdict.BAD for finding in findings)
    if output is Output.JSON:
        write_json(findings)
    else:
        doubtful = sum(finding.verdict is Verdict.DOUBTFUL for finding in findings)
        terminal.say(f"\n{_conclusion(bad, doubtful)}", style="bold")
    return 1 if bad else 0


def _findings(options: Mapping[str, Any], catalog: bytes | None) -> Iterator[Finding]:
    usable = True
    for finding in look_at_options(options):
        usable = usable and finding.verdict is not Verdict.BAD
        yield finding
    if not usable:
        yield find_java()
        return
    config = Config.parse(options)
    template = path_template(config, datetime.now(UTC), sync_id=0)
    bucket_is_good = True
    for finding in look_at_bucket(s3_settings(config, CHECK_LIMITS), template):
        bucket_is_good = bucket_is_good and finding.verdict is not Verdict.BAD
        yield finding
    if bucket_is_good:
        yield from look_at_catalogs(config, template)
    if catalog is not None:
        if bucket_is_good:
            yield from look_at_streams(table_factory(config), catalog)
        else:
            yield Finding("streams", "catalog", Verdict.SKIPPED, "needs the bucket, which is bad")
    yield from look_at_machine(config, template if bucket_is_good else None)


def _print(terminal: Terminal, finding: Finding, *, new_part: bool) -> None:
    if new_part:
        terminal.say(f"\n{finding.part}", style="bold")
    sign, style = _SIGNS[finding.verdict]
    terminal.item(sign, style, finding.check, finding.detail)
    sys.stdout.flush()


def _conclusion(bad: int, doubtful: int) -> str:
    doubts = f", {counted(doubtful, 'doubt')}" if doubtful else ""
    if bad:
        return f"{counted(bad, 'thing')} to mend{doubts}: a sync would not work."
    return f"A sync can work{doubts}."
