"""Tables that are made again from their raw rows: when these make the rows that the table has, and when they would bring others back."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream

Row = Mapping[str, Any]
TEXT = {"type": "string"}
GONE = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
DIVIDED = {"partition_by": [{"stream": "users", "column": "id", "transform": "identity"}]}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": {"schema_change": "rewrite"}})


def users(
    key: str | None = "id",
    id_type: str = "integer",
    generation: int = 1,
    cursor: str | None = None,
    note: Mapping[str, Any] | None = TEXT,
) -> JsonObject:
    columns = {"id": {"type": id_type}, "day": TEXT, **({} if note is None else {"note": note}), "_ab_cdc_deleted_at": TEXT}
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": generation if generation > 1 else 0, "sync_id": generation}
    mode = "append_dedup" if key else "append"
    return messages.catalog(stream(schema=schema_of(columns), mode=mode, key=key or (), cursor=cursor or (), **ids))


def sync(lake: Lake, at: int, *rows: Row, catalog: JsonObject | None = None) -> None:
    lake.sync(catalog or users(), [records(rows, emitted_at=at), state(at), complete()])


def notes(lake: Lake) -> list[str]:
    return sorted(row["note"] for row in lake.glob() if row["note"])


def replaced_and_deleted(lake: Lake) -> None:
    """Make a table whose raw table has a row that was replaced and one that was deleted."""
    sync(lake, 1, {"id": 1, "day": "Monday", "note": "old"}, {"id": 2, "day": "Tuesday", "note": "deleted"})
    sync(lake, 2, {"id": 1, "day": "Friday", "note": "new"}, {"id": 2, **GONE})
    assert notes(lake) == ["new"]


@pytest.mark.parametrize(("key", "tables"), [("day", {}), (None, {}), (None, DIVIDED)], ids=["another key", "none", "none, in partitions"])
def test_rows_that_an_earlier_key_replaced_or_deleted_do_not_come_back(lake: Lake, key: str | None, tables: Row) -> None:
    lake.options = {"tables": {**lake.options["tables"], **tables}}
    replaced_and_deleted(lake)
    sync(lake, 3, {"id": 3, "day": "Sunday", "note": "more"}, catalog=users(key))
    if key is not None:
        with pytest.raises(ConfigError, match="another primary key"):
            lake.rebuild()
    sync(lake, 4, {"id": "4", "day": "Saturday", "note": "retyped"}, catalog=users(key, "string"))
    assert notes(lake) == ["more", "new", "retyped"]


def test_versions_that_an_earlier_cursor_replaced_do_not_come_back(lake: Lake) -> None:
    sync(lake, 1, {"id": 1, "day": "9", "note": "old"})
    sync(lake, 2, {"id": 1, "day": "5", "note": "new"})
    sync(lake, 3, {"id": 2, "day": "6", "note": "more"}, catalog=users(cursor="day"))
    with pytest.raises(ConfigError, match="another primary key or cursor"):
        lake.rebuild()
    sync(lake, 4, {"id": "3", "day": "7", "note": "retyped"}, catalog=users(id_type="string", cursor="day"))
    assert notes(lake) == ["more", "new", "retyped"]


def test_raw_rows_of_today_s_key_make_the_table(lake: Lake) -> None:
    sync(lake, 1, {"id": 1, "note": "appended"}, {"id": 2, "note": "again"}, catalog=users(None))
    sync(lake, 2, {"id": 1, "note": "new"}, {"id": 9, "note": "beyond"})
    lake.rebuild()
    assert notes(lake) == ["again", "beyond", "new"]
    sync(lake, 3, {"id": "x", "note": "text"}, catalog=users(id_type="string"))
    assert notes(lake) == ["again", "beyond", "new", "text"]
    sync(lake, 4, {"id": "y", "day": "Monday", "note": "refreshed"}, catalog=users("day", "string", generation=2))
    lake.rebuild()
    assert notes(lake) == ["refreshed"]


@pytest.mark.parametrize("raw", [True, False])
def test_a_table_that_was_text_keeps_values_of_fields_that_are_no_longer_declared(lake: Lake, raw: bool) -> None:
    lake.format, lake.options = {"format_type": "JSONL"}, {"tables": {"raw_tables": raw}}
    sync(lake, 1, {"id": 1, "note": "old"}, {"id": 2, "note": "replaced"})
    later = users(note=None)
    sync(lake, 2, {"id": 2}, catalog=later)
    lake.format = {"format_type": "Parquet"}
    sync(lake, 3, {"id": 3}, catalog=later)
    assert notes(lake) == ["old"]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("key", ["id", None])
def test_an_object_that_becomes_a_union_keeps_members_no_longer_declared(lake: Lake, key: str | None, raw: bool) -> None:
    lake.options = {"tables": {"raw_tables": raw, "schema_change": "rewrite"}}
    one, other = ({"type": "object", "properties": {name: {"type": "string"}}} for name in "ab")
    sync(lake, 1, {"id": 1, "note": {"a": "kept"}}, catalog=users(key, note=one))
    sync(lake, 2, {"id": 2, "note": {"b": "new"}}, catalog=users(key, note={"oneOf": [TEXT, other]}))
    found = lake.glob()
    assert {row["id"]: row["note"]["object"] for row in found} == {1: {"a": "kept", "b": None}, 2: {"a": None, "b": "new"}}


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("of", ["Parquet", "Avro", "JSONL"])
def test_files_whose_names_are_patterns_without_an_extension_are_merged(lake: Lake, of: str, raw: bool) -> None:
    tables = {"raw_tables": raw, "schema_change": "rewrite"}
    lake.format, lake.options = {"format_type": of}, {"tables": tables, "file_name_pattern": "{date}"}
    for at in (1, 2):
        sync(lake, at, {"id": 1, "note": str(at)}, {"id": at + 1, "note": "other"})
    sync(lake, 3, {"id": 1, "note": "3"}, catalog=users(id_type="string"))
    lake.format, lake.options = {"format_type": "Parquet"}, {"tables": tables}
    sync(lake, 4, {"id": 4, "note": "new"}, catalog=users(id_type="string"))
    assert notes(lake) == ["3", "new", "other", "other"]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(("before", "after"), [("Avro", "Avro"), ("JSONL", "Parquet"), ("CSV", "Parquet")])
def test_a_table_that_was_deduplicated_and_appends_takes_other_types(lake: Lake, before: str, after: str, raw: bool) -> None:
    lake.options, lake.format = {"tables": {"raw_tables": raw, "schema_change": "rewrite"}}, {"format_type": before}
    sync(lake, 1, {"id": "1", "note": "one"}, {"id": "2", "note": "two"}, catalog=users(id_type="string"))
    lake.format = {"format_type": after}
    for at in (3, 4):
        sync(lake, at, {"id": at, "note": "new"}, catalog=users(None))
    found = [row for body in lake.files(".avro") for row in fastavro.reader(io.BytesIO(body))] if after == "Avro" else lake.glob()
    assert sorted((row["id"], row["note"]) for row in found) == [(1, "one"), (2, "two"), (3, "new"), (4, "new")]


@pytest.mark.parametrize("key", ["id", None])
def test_an_empty_table_can_be_rebuilt(lake: Lake, key: str | None) -> None:
    sync(lake, 1, {"id": 1, "note": "old"}, catalog=users(key))
    sync(lake, 2, catalog=users(key, generation=2))
    lake.rebuild()
    assert notes(lake) == []
    sync(lake, 3, {"id": 1, "note": "new"}, catalog=users(key, generation=2))
    assert notes(lake) == ["new"]


def text_rows(lake: Lake) -> list[tuple[int, str]]:
    found = [json.loads(row) for body in lake.files(".jsonl.gz") for row in gzip.decompress(body).splitlines()]
    return sorted((row["_airbyte_data"]["id"], row["_airbyte_data"]["note"]) for row in found)


def test_a_table_becomes_text_only_while_raw_rows_land(lake: Lake) -> None:
    sync(lake, 1, {"id": 1, "note": "old"}, {"id": 2, "note": "stays"})
    before, acknowledged = lake.files(".parquet"), len(lake.states)
    lake.format, lake.options = {"format_type": "JSONL"}, {"tables": {"raw_tables": False}}
    with pytest.raises(ConfigError, match="Leave it on until a merge has rewritten the table, go back to the earlier format and mode, "):
        sync(lake, 2, {"id": 1, "note": "new"})
    assert (lake.files(".parquet"), len(lake.states)) == (before, acknowledged)
    lake.options = {}
    sync(lake, 3, {"id": 1, "note": "new"})
    lake.options = {"tables": {"raw_tables": False}}
    sync(lake, 4, {"id": 3, "note": "more"})
    assert text_rows(lake) == [(1, "new"), (2, "stays"), (3, "more")]


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("changed", [users("day"), users(cursor="day")], ids=["key", "cursor"])
def test_a_table_under_another_key_does_not_become_text(lake: Lake, changed: JsonObject, earlier: bool) -> None:
    sync(lake, 1, {"id": 1, "day": "1", "note": "old"}, {"id": 2, "day": "2", "note": "stays"})
    sync(lake, 2, {"id": 1, "day": "1", "note": "new"})
    if earlier:
        sync(lake, 3, {"id": 3, "day": "3", "note": "more"}, catalog=changed)
    before, acknowledged = notes(lake), len(lake.states)
    lake.format = {"format_type": "JSONL"}
    with pytest.raises(ConfigError, match=r"the raw table, where some landed under another primary key or cursor. Go back to the earlier"):
        sync(lake, 4, {"id": 4, "day": "4", "note": "text"}, catalog=changed)
    assert (notes(lake), len(lake.states)) == (before, acknowledged)
    lake.format = {"format_type": "Parquet"}
    sync(lake, 5, {"id": 4, "day": "4", "note": "text"}, catalog=changed)
    assert notes(lake) == sorted([*before, "text"])


def test_files_with_raw_files_of_their_own_become_a_deduplicated_table_of_text(lake: Lake) -> None:
    sync(lake, 1, {"id": 1, "note": "old"}, {"id": 2, "note": "stays"}, catalog=users(None))
    lake.format, lake.options = {"format_type": "JSONL"}, {"tables": {"raw_tables": False}}
    for at, note in ((2, "new"), (3, "newer")):
        sync(lake, at, {"id": 1, "note": note})
    assert text_rows(lake) == [(1, "newer"), (2, "stays")]
