from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import LogColumns
from destination_s3_spark.change_log.manifest import GroupName, LogFile, LogKind, LogName, manifest_of
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions, open_snapshot
from destination_s3_spark.cli import operator_command
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.table_paths import changes_root
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 0)
OPTIONS = ChangeLogOptions(ChangeLogFormat.JSONL)
FIELDS = (pa.field("id", pa.int64()), pa.field("line", pa.int64()), pa.field("name", pa.string()))


@pytest.fixture
def put_snapshot(store: S3Store) -> Callable[..., None]:
    """Adds a snapshot of these rows to the log of a stream."""

    def put(stream: StreamId, offset: int, rows: list[dict[str, Any]]) -> None:
        columns = LogColumns(stream, FIELDS, ("id", "line"), ())
        sink = io.BytesIO()
        file = open_snapshot(sink, columns, OPTIONS)
        file.write(pa.RecordBatch.from_pylist(rows, schema=columns.row_schema))
        name = LogName(offset, "0" * 26, 0, LogKind.SNAPSHOT).file_name(OPTIONS.extension)
        manifest = manifest_of(
            columns, OPTIONS, LogKind.SNAPSHOT, (offset, 0), [LogFile(name, file.close().rows)], OperationCount(), OperationCount(len(rows))
        )
        folder = changes_root(TEMPLATE, stream)
        store.put(folder + name, sink.getvalue())
        store.put(folder + GroupName(offset, "0" * 26).manifest, manifest.to_bytes())

    return put


@pytest.fixture
def changes(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, list[Any], str]]:
    """Runs the command; returns its exit code, the records it printed and what it said on stderr."""

    def run(*arguments: str) -> tuple[int, list[Any], str]:
        code = operator_command(["changes", "--config", str(config), *arguments])
        out, err = capfdbinary.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err.decode()

    return run


ORDERS: list[dict[str, Any]] = [{"id": 1, "line": 1, "name": "a"}, {"id": 1, "line": 2, "name": "b"}, {"id": 2, "line": 1, "name": None}]


def test_records_are_printed_one_a_line(put_snapshot: Callable[..., None], changes: Callable[..., Any]) -> None:
    put_snapshot(StreamId("shop", "orders"), 7, ORDERS)

    code, records, err = changes("--stream", "orders", "--namespace", "shop")

    assert (code, err) == (0, "")
    assert records == [
        {"generation": 7, "sequence": n, "op": "S", "key": {"id": row["id"], "line": row["line"]}, "new": row}
        for n, row in enumerate(ORDERS, start=1)
    ]


@pytest.mark.parametrize(
    ("arguments", "sequences"),
    [
        (["--key", '{"id": 1}'], [1, 2]),
        (["--key", '{"line": 1, "id": 2}'], [3]),
        (["--key", '{"id": "1"}'], []),
        (["--from", "2"], [2, 3]),
        (["--to", "1"], [1]),
        (["--from", "2", "--to", "2", "--key", '{"id": 1}'], [2]),
    ],
)
def test_records_are_chosen_by_key_and_sequence(
    put_snapshot: Callable[..., None], changes: Callable[..., Any], arguments: list[str], sequences: list[int]
) -> None:
    put_snapshot(StreamId(None, "orders"), 7, ORDERS)

    code, records, _ = changes("--stream", "orders", *arguments)

    assert (code, [record["sequence"] for record in records]) == (0, sequences)


def test_generations_are_told_apart(put_snapshot: Callable[..., None], changes: Callable[..., Any]) -> None:
    put_snapshot(StreamId(None, "orders"), 7, ORDERS[:1])
    put_snapshot(StreamId(None, "orders"), 8, ORDERS[2:])

    _, records, _ = changes("--stream", "orders")
    _, latest, _ = changes("--stream", "orders", "--latest-snapshot")

    assert [(record["generation"], record["sequence"], record["key"]["id"]) for record in records] == [(7, 1, 1), (8, 1, 2)]
    assert latest == records[1:]


def test_a_stream_without_a_log_is_told_where_there_are_some(put_snapshot: Callable[..., None], changes: Callable[..., Any]) -> None:
    put_snapshot(StreamId("shop", "orders"), 7, ORDERS)

    code, records, err = changes("--stream", "items")

    assert (code, records) == (1, [])
    assert "no change log of stream items under" in err
    assert "shop/orders" in err


@pytest.mark.parametrize(
    ("arguments", "generation"),
    [
        (["users"], 1),
        (["shop.users"], 1),
        (["users", "--namespace", "shop"], 1),
        (["orders"], 4),
        (["orders", "--namespace", ""], 4),
        (["orders", "--namespace", "other"], 3),
        (["shop.orders"], 2),
        (["my items"], 5),
        (["a.b.items"], 6),
    ],
)
def test_a_name_alone_is_enough_where_no_other_stream_has_it(
    put_snapshot: Callable[..., None], changes: Callable[..., Any], arguments: list[str], generation: int
) -> None:
    streams = (("shop", "users"), ("shop", "orders"), ("other", "orders"), (None, "orders"), ("my shop", "my items"), ("a.b", "items"))
    for number, stream in enumerate(streams, start=1):
        put_snapshot(StreamId(*stream), number, ORDERS)

    code, records, err = changes("--stream", *arguments)

    assert (code, {record["generation"] for record in records}, err) == (0, {generation}, "")


def test_a_name_of_several_streams_is_refused_with_their_names(put_snapshot: Callable[..., None], changes: Callable[..., Any]) -> None:
    for namespace in ("shop", "other"):
        put_snapshot(StreamId(namespace, "orders"), 7, ORDERS)

    code, records, err = changes("--stream", "orders")
    none, _, said = changes("--stream", "orders", "--namespace", "")

    assert (code, records, none) == (1, [], 1)
    assert "2 change logs of streams of the name orders: other.orders, shop.orders. Add --namespace." in err
    assert "no change log of stream orders under" in said


def test_without_any_log_it_says_so(changes: Callable[..., Any]) -> None:
    code, _, err = changes("--stream", "orders")

    assert (code, "There is none at all" in err) == (1, True)


@each("key", ["42", "{}", "[1]", "{id: 1}"])
def test_a_key_is_a_json_object(changes: Callable[..., Any], key: str) -> None:
    code, _, err = changes("--stream", "orders", "--key", key)

    assert (code, "--key takes a JSON object" in err) == (1, True)


def test_a_key_of_other_columns_is_refused(put_snapshot: Callable[..., None], changes: Callable[..., Any]) -> None:
    put_snapshot(StreamId(None, "orders"), 7, ORDERS)

    code, records, err = changes("--stream", "orders", "--key", '{"id": 1, "name": "a"}')

    assert (code, records) == (1, [])
    assert "--key names name, but the primary key is id, line." in err


def test_it_wants_to_know_the_stream(changes: Callable[..., Any]) -> None:
    code, _, err = changes()

    assert (code, "--stream" in err) == (2, True)


@pytest.mark.usefixtures("served_settings")
def test_a_reader_that_has_seen_enough_is_no_failure(put_snapshot: Callable[..., None], config: Path) -> None:
    put_snapshot(StreamId(None, "orders"), 7, [{"id": n, "line": n, "name": "x" * 200} for n in range(5_000)])
    command = [sys.executable, "-m", "destination_s3_spark", "changes", "--config", str(config), "--stream", "orders"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert json.loads(first)["sequence"] == 1
    assert (process.returncode, errors) == (0, b"")
