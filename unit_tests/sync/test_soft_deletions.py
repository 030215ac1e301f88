"""Soft deletions through whole syncs, in tables of every format: what a deleted row shows, and that its history does not matter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.sync.logged_lake import manifests, records_of
from unit_tests.sync.partitioned_lake import partitioned

FORMATS: dict[str, dict[str, Any]] = {
    "Parquet": {"format_type": "Parquet"},
    "Avro": {"format_type": "Avro", "compression_codec": {"codec": "no compression"}},
    "JSONL": {"format_type": "JSONL", "compression": {"compression_type": "No Compression"}},
}
SOFT = {"cdc_deletion_mode": "soft"}
GONE = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "amount": {"type": "integer"},
    "_ab_cdc_lsn": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string"},
}
Data = Mapping[str, Any]


@pytest.fixture(params=list(FORMATS))
def lake(request: pytest.FixtureRequest, s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, format=FORMATS[request.param], options={"tables": SOFT})


@pytest.fixture
def parquet(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, format=FORMATS["Parquet"], options={"tables": SOFT})


def users(
    columns: dict[str, Any] | None = None, *key: str, generation: int = 1, minimum: int = 0, mode: str = "append_dedup", cursor: bool = True
) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    named: dict[str, Any] = {"key": key or "id", "cursor": "_ab_cdc_lsn" if cursor else ()}
    return catalog_of(stream(schema=schema_of(COLUMNS if columns is None else columns), mode=mode, **named, **ids))


def sync(lake: Lake, at: int, *sent: Data, catalog: JsonObject | None = None) -> None:
    """A sync of records that are extracted at this second."""
    lake.sync(catalog or users(), [records(sent, emitted_at=1_000 * at), state(at), complete()])


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The rows of the table by id, without nulls."""
    found = lake.glob()
    for body in lake.files(".avro"):
        found += fastavro.reader(pa.BufferReader(body))
    for body in lake.files(".jsonl"):
        found += [{**json.loads(text), **json.loads(text)["_airbyte_data"]} for text in body.splitlines()]
    return sorted(({name: value for name, value in row.items() if value is not None} for row in found), key=lambda row: row.get("id", 0))


def data(lake: Lake) -> list[dict[str, Any]]:
    """The values of the rows that are not the connector's own. A value of `_ab_cdc_deleted_at` is True."""
    return [
        {name: name == "_ab_cdc_deleted_at" or value for name, value in row.items() if not name.startswith("_airbyte_")}
        for row in rows(lake)
    ]


def test_a_deleted_row_keeps_its_values_over_syncs(lake: Lake) -> None:
    sync(lake, 1, {"id": 1, "name": "a", "amount": 1, "_ab_cdc_lsn": 1}, {"id": 2, "name": "b", "_ab_cdc_lsn": 1})
    sync(lake, 2, {"id": 1, "_ab_cdc_lsn": 5, **GONE}, {"id": 3, "_ab_cdc_lsn": 9, **GONE}, catalog=users(generation=2))
    deleted = {"id": 1, "name": "a", "amount": 1, "_ab_cdc_lsn": 5, "_ab_cdc_deleted_at": True}
    kept = {"id": 2, "name": "b", "_ab_cdc_lsn": 1}
    assert data(lake) == [deleted, kept, {"id": 3, "_ab_cdc_lsn": 9, "_ab_cdc_deleted_at": True}]
    [first, _, _] = rows(lake)
    own = first["_airbyte_extracted_at"], first["_airbyte_generation_id"], first["_airbyte_meta"]
    assert own[1:] == (2, {"sync_id": 2, "changes": []})
    assert own[0] in (2_000, 2_000_000) or own[0].timestamp() == 2

    late = {"id": 3, "name": "late", "_ab_cdc_lsn": 4}
    sync(lake, 3, {"id": 1, "name": "older", "_ab_cdc_lsn": 0}, late, {"id": 2, "name": "b2", "_ab_cdc_lsn": 2}, {**kept, **GONE})
    assert data(lake) == [deleted, {**kept, "name": "b2", "_ab_cdc_lsn": 2}, {**late, "_ab_cdc_lsn": 9, "_ab_cdc_deleted_at": True}]
    sync(lake, 4, {"id": 1, "name": "newer", "_ab_cdc_lsn": 3}, {"id": 3, "name": "older", "_ab_cdc_lsn": 3})
    before = data(lake)
    assert before == [
        {"id": 1, "name": "newer", "_ab_cdc_lsn": 5, "_ab_cdc_deleted_at": True},
        {**kept, "name": "b2", "_ab_cdc_lsn": 2},
        {**late, "_ab_cdc_lsn": 9, "_ab_cdc_deleted_at": True},
    ]
    lake.rebuild()
    assert data(lake) == before
    sync(lake, 5, {"id": 1, "amount": 7, "_ab_cdc_lsn": 6}, {"id": 3, "_ab_cdc_lsn": 10, **GONE})
    assert [data(lake)[place] for place in (0, 2)] == [
        {"id": 1, "amount": 7, "_ab_cdc_lsn": 6},
        {**late, "_ab_cdc_lsn": 10, "_ab_cdc_deleted_at": True},
    ]


def test_a_refresh_marks_the_rows_that_it_lacks(lake: Lake) -> None:
    lake.started_at = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    sync(lake, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1}, *({"id": id_, "name": "b", "_ab_cdc_lsn": 1} for id_ in (2, 3)))
    sync(lake, 2, *({"id": id_, "_ab_cdc_lsn": 2, **GONE} for id_ in (1, 3)), catalog=users(generation=2))
    assert data(lake)[0]["name"] == "a"
    sync(lake, 3, {"id": 1, "_ab_cdc_lsn": 3, **GONE}, catalog=users(generation=3, minimum=3))
    own = {"id": 1, "_ab_cdc_lsn": 3, "_ab_cdc_deleted_at": True}
    lacked = {"id": 2, "name": "b", "_ab_cdc_lsn": 1, "_ab_cdc_deleted_at": True}
    deleted = {"id": 3, "name": "b", "_ab_cdc_lsn": 2, "_ab_cdc_deleted_at": True}
    assert data(lake) == [own, lacked, deleted]
    [_, marked, before] = rows(lake)
    assert (marked["_ab_cdc_deleted_at"], before["_ab_cdc_deleted_at"]) == ("2026-03-01T09:30:00.000000Z", GONE["_ab_cdc_deleted_at"])
    assert [(row["_airbyte_generation_id"], row["_airbyte_meta"]["sync_id"]) for row in (marked, before)] == [(3, 3), (2, 2)]

    older = [{"id": id_, "name": "older", "_ab_cdc_lsn": 0} for id_ in (2, 3)]
    sync(lake, 4, *older, catalog=users(generation=3))
    assert data(lake) == [own, lacked, deleted]
    with pytest.raises(ConfigError, match="has 3 of the 5 records that came in"):
        lake.rebuild()
    sync(lake, 5, {"id": 2, "name": "back", "_ab_cdc_lsn": 4}, catalog=users(generation=3))
    assert data(lake)[1] == {"id": 2, "name": "back", "_ab_cdc_lsn": 4}
    sync(lake, 6, catalog=users(generation=4, minimum=4))
    assert data(lake) == []


def test_a_refresh_marks_nothing_where_it_cannot(parquet: Lake) -> None:
    numbers = COLUMNS | {"_ab_cdc_deleted_at": {"type": "integer"}}
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1}, {"id": 2, "name": "b", "_ab_cdc_lsn": 1}, catalog=users(numbers))
    sync(parquet, 2, {"id": 2, "name": "b", "_ab_cdc_lsn": 1}, catalog=users(numbers, generation=2, minimum=2))
    assert [row["id"] for row in data(parquet)] == [2]
    sync(parquet, 3, {"id": 7, "name": "c", "_ab_cdc_lsn": 1}, catalog=users(numbers, "name", generation=3, minimum=3))
    assert [row["id"] for row in data(parquet)] == [7]


def test_a_refresh_that_goes_on_has_the_deletions_of_its_generation_without_older_values(parquet: Lake) -> None:
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1})
    sync(parquet, 2, {"id": 1, "_ab_cdc_lsn": 2, **GONE}, catalog=users(generation=2))
    sync(parquet, 3, {"id": 2, "name": "b", "_ab_cdc_lsn": 3}, catalog=users(generation=2, minimum=2))
    assert data(parquet) == [{"id": 1, "_ab_cdc_lsn": 2, "_ab_cdc_deleted_at": True}, {"id": 2, "name": "b", "_ab_cdc_lsn": 3}]


def test_columns_that_come_or_change_their_type_between_a_row_and_its_deletion(parquet: Lake) -> None:
    parquet.options = {"tables": {**SOFT, "schema_change": "rewrite"}}
    early = {name: column for name, column in COLUMNS.items() if name != "_ab_cdc_deleted_at"}
    sync(parquet, 1, *({"id": id_, "name": "a", "amount": 7, "_ab_cdc_lsn": 1} for id_ in (1, 2)), catalog=users(early))
    sync(parquet, 2, {"id": 1, "new": "x", "_ab_cdc_lsn": 2, **GONE}, catalog=users({**COLUMNS, "new": {"type": "string"}}))
    assert data(parquet)[0] == {"id": 1, "name": "a", "amount": 7, "_ab_cdc_lsn": 2, "_ab_cdc_deleted_at": True}
    retyped = users({**COLUMNS, "new": {"type": "string"}, "amount": {"type": "string"}})
    for lsn in (3, 4):
        sync(parquet, lsn, *({"id": id_, "_ab_cdc_lsn": lsn, **GONE} for id_ in (1, 2)), catalog=retyped)
        assert data(parquet) == [{"id": id_, "name": "a", "amount": "7", "_ab_cdc_lsn": lsn, "_ab_cdc_deleted_at": True} for id_ in (1, 2)]


def test_another_key_or_cursor_loses_no_values(parquet: Lake) -> None:
    parquet.options = {"tables": {**SOFT, "raw_tables": False}}
    sync(parquet, 1, {"id": 1, "name": "a", "amount": 7, "_ab_cdc_lsn": 1}, {"id": 1, "name": "a", "_ab_cdc_lsn": 2, **GONE})
    by_name = users(None, "id", "name")
    for at in (3, 4):
        sync(parquet, at, {"id": 1, "name": "a", "_ab_cdc_lsn": at, **GONE}, catalog=by_name)
        assert data(parquet) == [{"id": 1, "name": "a", "amount": 7, "_ab_cdc_lsn": at, "_ab_cdc_deleted_at": True}]
    sync(parquet, 5, {"id": 1, "name": "a", "_ab_cdc_lsn": 1, **GONE}, catalog=users(None, "id", "name", cursor=False))
    assert data(parquet) == [{"id": 1, "name": "a", "amount": 7, "_ab_cdc_lsn": 1, "_ab_cdc_deleted_at": True}]


def test_a_deleted_row_as_old_as_its_values_stays_when_the_table_is_sorted_again(parquet: Lake) -> None:
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 5}, {"id": 1, "_ab_cdc_lsn": 5, **GONE})
    deleted = {"id": 1, "name": "a", "_ab_cdc_lsn": 5, "_ab_cdc_deleted_at": True}
    assert data(parquet) == [deleted]
    for number, (name, cursor) in enumerate((("Avro", True), ("JSONL", True), ("JSONL", False)), start=2):
        parquet.format = FORMATS[name]
        sync(parquet, number, {"id": number, "name": "b"}, catalog=users(cursor=cursor))
        assert deleted in [
            {name: row[name] for name in deleted.keys() & row.keys()} | {"_ab_cdc_deleted_at": True} for row in rows(parquet)
        ]


def test_a_row_newer_than_its_deletion_stays_when_the_table_is_sorted_again_by_another_cursor(parquet: Lake) -> None:
    parquet.format, parquet.options = FORMATS["JSONL"], {"tables": {"cdc_deletion_mode": "hard"}}
    sync(parquet, 9, {"id": 1, "_ab_cdc_lsn": 4, **GONE})
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 5})
    sync(parquet, 3, {"id": 2, "name": "b"}, catalog=users(cursor=False))
    assert [row["id"] for row in rows(parquet)] == [1, 2]


def test_rows_that_were_appended_are_deleted_by_deletions_that_were(parquet: Lake) -> None:
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1}, {"id": 1, "_ab_cdc_lsn": 2, **GONE}, catalog=users(mode="append"))
    sync(parquet, 2, {"id": 2, "name": "b", "_ab_cdc_lsn": 3})
    assert data(parquet)[0] == {"id": 1, "name": "a", "_ab_cdc_lsn": 2, "_ab_cdc_deleted_at": True}


def test_another_mode_of_deletion_leaves_deleted_rows_as_they_are(lake: Lake) -> None:
    sync(lake, 1, *({"id": id_, "name": "a", "_ab_cdc_lsn": 1} for id_ in (1, 2)), {"id": 1, "_ab_cdc_lsn": 2, **GONE})
    lake.options = {"tables": {"cdc_deletion_mode": "hard"}}
    sync(lake, 2, {"id": 1, "name": "older", "_ab_cdc_lsn": 1}, {"id": 2, "_ab_cdc_lsn": 2, **GONE}, {"id": 3, "_ab_cdc_lsn": 1})
    deleted = {"id": 1, "name": "a", "_ab_cdc_lsn": 2, "_ab_cdc_deleted_at": True}
    assert data(lake) == [deleted, {"id": 3, "_ab_cdc_lsn": 1}]
    lake.options = {"tables": SOFT}
    sync(lake, 3, {"id": 2, "_ab_cdc_lsn": 3, **GONE}, {"id": 2, "name": "older", "_ab_cdc_lsn": 1}, {"id": 1, "_ab_cdc_lsn": 4, **GONE})
    assert data(lake)[:2] == [{**deleted, "_ab_cdc_lsn": 4}, {"id": 2, "_ab_cdc_lsn": 3, "_ab_cdc_deleted_at": True}]


def test_a_deleted_row_stays_in_its_partition_and_a_key_that_does_not_fit_is_found_by_its_text(parquet: Lake) -> None:
    parquet.options = partitioned({"stream": "users", "column": "name", "transform": "identity"}, **SOFT)
    catalog, huge = users(None, "id", "name"), 10**19
    sync(parquet, 1, *({"id": id_, "name": "a", "amount": 1, "_ab_cdc_lsn": 1} for id_ in (1, huge, huge + 1)), catalog=catalog)
    sync(parquet, 2, *({"id": id_, "name": "a", "_ab_cdc_lsn": 2, **GONE} for id_ in (1, huge)), catalog=catalog)
    assert sorted((row.get("id"), row["_ab_cdc_lsn"], row["amount"]) for row in rows(parquet) if "id" in row) == [(1, 2, 1)]
    assert sorted((row["_ab_cdc_lsn"], row["amount"]) for row in rows(parquet) if "id" not in row) == [(1, 1), (2, 1)]
    changes = {row["_ab_cdc_lsn"]: row["_airbyte_meta"]["changes"] for row in rows(parquet) if "id" not in row}
    assert [[change["field"] for change in found] for found in changes.values()] == [["id"], ["id"]]


def test_a_soft_merge_sorts_hard_deletions_that_waited_among_its_tombstones(parquet: Lake) -> None:
    hard, rows_ = {"cdc_deletion_mode": "hard"}, [{"id": id_, "name": "a", "_ab_cdc_lsn": 2} for id_ in range(6)]
    parquet.options = {"tables": hard}
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1}, {"id": 7, "name": "a", "_ab_cdc_lsn": 1})
    parquet.options = {"tables": {**hard, "merge": [{"stream": "users", "when_runs_mb": 1_000}]}}
    sync(parquet, 2, *rows_, {"id": 2, "_ab_cdc_lsn": 3, **GONE})
    parquet.options = {"tables": SOFT}
    sync(parquet, 3, {"id": 0, "_ab_cdc_lsn": 4, **GONE}, {"id": 7, "name": "b", "_ab_cdc_lsn": 4})
    assert [row["id"] for row in data(parquet)] == [0, 1, 3, 4, 5, 7]
    assert parquet.verified().problems == ()


def test_soft_deletions_that_waited_are_hard_if_the_merge_is(lake: Lake) -> None:
    log = {"change_log": {"enabled": True, "format": "jsonl"}}
    lake.options = {"tables": SOFT, **log}
    sync(lake, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1}, {"id": 2, "name": "b", "_ab_cdc_lsn": 1}, {"id": 3, "_ab_cdc_lsn": 1, **GONE})
    lake.options = {"tables": {**SOFT, "merge": [{"stream": "users", "when_runs_mb": 1_000}]}, **log}
    sync(lake, 2, {"id": 1, "_ab_cdc_lsn": 3, **GONE}, {"id": 2, "_ab_cdc_lsn": 3, **GONE})
    lake.options = {"tables": {"cdc_deletion_mode": "hard"}, **log}
    sync(lake, 3, {"id": 1, "name": "late", "_ab_cdc_lsn": 2}, {"id": 2, "name": "again", "_ab_cdc_lsn": 4})
    assert [(row["id"], row.get("name")) for row in data(lake)] == [(2, "again"), (3, None)]
    found = sorted((record["op"], record["key"]["id"]) for record in records_of(lake, manifests(lake)[-1]))
    assert found == [("D", 1), ("D", 2), ("I", 2), ("U", 1)]


def test_soft_deletions_of_a_refresh_are_hard_if_it_ends_so(parquet: Lake) -> None:
    refresh = users(generation=2, minimum=2)
    sync(parquet, 1, {"id": 1, "name": "a", "_ab_cdc_lsn": 1})
    sent = ({"id": 2, "name": "b", "_ab_cdc_lsn": 2}, {"id": 3, "name": "c", "_ab_cdc_lsn": 2}, {"id": 3, "_ab_cdc_lsn": 3, **GONE})
    with pytest.raises(TransientError):
        parquet.sync(refresh, [records(sent, emitted_at=2_000), state(2)])
    parquet.options = {"tables": {"cdc_deletion_mode": "hard"}}
    sync(parquet, 2, catalog=refresh)
    assert [row["id"] for row in data(parquet)] == [2]
