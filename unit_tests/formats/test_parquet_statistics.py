"""Statistics of Parquet files against the values themselves, and as delta-rs uses them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.delta_log.actions import Metadata, Protocol, delta_columns, encode_commit
from destination_s3_spark.formats import parquet_statistics
from destination_s3_spark.formats.file_statistics import UNBOUNDED, FileStatistics, unbounded_columns, united
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.formats.parquet_statistics import completed, footer_statistics
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding
from destination_s3_spark.storage.object_store import StagedUpload
from destination_s3_spark.tables.publishers.delta_files import add_actions, configuration
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.sampling import examples
from unit_tests.schema.of_arrow import fields_of

DAY_MS, DAY_US = 86_400_000, 86_400_000_000
FIRST_DAY, LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
MOMENT = pa.timestamp("us", "UTC")


def written(rows: pa.Table, options: ParquetOptions | None = None, pieces: int = 1) -> tuple[pq.FileMetaData, FileStatistics]:
    """The footer of a file of these rows, and the statistics gathered at writing."""
    sink = io.BytesIO()
    file = ParquetFile(sink, rows.schema, options or ParquetOptions(statistics=True))
    for batch in rows.to_batches(max_chunksize=max(1, len(rows) // pieces)):
        file.write(batch)
    found = file.close().statistics
    assert found is not None
    return pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata, found


def column(kind: pa.DataType, *values: Any) -> FileStatistics:
    """The statistics of a file with one column `c`."""
    return written(pa.table({"c": pa.array(values, kind)}))[1]


def bounds(kind: pa.DataType, *values: Any) -> tuple[Any, Any]:
    found = column(kind, *values)
    return found.min["c"], found.max["c"]


@each(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [3, None, -(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        (pa.float64(), [0.1, -2.5, None], (-2.5, 0.1)),
        (pa.float64(), [0.0, -0.0], (-0.0, 0.0)),
        (pa.float64(), [math.inf, 1.0], (1.0, "Infinity")),
        (pa.float64(), [-math.inf, 1.0], ("-Infinity", 1.0)),
        (pa.decimal128(12, 2), [Decimal("-0.10"), Decimal("7.25"), None], (-0.1, 7.25)),
        (pa.decimal128(38, 9), [Decimal("123456789012.123456789"), Decimal(-1)], (-1.0, 123456789012.12346)),
        (pa.decimal128(38, 9), [Decimal("-123456789012.123456789")], (-123456789012.12346, -123456789012.12344)),
        (pa.decimal128(38, 9), [Decimal("0.000000001"), Decimal("0.00002")], (0.0, 0.0001)),
        (pa.decimal128(38, 9), [Decimal("-0.000000001"), Decimal("-0.00002")], (-0.0001, 0.0)),
        (pa.decimal256(50, 0), [Decimal(5)], (5.0, 5.0)),
        (pa.bool_(), [True, False, None], (False, True)),
        (pa.bool_(), [True], (True, True)),
        (pa.date32(), [date(2026, 11, 20), date(1, 1, 1), date(9999, 12, 31)], ("0001-01-01", "9999-12-31")),
        (MOMENT, [1_500, 1_501, -1], ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.002Z")),
        (pa.timestamp("ms", "UTC"), [1, 2], ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")),
        (pa.string(), ["b", "é", None, ""], ("", "é")),
        (pa.string(), ["a" * 40], ("a" * 32, "a" * 32 + "\U0010ffff")),
        (pa.string(), ["a" * 32], ("a" * 32, "a" * 32)),
        (pa.string(), ["a" * 32 + "\U0010ffff" * 2 + "b"], ("a" * 32, "a" * 32 + "\U0010ffff" * 3)),
        (pa.string(), ["é" * 5_000, "b"], ("b", "é" * 32 + "\U0010ffff")),
    ],
)  # fmt: skip
def test_bounds_are_in_the_form_of_delta(kind: pa.DataType, values: list[Any], expected: tuple[Any, Any]) -> None:
    found = bounds(kind, *values)
    assert found == expected
    assert [str(one) for one in found] == [str(one) for one in expected]  # -0.0 is 0.0


def test_structs_nest_and_lists_and_times_are_left_out() -> None:
    inner = pa.struct([("x", pa.int64()), ("of", pa.struct([("y", pa.string()), ("l", pa.list_(pa.int64()))]))])
    schema = pa.schema(
        [("l", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))), ("s", inner), ("e", pa.struct([("l", pa.list_(pa.int8()))])),
         ("t", pa.time64("us")), ("last", pa.int64())]
    )  # fmt: skip
    rows = [{"l": [{"a": 1}], "s": {"x": 5, "of": {"y": "a"}}, "t": 1, "last": 9}, {"s": None}, {"s": {"x": None, "of": None}}]
    _, found = written(pa.Table.from_pylist(rows, schema))

    assert found == FileStatistics(
        {"s": {"x": 5, "of": {"y": "a"}}, "e": {}, "last": 9},
        {"s": {"x": 5, "of": {"y": "a"}}, "e": {}, "last": 9},
        {"s": {"x": 2, "of": {"y": 2}}, "e": {}, "last": 2},
    )


def test_times_stored_as_integers_have_bounds() -> None:
    rows = pa.table({"t": pa.array([5, 7, None], pa.time64("us"))})
    options = ParquetOptions(encodings=Encodings(time=TimeEncoding.INT64), statistics=True)
    assert written(rows, options)[1] == FileStatistics({"t": 5}, {"t": 7}, {"t": 1})


def test_a_column_without_values_has_only_its_nulls() -> None:
    assert column(pa.string(), None, None) == FileStatistics({}, {}, {"c": 2})
    assert column(pa.float64()) == FileStatistics({}, {}, {"c": 0})


@each(
    ("kind", "values"),
    [
        (pa.float64(), [math.nan]),
        (pa.decimal128(38, 0), [Decimal(10**15)]),
        (pa.decimal128(38, 0), [Decimal(-(10**30))]),
        (pa.date32(), [LAST_DAY + 1]),
        (pa.date32(), [FIRST_DAY - 1]),
        (MOMENT, [(LAST_DAY + 1) * DAY_US - 999]),
        (MOMENT, [FIRST_DAY * DAY_US - 1]),
    ],
)
def test_a_value_without_a_bound_leaves_only_its_column_without_bounds(kind: pa.DataType, values: list[Any]) -> None:
    raw = pa.array([*values, None], pa.int32() if pa.types.is_date(kind) else kind if pa.types.is_decimal(kind) else None)
    column = raw.cast(kind)
    rows = pa.table({"c": column, "s": pa.StructArray.from_arrays([column], ["c"]), "other": [1, 2]})
    assert written(rows)[1] == FileStatistics(
        {"c": None, "s": {"c": None}, "other": 1}, {"c": None, "s": {"c": None}, "other": 2}, {"c": 1, "s": {"c": 1}, "other": 0}
    )


def test_a_footer_without_null_counts_has_no_statistics() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1], "b": [2]}), sink, write_statistics=["a"])
    assert footer_statistics(pq.ParquetFile(sink).metadata) == UNBOUNDED


def test_a_file_of_too_many_columns_has_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_statistics, "MOST_COLUMNS", 2)
    assert written(pa.table({name: [1] for name in "ab"}))[1].min == {"a": 1, "b": 1}
    assert written(pa.table({name: [1] for name in "abc"}))[1] == UNBOUNDED


def test_long_texts_are_bounded_over_all_row_groups() -> None:
    texts = ["m", "b" * 5_000, "z", "y" * 9_000, None]
    struct = pa.array([None if text is None else {"t": text} for text in texts], pa.struct([("t", pa.string())]))
    footer, found = written(pa.table({"c": texts, "s": struct}), ParquetOptions(row_group_bytes=1, statistics=True), pieces=5)

    assert footer.num_row_groups == 5
    assert (found.min["c"], found.max["c"], found.nulls["c"]) == ("b" * 32, "z", 1)
    assert (found.min["s"], found.max["s"], found.nulls["s"]) == ({"t": "b" * 32}, {"t": "z"}, {"t": 1})
    assert footer_statistics(footer) == found


def test_without_the_option_nothing_is_gathered() -> None:
    file = ParquetFile(io.BytesIO(), pa.schema([("c", pa.int64())]), ParquetOptions())
    assert file.close().statistics is None


def test_columns_that_came_later_are_null_in_the_file() -> None:
    found = FileStatistics({"a": 1, "s": {"x": 2}}, {"a": 1, "s": {"x": 2}}, {"a": 0, "s": {"x": 0}})
    later = pa.schema(
        [("a", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("n", pa.struct([("z", pa.int64())])),
         ("t", pa.time64("us")), ("l", pa.list_(pa.int64())), ("b", pa.string())]
    )  # fmt: skip
    assert completed(found, later, 3) == FileStatistics(
        {"a": 1, "s": {"x": 2}, "n": {}}, {"a": 1, "s": {"x": 2}, "n": {}}, {"a": 0, "s": {"x": 0, "y": 3}, "n": {"z": 3}, "b": 3}
    )
    assert "n" not in found.min
    assert completed(UNBOUNDED, later, 3) is UNBOUNDED


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("a\U0010ffff", min_size=30, max_size=40)
LEAVES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS | st.just("long" * 2_000),
    pa.date32(): st.integers(FIRST_DAY, LAST_DAY),
    MOMENT: st.integers(FIRST_DAY * DAY_US, LAST_DAY * DAY_US),
    pa.timestamp("ms", "UTC"): st.integers(FIRST_DAY * DAY_MS, LAST_DAY * DAY_MS),
    pa.time64("us"): st.integers(0, DAY_US - 1),
}


def kinds() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        structs = st.lists(inner, min_size=1, max_size=3).map(
            lambda members: pa.struct([(f"m{i}", kind) for i, kind in enumerate(members)])
        )
        return structs | inner.map(pa.list_)

    return st.recursive(st.sampled_from(list(LEAVES)), nested, max_leaves=4)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        members = {kind.field(index).name: values(kind.field(index).type) for index in range(kind.num_fields)}
        return st.none() | st.fixed_dictionaries(members)
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    return st.none() | LEAVES[kind]


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    schema = pa.schema([(f"c{number}", draw(kinds())) for number in range(draw(st.integers(1, 4)))])
    rows = draw(st.lists(st.fixed_dictionaries({field.name: values(field.type) for field in schema}), max_size=12))
    return pa.Table.from_pylist(rows, schema)


def leaves(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in schema:
        if pa.types.is_struct(field.type):
            members = [field.type.field(index) for index in range(field.type.num_fields)]
            yield from leaves(members, (*path, field.name))
        elif not pa.types.is_list(field.type) and not pa.types.is_time(field.type):
            yield (*path, field.name), field.type


def at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = None if tree is None else tree.get(name)
    return tree


def value_of(bound: Any, kind: pa.DataType) -> Any:
    """A bound as a reader takes it."""
    if pa.types.is_date(kind):
        return date.fromisoformat(bound)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(bound)
    return float(bound) if pa.types.is_floating(kind) else bound


@examples(200)
@given(tables(), st.integers(1, 4))
def test_statistics_are_true_and_the_same_from_the_footer(rows: pa.Table, pieces: int) -> None:
    footer, found = written(rows, ParquetOptions(row_group_bytes=200, statistics=True), pieces)
    found = msgspec.json.decode(msgspec.json.encode(found), type=FileStatistics)

    plain = rows.to_pylist()
    for path, kind in leaves(rows.schema):
        present = [value for value in (at(row, path) for row in plain) if value is not None]
        assert at(found.nulls, path) == len(plain) - len(present)
        low, high = at(found.min, path), at(found.max, path)
        assert (low is None, high is None) == (not present, not present)
        if present:
            assert value_of(low, kind) <= min(present)
            assert value_of(high, kind) >= max(present)
            if pa.types.is_string(kind):
                assert low.encode() <= min(map(str.encode, present))
                assert high.encode() >= max(map(str.encode, present))
    if not any(len(text) > 4_096 for text in json.dumps(plain, default=str).split('"')):
        assert footer_statistics(footer) == found


@given(tables(), st.integers(0, 12))
def test_statistics_of_joined_files_are_those_of_all_their_rows(rows: pa.Table, cut: int) -> None:
    parts = [written(part)[1] for part in (rows.slice(0, cut), rows.slice(cut))]
    assert united(parts) == written(rows)[1]


def test_joined_files_are_bounded_if_all_their_parts_are() -> None:
    found = FileStatistics({"f": "-Infinity", "s": "Infinity"}, {"f": 2.0, "s": "Infinity"}, {"f": 0, "s": 0})
    other = FileStatistics({"f": 1.0, "s": "a"}, {"f": "Infinity", "s": "z"}, {"f": 0, "s": 1})

    assert united([found, other]) == FileStatistics({"f": "-Infinity", "s": "Infinity"}, {"f": "Infinity", "s": "z"}, {"f": 0, "s": 1})
    assert united([found, UNBOUNDED]) == UNBOUNDED
    assert united([found, None]) is None


def test_a_column_of_joined_files_is_bounded_if_it_is_in_all_of_them() -> None:
    parts = [
        FileStatistics({"a": 1, "s": {"x": None, "y": 1}}, {"a": 2, "s": {"x": None, "y": 1}}, {"a": 0, "s": {"x": 1, "y": 0}}),
        FileStatistics({"a": None, "s": {"x": 5}}, {"a": None, "s": {"x": 5}}, {"a": 1, "s": {"x": 0, "y": 3}}),
    ]
    for order in (parts, parts[::-1]):
        assert united(order) == FileStatistics(
            {"a": None, "s": {"x": None, "y": 1}}, {"a": None, "s": {"x": None, "y": 1}}, {"a": 1, "s": {"x": 1, "y": 3}}
        )
        assert unbounded_columns(order) == {"a", "s"}
    assert unbounded_columns([UNBOUNDED, FileStatistics({"a": 0, "s": {}}, {"a": 0, "s": {}}, {"a": 0, "s": {}})]) == frozenset()


ROWS = [
    {"a": number, "f": float(number), "s": f"{number:02}" * 20, "m": datetime(2026, 1, 1 + number, tzinfo=UTC),
     "d": date(2026, 1, 1 + number), "b": number % 2 == 0, "st": {"x": number}, "p": Decimal(number) - Decimal("2.10")}
    for number in range(5)
]  # fmt: skip
DELTA_SCHEMA = pa.schema(
    [("a", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("m", MOMENT), ("d", pa.date32()), ("b", pa.bool_()), ("new", pa.int64()),
     ("p", pa.decimal128(38, 2)), ("late", pa.decimal128(12, 2)), ("st", pa.struct([("x", pa.int64())]))]
)  # fmt: skip
FILES = [
    ROWS,
    [row | {"a": row["a"] + 10, "f": math.inf, "st": None} for row in ROWS],  # type: ignore[operator]
    [dict.fromkeys(ROWS[0]) | {"a": 30}],
    [row | {"new": 5, "p": Decimal(10**30), "late": Decimal("-3.14")} for row in ROWS],
    [row | {"d": LAST_DAY + 9, "f": -1.0} for row in ROWS],
]
FILTERS = [
    pc.field("a") > 3,
    pc.field("f") > 3.5,
    pc.field("f") >= math.inf,
    pc.field("f") < 1,
    pc.field("s") == "04" * 20,
    pc.field("m") > datetime(2026, 1, 3, tzinfo=UTC),
    pc.field("d") > date(2026, 1, 3),
    pc.field("b") == False,  # noqa: E712 (an expression)
    pc.field("new") > 3,
    *(pc.field("p") == pa.scalar(value, pa.decimal128(38, 2)) for value in (Decimal("-2.10"), Decimal("0.90"), Decimal(10**30))),
    pc.field("p") < pa.scalar(Decimal("-1.10"), pa.decimal128(38, 2)),
    pc.field("late") < pa.scalar(Decimal("-3.13"), pa.decimal128(12, 2)),
    *(pc.field(name).is_null() for name in DELTA_SCHEMA.names),
    *(pc.field(name).is_valid() for name in DELTA_SCHEMA.names),
    pc.field("st", "x") > 2,
]


def test_delta_rs_finds_every_row_with_them(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    tables = [pa.Table.from_pylist(rows, pa.schema([field for field in DELTA_SCHEMA if field.name in rows[0]])) for rows in FILES]
    entries = {f"{number}.parquet": _entry(tmp_path / f"{number}.parquet", table) for number, table in enumerate(tables)}
    columns = delta_columns(fields_of(DELTA_SCHEMA))
    # The chain describes all files, so that none is read.
    adds = add_actions(Bucket(), entries, DELTA_SCHEMA, 0, None).values()
    body = encode_commit(
        [Protocol(1, 2), Metadata("0", columns.schema_string, [], configuration(columns, entries.values())), *adds],
    )
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_bytes(body)

    assert all('"minValues":{"a":' in (add.stats or "") for add in adds), "every file is bounded by the columns that can be"
    dataset = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    expected = pa.concat_tables(tables, promote_options="default").select(DELTA_SCHEMA.names)
    for condition in FILTERS:
        assert dataset.to_table(filter=condition).num_rows == expected.filter(condition).num_rows, str(condition)


def _entry(path: Path, table: pa.Table) -> FileEntry:
    """Write a file of the table."""
    with path.open("wb") as sink:
        file = ParquetFile(sink, table.schema, ParquetOptions(statistics=True))
        for batch in table.to_batches():
            file.write(batch)
        written = file.close()
    return FileEntry.staged(FileKind.FINAL, StagedUpload(path.name, "", (), path.stat().st_size), written)
