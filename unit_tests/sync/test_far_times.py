"""Dates and times that Python cannot hold, of years before 1 and after 9999: every command works with rows that have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, record, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of

DAYS = ("0044-03-15 BC", "2026-01-02", "+12023-10-22")
IN_MICROSECONDS = 1_764_000_000_000_000
"""A time of extraction by a source that takes microseconds for milliseconds."""
LATEST = (2**63 - 1) // 1000
TIMES = [IN_MICROSECONDS, LATEST, -LATEST]


def catalog(mode: str, key: str, cursor: str = "_ab_cdc_lsn") -> JsonObject:
    types: dict[str, dict[str, Any]] = {
        "id": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "nested": {"type": "object", "properties": {"days": {"type": "array", "items": {"type": "string", "format": "date"}}}},
        "_ab_cdc_lsn": {"type": "number"},
        "_ab_cdc_deleted_at": {"type": "string"},
    }
    return catalog_of(stream(schema=schema_of(types), mode=mode, key=key, cursor=cursor, sync_id=1))


def records(lsn: int | None) -> Iterator[bytes]:
    """A row for each of the days, extracted at far times. Those of a snapshot have no position in the log."""
    for number, (day, time) in enumerate(zip(DAYS, TIMES, strict=True)):
        at = f"{day.removesuffix(' BC')}T01:02:03Z{' BC' if day.endswith('BC') else ''}"
        data = {"id": number, "day": day, "at": at, "nested": {"days": [day]}, "_ab_cdc_lsn": lsn, "_ab_cdc_deleted_at": None}
        yield record(data, emitted_at=time)


def syncs(lake: Lake, mode: str, key: str) -> None:
    for number, lsn in enumerate((None, 5), start=1):
        lake.sync(catalog(mode, key), [b"".join(records(lsn)), state(number), complete()])


@pytest.mark.parametrize("options", [{}, {"tables": {"history": [{"stream": "users"}]}}, {"publish": {"delta": True}}])
@pytest.mark.parametrize("key", ["day", "at"])
def test_tables_are_merged_shown_rebuilt_and_forgotten(s3_settings: S3Settings, tmp_path: Path, options: dict[str, Any], key: str) -> None:
    lake = Lake(s3_settings, tmp_path, options=options)
    syncs(lake, "append_dedup", key)
    commands = [
        ["inspect", "users", "files"],
        ["report", "--out", str(tmp_path / "page.html")],
        ["verify"],
        ["rebuild", "--stream", "users"],
    ]
    connector = lake.connector()
    done = [connector.run(*command) for command in commands]
    assert [one.exit_code for one in done] == [0] * len(commands)
    assert any(DAYS[0][:10] in one.text for one in done)
    assert any("3 rows are as before" in one.text + one.stderr for one in done)
    forgotten = connector.run("forget", "--stream", "users", "--where", json.dumps({"day": DAYS[0]}))
    assert forgotten.exit_code == 0
    assert "forgot" in forgotten.text


@pytest.mark.parametrize("form", ["Avro", "Parquet", "CSV"])
def test_rows_of_append_tables_are_found_by_their_days(s3_settings: S3Settings, tmp_path: Path, form: str) -> None:
    lake = Lake(s3_settings, tmp_path, format={"format_type": form}, options={"tables": {"raw_tables": False}})
    syncs(lake, "append", "id")
    for day in DAYS:
        forgotten = lake.connector().run("forget", "--stream", "users", "--where", json.dumps({"day": day}))
        assert forgotten.exit_code == 0
        assert "forgot" in forgotten.text
        assert "forgot 0 rows" not in forgotten.text


def test_late_versions_of_far_days_find_their_place(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(
        s3_settings, tmp_path, options={"tables": {"history": [{"stream": "users", "columns": ["day"]}]}, "change_log": {"enabled": True}}
    )
    for number, (hour, day) in enumerate([(1, DAYS[0]), (5, DAYS[2]), (3, DAYS[1]), (2, DAYS[0])], start=1):
        data = {"id": 1, "day": day, "at": f"2026-01-02T{hour:02}:00:00Z"}
        message = record(data, emitted_at=number)
        lake.sync(catalog("append_dedup", "id", "at"), [message, state(number), complete()])
    objects = lake.memory.objects.items()
    found = [pq.read_table(pa.BufferReader(body)) for key, body in objects if "_history/" in key and "parquet" in key]
    versions = pa.concat_tables(found)
    days, hours = versions["day"].cast(pa.int32()).to_pylist(), [moment.hour for moment in versions["_valid_from"].to_pylist()]
    assert sorted(zip(hours, days, strict=True)) == [(1, -735_160), (3, 20_455), (5, 3_672_077)]
