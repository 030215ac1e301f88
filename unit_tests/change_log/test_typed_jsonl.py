from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.change_log.typed import TypedJsonlChanges

USERS = [("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())]
JSONL = ChangeLogOptions(ChangeLogFormat.JSONL)


def test_an_event_names_only_the_columns_of_its_images(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], JSONL)
    events = users.events(
        [
            ("I", {"id": 1, "name": "Ada", "score": 1.5}, {}, '{"lsn":7}'),
            ("U", {"name": None}, {"id": 1}, '{"lsn":8}'),
            ("D", {}, {"id": 1}, '{"lsn":9}'),
        ]
    )

    lines = gzip.decompress(users.changes_file([events], OperationCount(insert_count=5))).decode().splitlines()

    assert lines == [
        (
            '{"op":"I","sequence":6,"key":{"id":1},"new":{"id":1,"name":"Ada","score":1.5},"old":{},"cursor":{"lsn":7},'
            '"operationCount":{"insertCount":6,"updateCount":0,"deleteCount":0,"replaceCount":0}}'
        ),
        (
            '{"op":"U","sequence":7,"key":{"id":1},"new":{"name":null},"old":{"id":1},"cursor":{"lsn":8},'
            '"operationCount":{"insertCount":6,"updateCount":1,"deleteCount":0,"replaceCount":0}}'
        ),
        (
            '{"op":"D","sequence":8,"key":{"id":1},"new":{},"old":{"id":1},"cursor":{"lsn":9},'
            '"operationCount":{"insertCount":6,"updateCount":1,"deleteCount":1,"replaceCount":0}}'
        ),
    ]


def test_a_key_of_several_columns_may_have_null_in_it(log: Callable[..., Any]) -> None:
    users = log(USERS, ["name", "id"], JSONL)
    events = users.events([("U", {"score": 2.0}, {"id": 1, "name": None}, "{}"), ("I", {"id": 2, "name": None, "score": None}, {}, "{}")])

    lines = gzip.decompress(users.changes_file([events])).splitlines()

    assert [json.loads(line)["key"] for line in lines] == [{"name": None, "id": 1}, {"name": None, "id": 2}]


def test_rows_of_a_snapshot_have_all_columns(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], JSONL)

    written = gzip.decompress(users.snapshot_file([users.rows([{"id": 1, "name": 'a"b', "score": 10.0}, {"id": None}])]))

    assert written == b'{"id":1,"name":"a\\"b","score":10.0}\n{"id":null,"name":null,"score":null}\n'


def test_more_events_than_are_turned_into_text_at_once_stay_in_order(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], JSONL)
    count = 500
    events = users.events([("I", {"id": n, "name": "x" * 50_000, "score": None}, {}, "{}") for n in range(count)])

    lines = gzip.decompress(users.changes_file([events])).splitlines()

    assert [(json.loads(line)["sequence"], json.loads(line)["key"]["id"]) for line in lines] == [(n + 1, n) for n in range(count)]


def test_of_columns_with_long_names_few_events_become_text_at_once(log: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    as_lines = TypedJsonlChanges._lines

    def watched(self: TypedJsonlChanges, batch: pa.RecordBatch) -> pa.StringArray:
        taken.append(len(batch))
        return as_lines(self, batch)

    monkeypatch.setattr(TypedJsonlChanges, "_lines", watched)
    flags = [f"{'long' * 500}{number}" for number in range(100)]
    wide = log([("id", pa.int64()), *((name, pa.bool_()) for name in flags)], ["id"], JSONL)
    events = wide.events([("I", {"id": n, **dict.fromkeys(flags, True)}, {}, "{}") for n in range(300)])

    lines = gzip.decompress(wide.changes_file([events])).splitlines()

    assert [json.loads(line)["sequence"] for line in lines] == list(range(1, 301))
    assert max(taken) * max(map(len, lines)) < 64 * 2**20
    assert len(taken) > 1
