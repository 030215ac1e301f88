from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

DATA = Path(__file__).parent / "data"
REGION = [("r_comment", pa.string()), ("r_name", pa.string()), ("r_regionkey", pa.int64())]
FIVE_REGIONS = OperationCount(insert_count=5)
TEXT = [("id", pa.int64()), ("text", pa.string())]
BARE_QUOTED = ChangeLogOptions(ChangeLogFormat.REPLICANT_CSV)
WITH_HEADER = ChangeLogOptions(ChangeLogFormat.REPLICANT_CSV, include_header=True)


@pytest.fixture(scope="module")
def cursors() -> list[str]:
    with (DATA / "replicant_realtime.csv").open(newline="") as file:
        return [row[-2] for row in csv.reader(file)]


@pytest.fixture(scope="module")
def region_events(cursors: list[str]) -> list[Any]:
    """INSERT … VALUES (10, 'India', 'India'); UPDATE … SET r_comment = 'USA' WHERE r_regionkey = 10; DELETE … WHERE r_regionkey = 10."""
    return [
        ("I", {"r_comment": "India", "r_name": "India", "r_regionkey": 10}, {}, cursors[0]),
        ("U", {"r_comment": "USA"}, {"r_regionkey": 10}, cursors[1]),
        ("D", {}, {"r_regionkey": 10}, cursors[2]),
    ]


@each(
    ("options", "file"),
    [(BARE_QUOTED, "replicant_realtime.csv"), (WITH_HEADER, "replicant_realtime_with_header.csv")],
)
def test_the_rows_of_arcions_page_come_out_byte_for_byte(
    log: Callable[..., Any], region_events: list[Any], options: ChangeLogOptions, file: str
) -> None:
    region = log(REGION, ["r_regionkey"], options, StreamId("tpch", "region"))

    written = region.changes_file([region.events(region_events)], FIVE_REGIONS)

    assert gzip.decompress(written) == (DATA / file).read_bytes()


def test_how_events_are_batched_does_not_show(log: Callable[..., Any], region_events: list[Any]) -> None:
    region = log(REGION, ["r_regionkey"])
    batch = region.events(region_events)

    written = region.changes_file([batch.slice(0, 1), batch.slice(1, 0), batch.slice(1, 2)], FIVE_REGIONS)

    assert gzip.decompress(written) == (DATA / "replicant_realtime.csv").read_bytes()


def test_equal_events_give_equal_bytes_whenever_they_are_written(log: Callable[..., Any], region_events: list[Any]) -> None:
    region = log(REGION, ["r_regionkey"])

    written = region.changes_file([region.events(region_events)])

    assert written == region.changes_file([region.events(region_events)])
    assert written[4:8] == bytes(4), "gzip's header has a time"


@each(
    ("value", "cell"),
    [
        (None, b"NULL"),
        ("NULL", b'"NULL"'),
        ("null", b"null"),
        ("a NULL b", b"a NULL b"),
        ("", b""),
        ("a,b", b'"a,b"'),
        ('say "hi"', b'"say ""hi"""'),
        ("two\nlines", b'"two\nlines"'),
        ("two\r\nlines", b'"two\r\nlines"'),
        (" blanks ", b" blanks "),
        ("Grüße 😀", "Grüße 😀".encode()),
    ],
)
def test_cells_are_quoted_only_where_they_must_be(log: Callable[..., Any], value: str | None, cell: bytes) -> None:
    texts = log(TEXT, ["id"])

    (changes, snapshot) = (
        gzip.decompress(texts.changes_file([texts.events([("I", {"id": 1, "text": value}, {}, "{}")])])),
        gzip.decompress(texts.snapshot_file([texts.rows([{"id": 1, "text": value}])])),
    )

    assert changes.startswith(b"1,NULL,1," + cell + b",NULL,1,I,")
    assert snapshot == b"1," + cell + b"\n"


def test_quotes_in_one_row_leave_the_others_bare(log: Callable[..., Any]) -> None:
    texts = log(TEXT, ["id"])
    values = ["plain", "a,b", None, "NULL", "plain too"]

    written = gzip.decompress(texts.snapshot_file([texts.rows([{"id": n, "text": value} for n, value in enumerate(values)])]))

    assert written == b'0,plain\n1,"a,b"\n2,NULL\n3,"NULL"\n4,plain too\n'


def test_a_row_of_one_empty_cell_is_no_empty_line(log: Callable[..., Any]) -> None:
    lonely = log([("name", pa.string())], ["name"])

    assert gzip.decompress(lonely.snapshot_file([lonely.rows([{"name": ""}, {"name": None}])])) == b'""\nNULL\n'


def test_a_header_with_difficult_names_is_quoted(log: Callable[..., Any]) -> None:
    odd = log([('a,"b"', pa.int64())], ['a,"b"'], WITH_HEADER)

    assert gzip.decompress(odd.snapshot_file([])) == b'"a,""b"""\n'
    assert gzip.decompress(odd.changes_file([])) == (
        b'"a,""b""_New_Val","a,""b""_Old_Val","a,""b""_Exists_Val",opType,cursor,operationcount\n'
    )


def test_a_snapshot_of_an_empty_table_is_an_empty_file(log: Callable[..., Any]) -> None:
    assert gzip.decompress(log(TEXT, ["id"]).snapshot_file([])) == b""


@each("case", json.loads((DATA / "exists_matrix.json").read_text())["matrix"], ids=lambda c: "-".join(map(str, c.values())))
def test_exists_says_which_image_a_column_is_in(log: Callable[..., Any], case: dict[str, Any]) -> None:
    kinds = ("pk", "changed", "unchanged")
    columns = log([(kind, pa.int64()) for kind in kinds], ["pk"])
    new = {kind: None for kind in kinds if case[kind] & 1}
    old = {kind: None for kind in kinds if case[kind] & 2}

    line = gzip.decompress(columns.changes_file([columns.events([(case["op"], new, old, "{}")])])).decode()

    assert line.split(",")[:10] == [*(cell for kind in kinds for cell in ("NULL", "NULL", str(case[kind]))), case["op"]]


def test_counts_go_on_from_where_the_last_file_ended(log: Callable[..., Any]) -> None:
    texts = log(TEXT, ["id"])
    events = texts.events([(op, {}, {"id": 1}, "{}") for op in "DDU"])

    lines = gzip.decompress(texts.changes_file([events], OperationCount(7, 3, 1, 4))).decode().splitlines()

    counts = [json.loads(row[-1]) for row in csv.reader(lines)]
    assert [tuple(count.values()) for count in counts] == [(7, 3, 2, 4), (7, 3, 3, 4), (7, 4, 3, 4)]
    assert list(counts[0]) == ["insertCount", "updateCount", "deleteCount", "replaceCount"]


def test_a_batch_with_other_columns_is_refused(log: Callable[..., Any]) -> None:
    texts = log(TEXT, ["id"])
    with pytest.raises(pa.ArrowInvalid):
        texts.snapshot_file([pa.RecordBatch.from_pydict({"id": [1]})])
    with pytest.raises(pa.ArrowInvalid):
        texts.changes_file([texts.rows([])])
