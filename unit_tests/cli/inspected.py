"""A table of two syncs that `inspect` tells of, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "clock": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ratio": {"type": "number"},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    },
}
FIRST = [
    record({"id": 1, "name": "Ada", "lines": [{"count": 1}, {"count": "many"}], "day": "2026-01-02", "clock": "12:00:00"}),
    record({"id": 2, "name": "Bob", "lines": [{"count": "many"}], "day": "no day", "address": {"street": "High St", "number": 5}}),
]
WIDER = {**SCHEMA, "properties": {**SCHEMA["properties"], "added": {"type": "integer"}}}


def sync_twice(lake: Lake) -> None:
    """Write the table. The second sync brings a column more."""
    lake.connector().write(catalog(stream(schema=SCHEMA)), [*FIRST, state(2), complete()]).expect_success()
    second = [record({"id": 3, "added": 7, "at": "2026-01-02T03:04:05Z"}), state(3), complete()]
    lake.connector().write(catalog(stream(schema=WIDER)), second).expect_success()


def inspect(lake: Lake, *arguments: str, **options: Any) -> str:
    """What the command prints."""
    done = lake.connector(**options).run("inspect", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.text


def local_copy(lake: Lake, directory: Path) -> Path:
    """The bucket's objects below a directory: no engine here has an S3 client of its own."""
    for key in lake.bucket.list_keys():
        file = directory / lake.bucket.name / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lake.bucket.read(key))
    return directory
