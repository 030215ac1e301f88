"""Soft deletions in merges of rows in memory, against the plain reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.tables.runs.keys import CURSOR, DELETED, KEY, META, OFFSET, deleted_column, key_column
from destination_s3_spark.tables.runs.merged_rows import RowStream, merged_rows
from destination_s3_spark.tables.runs.soft_deletions import DATA, SoftDeletions
from destination_s3_spark.tables.runs.sorted_file import MergeForm
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, EARLIER, EXTRACTED_AT, STORED_OFFSET, sorted_by_key
from unit_tests.sampling import examples
from unit_tests.tables import reference_merge
from unit_tests.tables.merged_table import HARD, SOFT, batches, table_format

FORMS = {"typed": table_format(spec=SOFT).form, "text": table_format("jsonl", SOFT).form}
SYNC = 1_000
"""More than the rows of a sync."""
Version = reference_merge.Version
Row = tuple[Any, Any, int, bool]
Shown = tuple[Any, Any, bool, int | None, int]


def soft_of(form: MergeForm) -> SoftDeletions:
    assert form.soft is not None
    return form.soft


def merge_form(form: MergeForm, versions: Sequence[Version]) -> pa.Table:
    """The versions as a sorted source."""
    raw, typed = batches(versions)
    columns = list((raw if form.payload == RAW_SCHEMA else typed).columns)
    offsets = pa.array([version.offset for version in versions], pa.int64())
    columns += [key_column(typed, form.spec), typed["updated"], deleted_column(typed, form.spec), offsets]
    return sorted_by_key(pa.table(columns, schema=form.schema))


def with_offsets(rows: pa.Table, offset: int) -> pa.Table:
    number = rows.schema.get_field_index(OFFSET)
    return rows.set_column(number, rows.schema.field(number), pa.repeat(pa.scalar(offset, pa.int64()), len(rows)))


@dataclass
class Merged:
    """A table in memory: its rows and tombstones in merge form."""

    form: MergeForm
    pool: ThreadPoolExecutor
    rows: pa.Table = field(init=False)
    tombstones: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.tombstones = self.form.schema.empty_table()

    def merge(self, runs: Sequence[pa.Table], portion: int = 3) -> None:
        soft = soft_of(self.form)
        found = [soft.applied(rows) for rows in self.read([self.tombstones, self.rows, *runs], portion)]
        made = pa.concat_tables([self.form.schema.empty_table(), *found])
        buried = pc.and_(made[DELETED], pc.less(made[OFFSET], BURIED_OFFSET))
        self.tombstones = sorted_by_key(pa.concat_tables([self.tombstones, self.only_rank(made.filter(buried))]))
        self.rows = with_offsets(made.filter(pc.invert(made[DELETED])), STORED_OFFSET)

    def read(self, sources: Sequence[pa.Table], portion: int) -> Iterator[pa.Table]:
        def portions(rows: pa.Table) -> Iterator[pa.Table]:
            return (rows.slice(at, portion) for at in range(0, len(rows), portion))

        streams = [RowStream(portions(rows), self.pool) for rows in sources if len(rows)]
        return merged_rows(streams, self.form)

    def only_rank(self, rows: pa.Table) -> pa.Table:
        """What a tombstone file has of the rows."""
        columns = [
            rows[name] if name in (KEY, CURSOR, EXTRACTED_AT, DELETED, OFFSET) else pa.nulls(len(rows), self.form.schema.field(name).type)
            for name in self.form.schema.names
        ]
        return with_offsets(pa.table(columns, schema=self.form.schema), BURIED_OFFSET)

    def shown(self) -> list[Shown]:
        """The key, cursor, deletion, value and time of extraction of each row."""
        rows = self.rows
        is_text = self.form.payload == RAW_SCHEMA
        records = [json.loads(text) for text in rows[DATA].to_pylist()] if is_text else rows.to_pylist()
        times = np.asarray(rows[EXTRACTED_AT].cast(pa.int64())).tolist()
        return [
            (row["id"], row["updated"], row["_ab_cdc_deleted_at"] is not None, row["number"], at)
            for row, at in zip(records, times, strict=True)
        ]


def expected(versions: Sequence[Version]) -> list[Shown]:
    return [
        (found.key[0], found.cursor, found.deleted, None if values.deleted else values.number, found.extracted_at)
        for found, values in reference_merge.softly(versions)
    ]


def only(made: Merged) -> Shown:
    [row] = made.shown()
    return row


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(params=list(FORMS))
def table(request: pytest.FixtureRequest, pool: ThreadPoolExecutor) -> Merged:
    return Merged(FORMS[request.param], pool)


@pytest.fixture
def version() -> Any:
    def make(number: int, cursor: Any, *, deleted: bool = False, extracted_at: int = 0, offset: int = 0, key: str = "a") -> Version:
        return Version(number, (key,), cursor, extracted_at, deleted, offset)

    return make


def land(made: Merged, *versions: Version) -> None:
    """Merge the versions in one sync."""
    made.merge([merge_form(made.form, [replace(one, offset=place) for place, one in enumerate(versions)])])


KEYS = st.sampled_from(["a", "b", "c"]).map(lambda key: (key,))
RUN = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 4), st.integers(0, 1), st.booleans()), max_size=7)
SYNCS = st.lists(st.tuples(st.lists(RUN, max_size=3), st.integers(1, 4)), max_size=4)


@examples(200)
@given(st.sampled_from(list(FORMS)), SYNCS)
def test_a_table_is_what_its_whole_history_makes_of_it(
    pool: ThreadPoolExecutor, form: str, syncs: list[tuple[list[list[Row]], int]]
) -> None:
    made, seen = Merged(FORMS[form], pool), list[Version]()
    for sync, (runs, portion) in enumerate(syncs):
        landed, place = [], 0
        for run in runs:
            landed.append([Version(len(seen) + place + at, *row, place + at) for at, row in enumerate(run)])
            place += len(run)
        made.merge([merge_form(made.form, run) for run in landed], portion)
        # In a tie the row of an earlier sync stays, and the later one of the same sync.
        seen += [replace(one, offset=one.offset - SYNC * sync) for run in landed for one in run]
        assert made.shown() == expected(seen)


@given(st.sampled_from(list(FORMS)), st.lists(RUN, min_size=2, max_size=4), st.integers(1, 4))
def test_runs_that_were_combined_decide_the_same(pool: ThreadPoolExecutor, form: str, runs: list[list[Row]], portion: int) -> None:
    numbers = iter(range(100))
    landed = [merge_form(FORMS[form], [Version(number := next(numbers), *row, number) for row in run]) for run in runs]
    plain, made = Merged(FORMS[form], pool), Merged(FORMS[form], pool)
    plain.merge(landed)
    [*combined] = made.read(landed[1:], portion)
    made.merge([landed[0], pa.concat_tables([made.form.schema.empty_table(), *combined])], portion)
    assert made.shown() == plain.shown()
    assert made.tombstones.equals(plain.tombstones)


def test_the_order_of_arrival_does_not_matter(table: Merged, version: Any) -> None:
    versions = [version(0, 0), version(1, 1), version(2, 2, deleted=True), version(3, 3, deleted=True)]
    for order in permutations(versions):
        made = Merged(table.form, table.pool)
        for one in order:
            land(made, one)
        assert only(made) == ("a", 3, True, 1, 0), [one.number for one in order]


def test_a_row_that_comes_back_is_as_sent_and_loses_to_its_next_deletion_the_mark_only(table: Merged, version: Any) -> None:
    land(table, version(1, 1), version(2, 2, deleted=True))
    land(table, version(3, 3))
    assert only(table) == ("a", 3, False, 3, 0)
    land(table, version(4, 4, deleted=True))
    land(table, version(5, 1, extracted_at=9))
    assert only(table) == ("a", 4, True, 3, 0)


def test_a_deletion_that_was_sent_again_changes_nothing(table: Merged, version: Any) -> None:
    land(table, version(1, 1), version(2, 2, deleted=True))
    before, tombstones = table.rows, table.tombstones
    land(table, version(2, 2, deleted=True), version(1, 1))
    assert table.rows.equals(before)
    assert table.tombstones.equals(tombstones)


def test_a_deletion_of_a_row_that_does_not_exist_is_as_sent_until_an_older_row_arrives(table: Merged, version: Any) -> None:
    land(table, version(1, 5, deleted=True))
    assert only(table) == ("a", 5, True, None, 0)
    land(table, version(2, 6, deleted=True))
    assert only(table) == ("a", 6, True, None, 0)
    land(table, version(3, None))
    assert only(table) == ("a", 6, True, 3, 0)


def test_values_of_rows_older_than_a_hard_deletion_do_not_come_back(table: Merged, version: Any) -> None:
    hard = merge_form(replace(table.form, spec=HARD), [version(1, 5, deleted=True)])
    table.merge([hard])
    assert table.shown() == []
    land(table, version(2, 6, deleted=True))
    land(table, version(3, 4))
    assert only(table) == ("a", 6, True, None, 0)


def test_rows_of_the_table_that_are_merged_as_runs_keep_their_values(table: Merged, version: Any) -> None:
    land(table, version(1, 1), version(2, 2, deleted=True))
    table.rows, stored = table.form.schema.empty_table(), with_offsets(table.rows, EARLIER)
    table.tombstones = table.form.schema.empty_table()
    table.merge([stored, merge_form(table.form, [version(3, 3, deleted=True)])])
    assert only(table) == ("a", 3, True, 1, 0)
    land(table, version(4, 4, deleted=True))
    assert only(table) == ("a", 4, True, 1, 0)


def test_a_tombstone_remembers_the_row_whose_values_are_kept(table: Merged, version: Any) -> None:
    land(table, version(1, 1, extracted_at=7), version(2, 2, deleted=True, extracted_at=8), version(3, 1, key="b"))
    assert table.tombstones[CURSOR].to_pylist() == [1]
    assert np.asarray(table.tombstones[EXTRACTED_AT].cast(pa.int64())).tolist() == [7]


def test_changes_are_those_of_the_values_in_the_row(table: Merged, version: Any) -> None:
    def changed(rows: pa.Table, *fields: str) -> pa.Table:
        changes = [{"field": name, "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"} for name in fields]
        number = rows.schema.get_field_index(META)
        metas = pa.array([{"sync_id": len(fields), "changes": changes}] * len(rows), rows.schema.field(META).type)
        return rows.set_column(number, rows.schema.field(number), metas)

    row = changed(merge_form(table.form, [version(1, 1)]), "text", "text.part", "updated", "_ab_cdc_lsn")
    deletion = changed(merge_form(table.form, [version(2, 2, deleted=True)]), "number", "_ab_cdc_deleted_at")
    table.merge([row, deletion])
    [meta] = table.rows[META].to_pylist()
    assert meta["sync_id"] == 2
    assert [change["field"] for change in meta["changes"]] == ["text", "text.part", "_ab_cdc_deleted_at"]


def test_text_keeps_each_value_as_sent(pool: ThreadPoolExecutor, version: Any) -> None:
    form = FORMS["text"]
    texts = [
        r'{"id":"a","updated":1.0,"number":1.50,"_ab_cdc_deleted_at":null,"_ab_cdc_lsn":1,"\ud800é":"\u00e9","new":{"updated":1}}',
        '{"_ab_cdc_lsn":2, "id":"\\u0061","updated":2e0,"number":null,"_ab_cdc_deleted_at":"2026-01-01"}',
    ]
    rows = merge_form(form, [version(1, 1), version(2, 2, deleted=True, offset=1)])
    rows = rows.set_column(rows.schema.get_field_index(DATA), rows.schema.field(DATA), pa.array(texts))
    [deleted] = soft_of(form).applied(rows.take([1, 0])).filter(pc.field(DELETED).__invert__())[DATA].to_pylist()
    assert deleted == (
        r'{"number":1.50,"\ud800\u00e9":"\u00e9","new":{"updated":1},"_ab_cdc_lsn":2,"id":"\u0061","updated":2e0,"_ab_cdc_deleted_at":"2026-01-01"}'
    )


def test_a_table_without_the_deletion_field_or_with_hard_deletions_has_no_soft_ones() -> None:
    assert table_format(spec=HARD).form.soft is None
    assert table_format(spec=replace(SOFT, deleted_at=None)).form.soft is None
