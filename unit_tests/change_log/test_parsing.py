"""What the writers write, the readers read: for every format, and values that are hard on some of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.manifest import LogKind, Manifest, manifest_of
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.change_log.parsing import read_events, read_rows
from unit_tests.cases import each
from unit_tests.sampling import examples

EVERY_FORMAT = [
    *(ChangeLogOptions(form) for form in ChangeLogFormat),
    ChangeLogOptions(ChangeLogFormat.REPLICANT_CSV, include_header=True),
]

USERS = [
    ("id", pa.int64()),
    ("text", pa.string()),
    ("score", pa.float64()),
    ("active", pa.bool_()),
    ("tags", pa.list_(pa.struct([("n", pa.int64()), ("s", pa.string())]))),
]
TIMES = [
    ("id", pa.int64()),
    ("day", pa.date32()),
    ("clock", pa.time64("us")),
    ("at", pa.timestamp("us", tz="UTC")),
]
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.sampled_from(["", "NULL", " ", "a,b", '"', "\n", "\r\n", "\\", "\x00", "1"]) | st.text(st.characters(exclude_categories=["Cs"]))
VALUES = {
    "id": INT64,
    "text": st.none() | TEXT,
    "score": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "active": st.none() | st.booleans(),
    "tags": st.none() | st.lists(st.none() | st.fixed_dictionaries({"n": st.none() | INT64, "s": st.none() | TEXT}), max_size=3),
}
IMAGES = st.fixed_dictionaries({}, optional=VALUES)
EVENTS = st.lists(st.tuples(st.sampled_from("IUD"), IMAGES, IMAGES), max_size=20)


def described(log: Any, kind: LogKind) -> Manifest:
    return manifest_of(log.columns, log.options, kind, (1, 0), (), OperationCount(), OperationCount())


def fits(options: ChangeLogOptions, images: Sequence[dict[str, Any]]) -> bool:
    """Replicant's JSON writes null and the text null alike."""
    return options.format is not ChangeLogFormat.REPLICANT_JSON or all(image.get("text") != "null" for image in images)


@each("options", EVERY_FORMAT)
@examples(40)
@given(events=EVENTS)
def test_events_read_back(
    log: Callable[..., Any], options: ChangeLogOptions, events: list[tuple[str, dict[str, Any], dict[str, Any]]]
) -> None:
    users = log(USERS, ["id"], options)
    events = [event for event in events if fits(options, event[1:])]
    batch = users.events([(op, new, old, f'{{"lsn":{n},"file":"a\\"b"}}') for n, (op, new, old) in enumerate(events)])
    if not events:
        return

    read = list(read_events(described(users, LogKind.CHANGES), io.BytesIO(users.changes_file([batch], OperationCount(2, 3, 4, 5)))))

    assert [(event.op, event.new, event.old) for event in read] == events
    assert [event.cursor for event in read] == [{"lsn": n, "file": 'a"b'} for n in range(len(events))]
    ops = "".join(op for op, _, _ in events)
    assert [tuple(event.operation_count.values()) for event in read] == [
        (2 + ops.count("I", 0, n), 3 + ops.count("U", 0, n), 4 + ops.count("D", 0, n), 5) for n in range(1, len(ops) + 1)
    ]


@each("options", EVERY_FORMAT)
@examples(40)
@given(rows=st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=20))
def test_rows_read_back(log: Callable[..., Any], options: ChangeLogOptions, rows: list[dict[str, Any]]) -> None:
    users = log(USERS, ["id"], options)
    rows = [row for row in rows if fits(options, [row])] or [dict.fromkeys(VALUES)]

    read = list(read_rows(described(users, LogKind.SNAPSHOT), io.BytesIO(users.snapshot_file([users.rows(rows)]))))

    assert read == rows


@each("options", EVERY_FORMAT)
@each("width", [1, len(USERS)])
def test_rows_of_nothing_but_null_read_back(log: Callable[..., Any], options: ChangeLogOptions, width: int) -> None:
    users = log(USERS[:width], ["id"], options)
    rows = [dict.fromkeys(users.columns.row_schema.names)] * 3

    assert list(read_rows(described(users, LogKind.SNAPSHOT), io.BytesIO(users.snapshot_file([users.rows(rows)])))) == rows


@each("options", EVERY_FORMAT)
def test_decimals_keep_all_digits_in_every_format(log: Callable[..., Any], options: ChangeLogOptions) -> None:
    kinds = [
        ("id", pa.decimal128(38, 2)),
        ("whole", pa.decimal128(38, 0)),
        ("rates", pa.list_(pa.decimal128(38, 20))),
        ("score", pa.float64()),
    ]
    row = {
        "id": Decimal("123456789012345678901234567890.12"),
        "whole": Decimal(10**37),
        "rates": [Decimal("0.12345678901234567890"), None],
        "score": 1.5,
    }
    prices = log(kinds, ["id"], options)
    [event] = read_events(described(prices, LogKind.CHANGES), io.BytesIO(prices.changes_file([prices.events([("I", row, {}, "{}")])])))
    [read] = read_rows(described(prices, LogKind.UPSERTS), io.BytesIO(prices.snapshot_file([prices.rows([row])])))
    assert event.new == read == row


@each("options", EVERY_FORMAT)
def test_dates_and_times_are_the_same_text_in_every_format(log: Callable[..., Any], options: ChangeLogOptions) -> None:
    times = log(TIMES, ["id"], options)
    row = {"id": 1, "day": date(2024, 2, 29), "clock": time(9, 30, 0, 5), "at": datetime(2024, 2, 29, 12, tzinfo=UTC)}
    texts = {"id": 1, "day": "2024-02-29", "clock": "09:30:00.000005", "at": "2024-02-29T12:00:00Z"}

    [event] = read_events(described(times, LogKind.CHANGES), io.BytesIO(times.changes_file([times.events([("I", row, {}, "{}")])])))
    [read] = read_rows(described(times, LogKind.UPSERTS), io.BytesIO(times.snapshot_file([times.rows([row])])))

    assert event.new == read == texts


def test_replicants_json_cannot_tell_the_text_null(log: Callable[..., Any]) -> None:
    users = log(USERS, ["id"], ChangeLogOptions(ChangeLogFormat.REPLICANT_JSON))
    events = users.events([("U", {"text": "null"}, {"id": 1}, "{}")])

    [event] = read_events(described(users, LogKind.CHANGES), io.BytesIO(users.changes_file([events])))

    assert event.new == {"text": None}


@each("options", EVERY_FORMAT)
def test_a_file_of_many_events_is_read_to_its_end(log: Callable[..., Any], options: ChangeLogOptions) -> None:
    users = log(USERS, ["id"], options)
    events = users.events([("U", {"text": f"line\n{n}"}, {"id": n}, "{}") for n in range(20_000)])

    read = read_events(described(users, LogKind.CHANGES), io.BytesIO(users.changes_file([events])))

    assert [event.old["id"] for event in read] == list(range(20_000))
