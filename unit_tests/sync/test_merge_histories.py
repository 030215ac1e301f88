"""More than a thousand small histories through the connector's own merges, against a merge in plain Python.

A history is what happens to a few keys over some syncs: ties, nulls, deletions, late rows. All histories of a kind share one table, under
keys of their own, so that each sync merges all of them at once.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import read_pyarrow
from unit_tests.sampling import rounds
from unit_tests.tables.reference_merge import STORED, Version, softly, surviving

HISTORIES = rounds(300, 600)
"""Of each kind."""
SYNCS = {"Parquet": 3, "JSONL": 2, "CSV": 2}
"""By format. The first merge makes a table, the second one changes it, and the third one a table that was changed."""
SEED = 20_261
FIRST_OF_SYNC = 100_000
"""Times the number of a sync, the number of its first version."""
DELETED_AT = "_ab_cdc_deleted_at"
NAMESPACE = "shop"
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Kind:
    """A table's key and cursor, and where their values come from; few of them, so that they tie."""

    name: str
    key: dict[str, Any]
    keys: tuple[Any, ...]
    cursor: dict[str, Any] | None
    cursors: tuple[Any, ...]

    def stream(self, sync_id: int) -> dict[str, Any]:
        properties = {
            "history": {"type": "integer"},
            "key": self.key,
            "version": {"type": "integer"},
            DELETED_AT: {"type": ["null", "string"], "format": "date-time"},
            **({} if self.cursor is None else {"cursor": self.cursor}),
        }
        return stream(
            self.name,
            NAMESPACE,
            schema={"type": "object", "properties": properties},
            mode="append_dedup",
            sync_id=sync_id,
            primary_key=[["history"], ["key"]],
            cursor_field=[] if self.cursor is None else ["cursor"],
        )


DAYS = tuple(f"2026-01-0{day}" for day in range(1, 4))
TIMES = tuple(f"{day}T00:00:00Z" for day in DAYS)
KINDS = (
    Kind("integers", {"type": "integer"}, (None, -1, 0, 2**62), {"type": "integer"}, (None, -5, 0, 7)),
    Kind("texts", {"type": "string"}, (None, "", "a", "a\x00b", "é"), {"type": "string"}, (None, "", "10", "9")),
    Kind(
        "days",
        {"type": "string", "format": "date"},
        (None, *DAYS),
        {"type": "string", "format": "date-time"},
        (None, *(f"{day}T00:00:00Z" for day in DAYS)),
    ),
    Kind("without_cursor", {"type": "number"}, (None, -0.5, 0.0, 1e300), None, (None,)),
)


def sent_in(kind: Kind, sync: int, chance: random.Random, first_number: int) -> list[Version]:
    """What all histories of a kind send in a sync, in the order it is sent."""
    versions: list[Version] = []
    for history in range(HISTORIES):
        for _ in range(chance.choice((0, 1, 2, 4, 7))):
            key = (history, chance.choice(kind.keys[: chance.choice((1, 2, len(kind.keys)))]))
            extracted_at = 1_000 + chance.choice((0, 0, 1, 2)) + chance.choice((0, sync))
            versions.append(Version(0, key, chance.choice(kind.cursors), extracted_at, chance.random() < 0.2, 0))
    chance.shuffle(versions)
    return [replace(version, number=first_number + place, offset=place) for place, version in enumerate(versions)]


def as_record(kind: Kind, version: Version) -> bytes:
    data = {"history": version.key[0], "key": version.key[1], "cursor": version.cursor}
    if version.deleted:
        data[DELETED_AT] = "2026-01-01T00:00:00Z"
    else:
        data["version"] = version.number
    return record(data, kind.name, NAMESPACE, emitted_at=version.extracted_at)


def merged(table: list[Version], arrived: list[Version]) -> list[Version]:
    """The table after a merge, deletions included: what it had counts as arrived last."""
    return surviving([*(replace(version, offset=STORED) for version in table), *arrived])


@pytest.mark.parametrize("file_format", ["Parquet", "JSONL"])
def test_histories_end_as_a_merge_in_plain_python_does(lake: Lake, file_format: str) -> None:
    chance = random.Random(SEED)
    connector = lake.connector(format={"format_type": file_format}, batching={"max_batch_mb": 1}, tables={"target_file_mb": 1})
    tables: dict[str, list[Version]] = {kind.name: [] for kind in KINDS}
    for sync in range(SYNCS[file_format]):
        sent = {kind.name: sent_in(kind, sync, chance, FIRST_OF_SYNC * sync) for kind in KINDS}
        connector.write(catalog(*(kind.stream(sync + 1) for kind in KINDS)), messages(sent, sync)).expect_success()
        for kind in KINDS:
            tables[kind.name] = merged(tables[kind.name], sent[kind.name])
            expected = sorted(version.number for version in tables[kind.name] if not version.deleted)
            assert versions_in(lake.final_files((NAMESPACE, kind.name))) == expected, f"{kind.name}, sync {sync}"
        lake.verify_at_rest()


@pytest.mark.parametrize("file_format", ["Parquet", "CSV"])
def test_histories_with_soft_deletions_end_as_all_their_versions_say(lake: Lake, file_format: str) -> None:
    chance = random.Random(SEED)
    tables = {"target_file_mb": 1, "cdc_deletion_mode": "soft"}
    connector = lake.connector(format={"format_type": file_format}, batching={"max_batch_mb": 1}, tables=tables)
    seen: dict[str, list[Version]] = {kind.name: [] for kind in KINDS}
    for sync in range(SYNCS[file_format]):
        sent = {kind.name: sent_in(kind, sync, chance, FIRST_OF_SYNC * sync) for kind in KINDS}
        connector.write(catalog(*(kind.stream(sync + 1) for kind in KINDS)), messages(sent, sync)).expect_success()
        for kind in KINDS:
            # In a tie the row of an earlier sync stays, and the later one of the same sync.
            seen[kind.name] += [replace(version, offset=version.offset - FIRST_OF_SYNC * sync) for version in sent[kind.name]]
            found = softly(seen[kind.name])
            expected = Counter((one.deleted, None if values.deleted else values.number) for one, values in found)
            assert marked_versions_in(lake.final_files((NAMESPACE, kind.name))) == expected, f"{kind.name}, sync {sync}"
        lake.verify_at_rest()


def messages(sent: Mapping[str, list[Version]], sync: int) -> list[bytes]:
    """The records of all kinds, with a STATE in the middle and at the end of each."""
    lines: list[bytes] = []
    for kind in KINDS:
        arrived = sent[kind.name]
        half = len(arrived) // 2
        for part, versions in enumerate((arrived[:half], arrived[half:])):
            lines += [as_record(kind, version) for version in versions]
            lines.append(state([sync, part], kind.name, NAMESPACE))
        lines.append(complete(kind.name, NAMESPACE))
    return lines


def versions_in(files: list[Path]) -> list[int]:
    """The versions in a table's final files."""
    if all(file.read_bytes().startswith(PARQUET_MAGIC) for file in files):
        return sorted(row["version"] for row in read_pyarrow(files))
    return sorted(
        json.loads(line)["_airbyte_data"]["version"] for file in files for line in gzip.decompress(file.read_bytes()).splitlines()
    )


def marked_versions_in(files: list[Path]) -> Counter[tuple[bool, int | None]]:
    """Whether each row in a table's final files is marked as deleted, and its version."""
    if all(file.read_bytes().startswith(PARQUET_MAGIC) for file in files):
        return Counter((row[DELETED_AT] is not None, row["version"]) for row in read_pyarrow(files))
    rows = [row for file in files for row in csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode(), newline=""))]
    records = [json.loads(row["_airbyte_data"]) for row in rows]
    return Counter((record.get(DELETED_AT) is not None, record.get("version")) for record in records)
