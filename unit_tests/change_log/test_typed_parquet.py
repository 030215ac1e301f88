from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions, open_changes

TAGS = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
USERS = [("id", pa.int64()), ("name", pa.string()), ("tags", TAGS)]
PARQUET = ChangeLogOptions(ChangeLogFormat.PARQUET)


@pytest.fixture
def written(log: Callable[..., Any]) -> bytes:
    users = log(USERS, ["id", "tags"], PARQUET)
    events = users.events(
        [
            ("I", {"id": 1, "name": "Ada", "tags": {"a": 1, "b": ["x"]}}, {}, '{"lsn":7}'),
            ("U", {"name": None}, {"id": 1, "tags": {"a": 1, "b": ["x"]}}, '{"lsn":8}'),
            ("D", {}, {"id": 1, "tags": None}, '{"lsn":9}'),
        ]
    )
    file: bytes = users.changes_file([events.slice(0, 2), events.slice(2)], OperationCount(insert_count=5))
    return file


def test_events_keep_their_types(written: bytes) -> None:
    table = pq.read_table(io.BytesIO(written))

    assert table.schema.field("new").type == table.schema.field("old").type == pa.struct([pa.field(*field) for field in USERS])
    assert table.drop_columns("operation_count").to_pylist() == [
        {
            "op": "I",
            "sequence": 6,
            "key": {"id": 1, "tags": {"a": 1, "b": ["x"]}},
            "new": {"id": 1, "name": "Ada", "tags": {"a": 1, "b": ["x"]}},
            "old": {"id": None, "name": None, "tags": None},
            "exists": {"id": 1, "name": 1, "tags": 1},
            "cursor": '{"lsn":7}',
        },
        {
            "op": "U",
            "sequence": 7,
            "key": {"id": 1, "tags": {"a": 1, "b": ["x"]}},
            "new": {"id": None, "name": None, "tags": None},
            "old": {"id": 1, "name": None, "tags": {"a": 1, "b": ["x"]}},
            "exists": {"id": 2, "name": 1, "tags": 2},
            "cursor": '{"lsn":8}',
        },
        {
            "op": "D",
            "sequence": 8,
            "key": {"id": 1, "tags": None},
            "new": {"id": None, "name": None, "tags": None},
            "old": {"id": 1, "name": None, "tags": None},
            "exists": {"id": 2, "name": 0, "tags": 2},
            "cursor": '{"lsn":9}',
        },
    ]


def test_duckdb_tells_a_column_set_to_null_from_one_that_did_not_change(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "changes.parquet").write_bytes(written)

    rows = duckdb.execute(
        f"SELECT op, key.id, operation_count.insert_count + operation_count.update_count FROM '{tmp_path}/changes.parquet' "
        "WHERE exists.name & 1 = 1 AND new.name IS NULL"
    ).fetchall()

    assert rows == [("U", 1, 7)]


def test_a_snapshot_has_the_columns_of_the_table(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], PARQUET)
    rows: list[dict[str, Any]] = [{"id": 1, "name": None, "tags": {"a": None, "b": []}}]

    table = pq.read_table(io.BytesIO(users.snapshot_file([users.rows(rows)])))

    assert table.schema.equals(users.columns.row_schema)
    assert table.to_pylist() == rows


def test_a_snapshot_of_an_empty_table_still_says_its_columns(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], PARQUET)

    table = pq.read_table(io.BytesIO(users.snapshot_file([])))

    assert (table.num_rows, table.schema.equals(users.columns.row_schema)) == (0, True)


def test_an_abandoned_file_writes_nothing_more(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], PARQUET)
    sink = io.BytesIO()
    file = open_changes(sink, users.columns, PARQUET, OperationCount())
    file.write(users.events([("D", {}, {"id": 1}, "{}")]))
    before = sink.tell()
    file.abandon()
    del file

    assert sink.tell() == before
