from __future__ import annotations

import decimal as exact
import pickle
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.decoding.raw_ids import carried_digest, keyed_id
from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Field, Object, Scalar, SchemalessObject, Union
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_type
from destination_s3_spark.schema.partitioning import Partitioning, PartitionSpec, Transform
from destination_s3_spark.tables.runs.keys import (
    BOUND_BYTES,
    CdcDeletion,
    KeySpec,
    after,
    deleted_column,
    encode_key,
    key_column,
    key_range,
    lower,
    may_be_unfit,
    partition_bounds,
    partition_end,
    upper,
)
from unit_tests.cases import each
from unit_tests.sampling import examples
from unit_tests.tables import reference_merge

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\x00\x01ÿa"), max_size=4)
MONEY, LARGEST = Decimal(12, 2), Decimal(38, 38)
VALUES: dict[AirbyteType, st.SearchStrategy[Any]] = {
    Scalar.STRING: TEXT,
    Scalar.INTEGER: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    Scalar.NUMBER: st.floats() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), -float("nan")]),
    MONEY: st.decimals(-(10**9), 10**9, places=2) | st.decimals(-1, 1, places=2),
    LARGEST: st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: exact.Decimal(f"{digits}E-38")),
    Scalar.BOOLEAN: st.booleans(),
    Scalar.DATE: st.dates(),
    Scalar.TIME_WITH_TIMEZONE: st.times(),
    Scalar.TIME_WITHOUT_TIMEZONE: st.times(),
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: st.datetimes(timezones=st.just(UTC)),
    Scalar.TIMESTAMP_WITH_TIMEZONE: st.datetimes(timezones=st.just(UTC)),
}
ID = Field("id", "id", Scalar.INTEGER)
NAME = Field("name", "name_", Scalar.STRING)
AT = Field("at", "at", Scalar.TIMESTAMP_WITH_TIMEZONE)
GONE = Field("_ab_cdc_deleted_at", "_ab_cdc_deleted_at", Scalar.STRING)


def spec(*key: Field, deleted_at: Field | None = None, deletion: CdcDeletion = CdcDeletion.HARD) -> KeySpec:
    return KeySpec(key or (ID,), AT, deleted_at, deletion)


def test_every_type_of_one_value_is_a_key_here() -> None:
    assert {*VALUES} == {*Scalar, MONEY, LARGEST}


@st.composite
def keys_of_some_columns(draw: Any) -> tuple[list[AirbyteType], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    return kinds, draw(st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)), max_size=12))


@examples(400)
@given(keys_of_some_columns(), st.integers(0, 2))
def test_encoded_keys_sort_and_equal_as_the_keys_do(keys: tuple[list[AirbyteType], list[tuple[Any, ...]]], skipped: int) -> None:
    kinds, rows = keys
    columns = [pa.array([row[at] for row in rows], arrow_type(kind)) for at, kind in enumerate(kinds)]
    encoded = encode_key([column[skipped:] for column in columns], kinds)
    encoded.validate(full=True)
    rank = reference_merge.key_rank
    ranks = [rank(row) for row in rows[skipped:]]
    order = {found: at for at, found in enumerate(sorted(set(ranks)))}
    place = {found: at for at, found in enumerate(sorted(set(encoded.to_pylist())))}
    assert [place[key] for key in encoded.to_pylist()] == [order[found] for found in ranks]


@each(
    ("kind", "ascending"),
    [
        (Scalar.INTEGER, [None, -(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]),
        (Scalar.NUMBER, [None, float("-inf"), -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, float("inf"), float("nan")]),
        (Scalar.STRING, [None, "", "\0", "\0\0", "\0a", "a", "a\0", "a\0\xff", "a\x01", "aa", "b", "ÿ", "\uffff", "\U0001f600"]),
        (MONEY, [None, *map(exact.Decimal, ("-9999999999.99", "-256.01", "-256", "-0.01", "0", "0.01", "9.99", "10", "9999999999.99"))]),
        (Scalar.BOOLEAN, [None, False, True]),
        (Scalar.DATE, [None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]),
        (Scalar.TIME_WITHOUT_TIMEZONE, [None, time(0), time(0, 0, 0, 1), time(23, 59, 59, 999999)]),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
    ],
)
def test_edges_of_a_type_ascend_nulls_first(kind: AirbyteType, ascending: list[Any]) -> None:
    encoded = encode_key([pa.array(ascending, arrow_type(kind))], [kind]).to_pylist()
    assert encoded == sorted(set(encoded))


def test_the_bytes_stay_the_same_for_ever() -> None:
    columns = [pa.array([1, None]), pa.array(["a\0", None]), pa.array([True, None]), pa.array([-1.5, None])]
    kinds = [Scalar.INTEGER, Scalar.STRING, Scalar.BOOLEAN, Scalar.NUMBER]
    assert [key.hex(" ") for key in encode_key(columns, kinds).to_pylist()] == [
        "01 80 00 00 00 00 00 00 01 01 61 00 ff 00 00 01 01 01 40 07 ff ff ff ff ff ff",
        "00 80 00 00 00 00 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00",
    ]
    prices = pa.array([exact.Decimal("-0.01"), exact.Decimal("2.56"), None], arrow_type(MONEY))
    assert [key.hex(" ") for key in encode_key([prices], [MONEY]).to_pylist()] == [
        "01 7f ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff",
        "01 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00",
        "00 80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    ]


RAW_IDS = [str(UUID(int=number << 64 | 7 << 76 | 2 << 62 | number)) for number in range(9)]


def with_meta(columns: dict[str, Any], changes: dict[int, list[tuple[str, str]]] | None = None, ids: dict[int, str] | None = None) -> Any:
    """Rows with the connector's own columns; changes as (field, reason) and other ids by row."""
    count = len(next(iter(columns.values())))
    entries = [[{"field": f, "change": "NULLED", "reason": r} for f, r in (changes or {}).get(row, [])] for row in range(count)]
    metas = pa.array([{"sync_id": 1, "changes": found} for found in entries], META_FIELDS[2].type)
    raw_ids = [(ids or {}).get(row, RAW_IDS[row]) for row in range(count)]
    return pa.record_batch({"_airbyte_raw_id": raw_ids, "_airbyte_meta": metas, **columns})


def test_a_key_that_did_not_fit_is_the_one_its_row_carries() -> None:
    size, other = "DESTINATION_FIELD_SIZE_LIMITATION", "SOURCE_RETRIEVAL_ERROR"
    carried = keyed_id(RAW_IDS[0], b"99999999999999999999")
    again = keyed_id(RAW_IDS[1], b"99999999999999999999")
    rows = with_meta(
        {"id": pa.array([None, None, None, None, None, 5]), "name_": ["a"] * 6},
        changes={0: [("x", other), ("id", size)], 1: [("id", size)], 2: [("id", size)], 3: [("id", other)], 4: [("name_", size)]},
        ids={0: carried, 1: again, 3: carried, 4: carried, 5: carried},
    )
    null, five = encode_key([pa.array([None, 5])], [Scalar.INTEGER]).to_pylist()
    found = key_column(rows, spec(ID)).to_pylist()
    assert found[0] == found[1] == b"\x02" + (carried_digest(carried) or "").encode()
    assert found[2:] == [null, null, null, five], "only what did not fit, and only where the row carries the key"
    assert found == key_column(pa.Table.from_batches([rows.slice(0, 2), rows.slice(2)]), spec(ID)).to_pylist()
    assert key_column(rows.slice(1), spec(ID)).to_pylist() == found[1:]
    assert max(found) == found[0], "they sort behind all others"


def test_keys_of_a_table_are_those_of_its_batches() -> None:
    batches = [with_meta({"x": [0] * 3, "id": [1, None, 3], "name_": ["a", "b", None]}) for _ in range(3)]
    whole = key_column(pa.Table.from_batches(batches), spec(NAME, ID))
    assert whole.to_pylist() == key_column(batches[0], spec(NAME, ID)).to_pylist() * 3
    assert whole.to_pylist()[0] == encode_key([pa.array(["a"]), pa.array([1])], [Scalar.STRING, Scalar.INTEGER])[0].as_py()
    empty = pa.Table.from_batches([], batches[0].schema)
    assert key_column(empty, spec(NAME, ID)).to_pylist() == []


def test_too_many_bytes_for_one_array_are_refused() -> None:
    numbers = pa.array([0] * 2**20)
    with pytest.raises(pa.ArrowCapacityError):
        encode_key([numbers] * 228, [Scalar.INTEGER] * 228)


@each("kind", [Array(Scalar.INTEGER), Object((ID,)), Union((Scalar.INTEGER, Scalar.STRING))])
def test_a_column_of_another_type_is_no_key(kind: AirbyteType) -> None:
    with pytest.raises(Bug, match="primary key"):
        encode_key([pa.nulls(1, arrow_type(kind))], [kind])


def test_rows_are_deleted_by_a_value_in_their_column_unless_deletions_are_soft() -> None:
    batch = pa.record_batch({"id": [1, 2], GONE.name: ["2026-01-01", None]})
    assert deleted_column(batch, spec(deleted_at=GONE)).to_pylist() == [True, False]
    assert deleted_column(pa.Table.from_batches([batch, batch]), spec(deleted_at=GONE)).to_pylist() == [True, False] * 2
    assert deleted_column(batch, spec(deleted_at=GONE, deletion=CdcDeletion.SOFT)).to_pylist() == [False, False]
    assert deleted_column(batch, spec()).to_pylist() == [False, False]


def test_the_fingerprint_is_of_the_keys_sources_types_and_order_alone() -> None:
    base = spec(ID, NAME).fingerprint
    assert len(bytes.fromhex(base)) == 4
    assert KeySpec((ID, Field("name", "other", Scalar.STRING)), None, GONE, CdcDeletion.SOFT).fingerprint == base
    others = [(NAME, ID), (ID,), (ID, Field("Name", "name_", Scalar.STRING)), (ID, Field("name", "name_", SchemalessObject()))]
    assert len({base, *(spec(*key).fingerprint for key in others)}) == 5
    assert pickle.loads(pickle.dumps(spec(ID, NAME))) == spec(ID, NAME)


def test_the_cursors_fingerprint_is_of_the_cursor() -> None:
    cursors = [None, AT, NAME, Field("at", "at", Scalar.STRING)]
    assert len({KeySpec((ID,), cursor, None, CdcDeletion.HARD).cursor_fingerprint for cursor in cursors}) == 4
    assert spec(ID).cursor_fingerprint == spec(NAME).cursor_fingerprint


def test_rows_that_are_text_are_not_merged_with_others_but_deletions_are() -> None:
    cursors = [None, AT]
    typed, text = ([KeySpec((ID,), cursor, None, CdcDeletion.HARD, in_text) for cursor in cursors] for in_text in (False, True))
    assert {one.fingerprint for one in typed} == {spec(ID).fingerprint}
    assert len({spec(ID).fingerprint, *(one.fingerprint for one in text)}) == 3
    assert {one.of_deletions.fingerprint for one in (*typed, *text)} == {spec(ID).fingerprint}


@given(st.lists(st.text(st.sampled_from("a\x00\x7f\U0010ffff"), max_size=80), min_size=1, max_size=4))
def test_bounds_of_a_file_hold_all_its_keys(texts: list[str]) -> None:
    keys = sorted(encode_key([pa.array(texts)], [Scalar.STRING]).to_pylist())
    found = key_range(keys[0], keys[-1], spec(NAME).fingerprint)
    assert lower(found) <= keys[0]
    assert keys[-1] <= upper(found)
    assert max(len(lower(found)), len(upper(found))) <= BOUND_BYTES
    assert found.of == spec(NAME).fingerprint


def test_short_bounds_are_exact_and_long_ones_are_cut_outwards() -> None:
    assert key_range(b"\x00a", b"\x01b", spec().fingerprint).first == "0061"
    assert key_range(b"\x00a", b"\x01b", spec().fingerprint).last == "0162"
    long = key_range(b"\x01" + b"k" * 99, b"\x01" + b"k" * 30 + b"\xff" * 99, spec().fingerprint)
    assert lower(long) == b"\x01" + b"k" * 63
    assert upper(long) == b"\x01" + b"k" * 29 + b"l"


def test_after_a_key_comes_no_other_before_its_successor() -> None:
    assert b"\x01a" < after(b"\x01a") <= b"\x01a\x00"


@each(("column", "transform"), [(AT, Transform.MONTH), (NAME, Transform.IDENTITY)])
@given(
    values=st.lists(st.tuples(VALUES[Scalar.INTEGER], st.none() | VALUES[Scalar.TIMESTAMP_WITH_TIMEZONE], st.none() | TEXT), max_size=30)
)
def test_keys_of_a_partition_are_neighbours(
    column: Field, transform: Transform, values: list[tuple[int, datetime | None, str | None]]
) -> None:
    by = Partitioning(PartitionSpec(column.source, transform, "part"), column)
    divided = KeySpec((ID, AT, NAME), None, None, CdcDeletion.HARD, partitioning=by)
    whole = KeySpec((ID, AT, NAME), None, None, CdcDeletion.HARD)
    fields = {ID: pa.int64(), AT: pa.timestamp("us", "UTC"), NAME: pa.string()}
    columns = {field.name: pa.array([row[at] for row in values], kind) for at, (field, kind) in enumerate(fields.items())}
    meta = pa.array([{"sync_id": 0, "changes": []}] * len(values), META_FIELDS[2].type)
    rows = pa.record_batch({**columns, "_airbyte_meta": meta, "_airbyte_raw_id": pa.array([""] * len(values), pa.string())})
    keys, own = key_column(rows, divided).to_pylist(), key_column(rows, whole).to_pylist()
    partitions = {
        number: value for value, part in by.split(rows.append_column("n", pa.array(range(len(values))))) for number in part["n"].to_pylist()
    }
    ends = [partition_end(key, divided) for key in keys]
    assert [key[end:] for key, end in zip(keys, ends, strict=True)] == own
    prefixes = {number: keys[number][: ends[number]] for number in partitions}
    assert len(set(prefixes.values())) == len(set(partitions.values())) == len({*zip(prefixes.values(), partitions.values(), strict=True)})
    for number, key in enumerate(keys):
        low, high = partition_bounds(key, divided)
        assert high is not None
        assert {other for other, one in enumerate(keys) if low <= one < high} == {
            n for n, of in partitions.items() if of == partitions[number]
        }
    assert divided.fingerprint != whole.fingerprint


@each(("column", "transform"), [(AT, Transform.MONTH), (NAME, Transform.IDENTITY)])
def test_the_last_key_tells_of_unfit_ones_in_its_partition_alone(column: Field, transform: Transform) -> None:
    divided = KeySpec(
        (ID,), None, None, CdcDeletion.HARD, partitioning=Partitioning(PartitionSpec(column.source, transform, "part"), column)
    )
    times = pa.array([datetime(2026, month, 1, tzinfo=UTC) for month in (1, 1, 2)], pa.timestamp("us", "UTC"))
    meta = pa.array([{"sync_id": 0, "changes": []}] * 3, META_FIELDS[2].type)
    columns = {"id": pa.array([1, 2, 1]), AT.name: times, NAME.name: pa.array(["a", "a", "b"])}
    first, second, other = key_column(
        pa.record_batch({**columns, "_airbyte_meta": meta, "_airbyte_raw_id": pa.array([""] * 3)}), divided
    ).to_pylist()
    unfit = first[: partition_end(first, divided)] + b"\x02" + b"digest"
    assert first < second < unfit < other
    assert not may_be_unfit(first, second, divided)
    assert may_be_unfit(first, unfit, divided)
    assert may_be_unfit(first, other, divided), "the unfit key is between these"
    assert not may_be_unfit(other, other, divided)
