from __future__ import annotations

import decimal
import io
import json
import random
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_format import SeekableFile
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.schema.airbyte_type import AirbyteType, Decimal, Field, Scalar
from destination_s3_spark.schema.arrow import RAW_SCHEMA, arrow_type
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding
from destination_s3_spark.tables.runs.keys import (
    CURSOR,
    DELETED,
    KEY,
    OFFSET,
    CdcDeletion,
    KeySpec,
    after,
    encode_key,
    key_column,
    lower,
    upper,
)
from destination_s3_spark.tables.runs.sorted_file import (
    RUN_OPTIONS,
    RowGroup,
    RunFile,
    SortedFile,
    SortedFileWriter,
    index_of,
    run_rows,
    tombstone_schema,
)
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, EXTRACTED_AT, STORED_OFFSET, winners
from unit_tests.cases import each
from unit_tests.sampling import examples
from unit_tests.tables import reference_merge
from unit_tests.tables.sorted_files import (
    GONE,
    ID,
    SEEN,
    SPEC,
    TEXT,
    TINY,
    TYPED,
    Watched,
    encoded,
    form,
    raw,
    read,
    run_of,
    sorted_file,
    typed,
)


def test_a_run_is_sorted_by_key_and_then_by_arrival() -> None:
    first = typed([{"id": 2, "region": "b"}, {"id": 1, "region": None}, {"id": None}])
    second = typed([{"id": 2, "region": "a", "_ab_cdc_deleted_at": "x"}, {"id": 1, "seen": 5}])
    sink = io.BytesIO()
    run = RunFile(sink, TYPED, SPEC, 10)
    run.write(run_rows(first, first, SPEC))
    run.write(run_rows(second, second, SPEC))
    written = run.close()
    assert written.rows == 5
    stored = pq.read_table(io.BytesIO(sink.getvalue()))
    assert stored.schema.names == [*TYPED.names, KEY, CURSOR, DELETED, OFFSET]
    assert stored.select(["id", "region", OFFSET, DELETED]).to_pylist() == [
        {"id": None, "region": None, OFFSET: 12, DELETED: False},
        {"id": 1, "region": None, OFFSET: 11, DELETED: False},
        {"id": 1, "region": None, OFFSET: 14, DELETED: False},
        {"id": 2, "region": "a", OFFSET: 13, DELETED: True},
        {"id": 2, "region": "b", OFFSET: 10, DELETED: False},
    ]
    assert stored[KEY].combine_chunks().equals(key_column(stored, SPEC))
    assert stored[CURSOR].equals(stored["seen"])
    assert written.keys is not None
    assert (lower(written.keys), upper(written.keys), written.keys.of) == (encoded(None), encoded(2, "b"), SPEC.fingerprint)


def test_a_run_of_raw_rows_has_the_control_columns_of_the_typed_ones() -> None:
    rows = typed([{"id": 2, "seen": 9}, {"id": 1, "seen": None, "_ab_cdc_deleted_at": "x"}])
    sink = io.BytesIO()
    run = RunFile(sink, RAW_SCHEMA, SPEC, 0)
    run.write(run_rows(raw(rows), rows, SPEC))
    run.close()
    found = read(sink, FileKind.DELTA, form=form(payload=RAW_SCHEMA))
    assert found["_airbyte_data"].to_pylist() == ['{"text": "1"}', '{"text": "0"}']
    assert found[DELETED].to_pylist() == [True, False]
    assert found[CURSOR].cast(pa.int64()).to_pylist() == [None, 9]


def row_groups(file: SeekableFile) -> tuple[RowGroup, ...]:
    return index_of(pq.ParquetFile(file).metadata)


def test_row_groups_are_small_whatever_the_rows_and_the_footer_has_their_first_keys() -> None:
    chosen = random.Random(2)
    keys = list(range(3000))
    chosen.shuffle(keys)
    # Every tenth row takes far more than the others.
    rows = typed([{"id": key, "text": "x" * (10_000 if key % 10 == 0 else 1000)} for key in keys])
    sink = run_of(rows.slice(0, 1000), rows.slice(1000))
    groups = row_groups(sink)
    file = pq.ParquetFile(sink)
    assert len(groups) == file.metadata.num_row_groups > 2
    for number, group in enumerate(groups):
        stored = file.read_row_group(number)
        assert (group.first, group.rows) == (stored[KEY][0].as_py(), len(stored))
        assert group.bytes == pytest.approx(stored.nbytes, rel=0.05)
        assert group.bytes <= 2 * RUN_OPTIONS.row_group_bytes
    assert pq.read_table(sink)["id"].to_pylist() == list(range(3000))
    footer = file.metadata.metadata
    assert json.loads(footer[b"airbyte.first_keys"]) == [group.first.hex() for group in groups]
    assert (footer[b"airbyte.key"], footer[b"airbyte.cursor"]) == (SPEC.fingerprint.encode(), SPEC.cursor_fingerprint.encode())


def test_a_range_is_what_a_filter_finds() -> None:
    rows = typed([{"id": number // 3, "region": "abc"[number % 3]} for number in range(60)])
    file = sorted_file(rows, piece=4)
    whole = read(file, FileKind.FINAL)
    assert len(whole) == 60
    bounds = [b"", encoded(None), *(encoded(number) for number in range(-1, 22, 3)), *whole[KEY].to_pylist()[::7], encoded(99)]
    for low in bounds:
        for high in [*bounds, None]:
            expected = whole.filter(pc.field(KEY) >= low)
            expected = expected if high is None else expected.filter(pc.field(KEY) < high)
            assert read(file, FileKind.FINAL, low, high).equals(expected)


def test_rows_of_one_key_are_found_in_all_their_row_groups() -> None:
    rows = typed([{"id": 1}] * 3 + [{"id": 2}] * 7 + [{"id": 3}] * 2)
    file = sorted_file(rows, piece=4)
    found = read(file, FileKind.FINAL, encoded(2), after(encoded(2)))
    assert found["text"].to_pylist() == [str(number) for number in range(3, 10)]


def test_only_row_groups_of_the_range_are_fetched_and_those_side_by_side_at_once() -> None:
    rows = typed([{"id": number, "text": random.Random(number).randbytes(4000).hex()} for number in range(400)])
    data = sorted_file(rows, piece=10).getvalue()
    group = len(data) // 40
    file = Watched(data)
    row_groups(file)
    assert sum(file.reads) < 2 * group
    source = SortedFile(file, FileKind.FINAL, form())
    file.reads.clear()
    assert [len(table) for table in source.read(encoded(101), encoded(120))] == [19]
    assert [round(size / group) for size in file.reads] == [2]
    file.reads.clear()
    assert sum(len(table) for table in source.read(portion_bytes=4 * max(group.bytes for group in source.row_groups))) == 400
    assert [round(size / group) for size in file.reads] == [4] * 10


@each("piece", [5, 300])
def test_what_is_read_at_once_is_bounded_for_small_and_for_large_row_groups(piece: int) -> None:
    file = sorted_file(typed([{"id": number, "text": "x" * 1000} for number in range(300)]), piece=piece)
    tables = list(SortedFile(file, FileKind.FINAL, form()).read(portion_bytes=50_000))
    assert len(tables) > 5
    assert max(table.nbytes for table in tables) < 75_000
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(300))


def test_a_reader_between_two_tables_holds_nothing() -> None:
    file = run_of(typed([{"id": number, "text": f"{number}" * 50} for number in range(20_000)]))
    source = SortedFile(file, FileKind.DELTA, form())
    before = pa.total_allocated_bytes()
    tables = source.read(portion_bytes=max(group.bytes for group in source.row_groups))
    size = next(tables).nbytes

    assert size > 100_000
    ends = time.monotonic() + 10  # the threads that Arrow read with let go of their parts a moment after the table is there
    while pa.total_allocated_bytes() - before >= size / 10 and time.monotonic() < ends:
        time.sleep(0.01)
    assert pa.total_allocated_bytes() - before < size / 10
    assert next(tables).num_rows > 0


def test_a_final_file_gets_its_control_columns_from_its_values() -> None:
    rows = typed([{"id": None}, {"id": 1, "region": "a", "seen": 5}, {"id": 1, "region": "b", "_ab_cdc_deleted_at": "x"}])
    found = read(sorted_file(rows), FileKind.FINAL)
    assert found.schema.equals(form().schema)
    assert found.select(TYPED.names).to_pylist() == rows.to_pylist()
    assert found[KEY].to_pylist() == [encoded(None), encoded(1, "a"), encoded(1, "b")]
    assert found[CURSOR].equals(found["seen"])
    assert found[DELETED].to_pylist() == [False] * 3
    assert found[OFFSET].to_pylist() == [2**63 - 1] * 3


def test_a_final_file_of_an_older_schema_is_projected_before_its_keys_are_computed() -> None:
    spec = KeySpec((SEEN,), SEEN, None, CdcDeletion.SOFT)
    older = typed([{"seen": 5}, {"seen": 7}]).drop_columns(["text", GONE.name])
    file = sorted_file(older, replace(TINY, encodings=Encodings(time=TimeEncoding.INT64)), spec)
    assert pq.read_schema(file).field("seen").type == pa.int64()
    found = read(file, FileKind.FINAL, form=form(spec))
    assert found["seen"].type == pa.time64("us")
    assert found[KEY].combine_chunks().equals(encode_key([pa.array([5, 7], pa.time64("us"))], [Scalar.TIME_WITHOUT_TIMEZONE]))
    assert found[CURSOR].equals(found["seen"])
    assert found["text"].null_count == 2


def test_a_state_file_has_its_keys_and_cursor_beside_the_text() -> None:
    rows = typed([{"id": 1, "seen": 4}, {"id": 2}])
    controls = [key_column(rows, SPEC), rows["seen"]]
    schema = pa.schema([*RAW_SCHEMA, *tombstone_schema(SPEC)][: len(RAW_SCHEMA) + 2])
    state = pa.RecordBatch.from_arrays([*raw(rows).columns, *controls], schema=schema)
    found = read(sorted_file(state), FileKind.STATE, form=form(payload=RAW_SCHEMA))
    assert found.to_pylist() == [row | {DELETED: False, OFFSET: STORED_OFFSET} for row in state.to_pylist()]


def tombstones_of(rows: pa.RecordBatch, spec: KeySpec = SPEC) -> pa.RecordBatch:
    columns = {KEY: key_column(rows, spec), CURSOR: rows["seen"], EXTRACTED_AT: rows[EXTRACTED_AT]}
    schema = tombstone_schema(spec)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def tombstones(spec: KeySpec = SPEC) -> pa.RecordBatch:
    return tombstones_of(typed([{"id": 1, "seen": 4, EXTRACTED_AT: 11}, {"id": 2, EXTRACTED_AT: 12}]), spec)


@each("payload", [TYPED, RAW_SCHEMA])
def test_a_tombstone_is_a_stored_deletion_without_payload(payload: pa.Schema) -> None:
    found = read(sorted_file(tombstones()), FileKind.TOMBSTONE, encoded(2), form=form(payload=payload))
    assert found.schema.equals(form(payload=payload).schema)
    assert all(field.nullable for field in found.schema)
    known = {KEY: encoded(2), CURSOR: None, DELETED: True, OFFSET: BURIED_OFFSET, EXTRACTED_AT: tombstones()[EXTRACTED_AT][1].as_py()}
    assert found.to_pylist() == [dict.fromkeys(payload.names) | known]


def test_arrivals_of_a_run_count_from_its_place_in_the_chain() -> None:
    run = run_of(typed([{"id": 2}, {"id": 1}]), first_offset=5)
    assert read(run, FileKind.DELTA, offset=1000)[OFFSET].to_pylist() == [1006, 1005]


def test_without_a_cursor_there_is_no_cursor_column() -> None:
    spec = replace(SPEC, cursor=None)
    rows = typed([{"id": 1}])
    for file, kind in [
        (run_of(rows, spec=spec), FileKind.DELTA),
        (sorted_file(rows, spec=spec), FileKind.FINAL),
        (sorted_file(tombstones(spec), spec=spec), FileKind.TOMBSTONE),
    ]:
        assert CURSOR not in pq.read_schema(file).names
        assert read(file, kind, form=form(spec)).schema.names == [*TYPED.names, KEY, DELETED, OFFSET]


def test_values_of_a_cursor_the_stream_no_longer_has_do_not_count() -> None:
    changed = replace(SPEC, cursor=TEXT)
    rows = typed([{"id": 1, "seen": 4}])
    # Typed rows have the new cursor's values, tombstones and text do not.
    assert read(run_of(rows), FileKind.DELTA, form=form(changed))[CURSOR].to_pylist() == ["0"]
    assert read(sorted_file(tombstones()), FileKind.TOMBSTONE, form=form(changed))[CURSOR].to_pylist() == [None, None]
    sink = io.BytesIO()
    run = RunFile(sink, RAW_SCHEMA, SPEC, 0)
    run.write(run_rows(raw(rows), rows, SPEC))
    run.close()
    assert read(sink, FileKind.DELTA, form=form(changed, RAW_SCHEMA))[CURSOR].to_pylist() == [None]


MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)


@each(
    ("stored", "values", "wanted", "expected"),
    [
        (Scalar.INTEGER, [4, None], Scalar.NUMBER, [4.0, None]),
        (Scalar.INTEGER, [4, None], Scalar.STRING, ["4", None]),
        (Scalar.STRING, ["4", "four"], Scalar.INTEGER, [4, None]),
        (Decimal(12, 2), [decimal.Decimal("1.50"), None], Scalar.NUMBER, [1.5, None]),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, [MIDNIGHT, None], Scalar.TIMESTAMP_WITHOUT_TIMEZONE, [MIDNIGHT, None]),
        (Scalar.DATE, [MIDNIGHT.date(), None], Scalar.STRING, ["2026-01-02", None]),
    ],
)
def test_the_cursors_of_tombstones_are_cast_when_its_type_has_changed(
    stored: AirbyteType, values: list[Any], wanted: AirbyteType, expected: list[Any]
) -> None:
    before = replace(SPEC, cursor=Field("seen", "seen", stored))
    today = replace(SPEC, cursor=Field("seen", "seen_1", wanted))
    schema, found = tombstone_schema(before), tombstones()
    columns = [found[KEY], pa.array(values, schema.field(CURSOR).type), found[EXTRACTED_AT]]
    file = sorted_file(pa.RecordBatch.from_arrays(columns, schema=schema), spec=before)
    read_back = read(file, FileKind.TOMBSTONE, form=form(today))
    assert (read_back[CURSOR].type, read_back[CURSOR].to_pylist()) == (arrow_type(wanted), expected)


def test_a_file_sorted_by_another_key_is_not_read() -> None:
    file = sorted_file(typed([{"id": 1}]))
    with pytest.raises(Bug, match="primary key"):
        SortedFile(file, FileKind.FINAL, form(replace(SPEC, key=(ID,))))


def test_a_file_that_was_not_written_sorted_is_not_read() -> None:
    sink = io.BytesIO()
    file = ParquetFile(sink, TYPED, ParquetOptions())
    file.write(typed([{"id": 1}]))
    file.close()
    with pytest.raises(Bug, match="sorted"):
        row_groups(sink)


def test_rows_that_come_out_of_order_are_not_written() -> None:
    rows = typed([{"id": 2}, {"id": 1}])
    file = SortedFileWriter(io.BytesIO(), TYPED, SPEC)
    keyed = rows.append_column(KEY, key_column(rows, SPEC))
    file.write(keyed.slice(0, 1))
    with pytest.raises(Bug, match="order"):
        file.write(keyed.slice(1))
    file.abandon()


def test_a_run_refuses_other_columns_and_abandoned_gives_its_sink_nothing_more() -> None:
    sink = io.BytesIO()
    run = RunFile(sink, TYPED, SPEC, 0)
    rows = typed([{"id": 1}])
    run.write(run_rows(rows, rows, SPEC))
    with pytest.raises(pa.ArrowInvalid):
        run.write(run_rows(rows.drop_columns(["text"]), rows, SPEC))
    begun = sink.getvalue()
    run.abandon()
    del run
    assert sink.getvalue() == begun


def test_a_run_without_rows_is_a_file_without_keys() -> None:
    sink = io.BytesIO()
    run = RunFile(sink, TYPED, SPEC, 0)
    assert run.close() == WrittenFile(rows=0, keys=None)
    assert row_groups(sink) == ()
    assert len(read(sink, FileKind.DELTA)) == 0


KEYS = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["", "a\0"]))
Rest = tuple[Any, int, bool]
REST = st.tuples(st.none() | st.integers(0, 2), st.integers(0, 2), st.booleans())
"""Cursor, time of extraction, deleted."""


def rows_of(versions: list[Any]) -> pa.RecordBatch:
    return typed(
        [
            {"id": v.key[0], "region": v.key[1], "seen": v.cursor, EXTRACTED_AT: v.extracted_at, "text": str(v.number)}
            | {GONE.name: "x" if v.deleted else None}
            for v in versions
        ]
    )


@examples(200)
@given(
    stored=st.dictionaries(KEYS, REST, max_size=6),
    slices=st.lists(st.lists(st.tuples(KEYS, REST), max_size=6), max_size=3),
    bounds=st.tuples(KEYS, KEYS),
)
def test_files_merge_to_what_the_reference_finds(
    stored: dict[Any, Rest], slices: list[list[tuple[Any, Rest]]], bounds: tuple[Any, Any]
) -> None:
    rank = reference_merge.key_rank
    arrived = [row for rows in slices for row in rows]
    table = [
        reference_merge.Version(-number, key, *rest, BURIED_OFFSET if rest[-1] else STORED_OFFSET)
        for number, (key, rest) in enumerate(sorted(stored.items(), key=lambda row: rank(row[0])), start=1)
    ]
    arrivals = [reference_merge.Version(number, key, *rest, number) for number, (key, rest) in enumerate(arrived)]
    live, dead = [row for row in table if not row.deleted], [row for row in table if row.deleted]
    sources = [
        (sorted_file(rows_of(live), piece=2), FileKind.FINAL, 0),
        (sorted_file(tombstones_of(rows_of(dead)), piece=2), FileKind.TOMBSTONE, 0),
    ]
    first = 0
    for rows in slices:
        sources.append((run_of(rows_of(arrivals[first : first + len(rows)])), FileKind.DELTA, first))
        first += len(rows)

    low, high = sorted(bounds, key=rank)
    cut = (encoded(*low), encoded(*high))
    found = winners(pa.concat_tables([read(file, kind, *cut, offset=offset) for file, kind, offset in sources]), SPEC)

    expected = [v for v in reference_merge.surviving(table + arrivals) if rank(low) <= rank(v.key) < rank(high)]
    assert found[KEY].to_pylist() == [encoded(*version.key) for version in expected]
    assert found[DELETED].to_pylist() == [version.deleted for version in expected]
    assert found[OFFSET].to_pylist() == [version.offset for version in expected]
    assert found["text"].to_pylist() == [None if version in dead else str(version.number) for version in expected]
