"""Reads that merge what waits: at every moment they are what the table is once its runs have been merged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from destination_s3_spark import tables
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from destination_s3_spark.tables import fresh as fresh_module
from destination_s3_spark.tables.fresh import TableChanged
from destination_s3_spark.tables.merge import plan
from destination_s3_spark.tables.updates import choice
from destination_s3_spark.tables.updates import waiting as waiting_runs
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_client import bucket_of
from unit_tests.lake.messages import JsonObject, record, schema_of, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.sampling import chance
from unit_tests.sync.dedup_lake import fresh
from unit_tests.sync.reference_changes import PLACEHOLDER

AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "price": {"type": "number"},
    "at": AT,
    "place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
    "lsn": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string"},
}
WAIT = [{"stream": "users", "when_runs_mb": 1000}]
KEYS = 400


class Told(list[dict[str, Any]]):
    """States that were acknowledged, and what is done after each."""

    def __init__(self, at_commit: Callable[[], None]) -> None:
        super().__init__()
        self._at_commit = at_commit

    def append(self, state: dict[str, Any]) -> None:
        super().append(state)
        self._at_commit()


ID, NAME, CITY = pc.field("id"), pc.field("name"), pc.field("place", "city")
READS: Sequence[tuple[Any, pc.Expression | None]] = (
    (["lsn", "id"], None),
    ([], NAME == "a"),
    ({"twice": pc.multiply(ID, 2), "city": CITY}, None),
    (None, NAME == "a"),
    (["price"], ID == 5),
    (["id"], ID.is_null()),
    (["name", "place"], ID.isin([3, 77, 201])),
    (["id"], (ID < 100) & (NAME == "a")),
    (["id"], (CITY == "Ulm") | (pc.field("lsn") > 5)),
    (["_airbyte_raw_id"], pc.field("at").is_null()),
)
"""Columns and filters, some of them on keys only."""


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    name: str
    format: str = "Parquet"
    cursor: bool = True
    key: tuple[str, ...] = ("id",)
    tables: tuple[tuple[str, Any], ...] = ()
    logged: bool = False

    def formatted(self) -> dict[str, Any]:
        more = {"compression_codec": {"codec": "no compression"}} if self.format == "Avro" else {}
        return {"format_type": self.format, **more}


KINDS = (
    Kind("cursor"),
    Kind("no cursor", cursor=False),
    Kind("soft", tables=(("cdc_deletion_mode", "soft"),)),
    Kind(
        "decimals",
        key=("price", "id"),
        tables=(("decimal_columns", [{"stream": "users", "column": "price", "precision": 12, "scale": 2}]),),
    ),
    Kind("numbers", key=("price",)),
    Kind("partitions", key=("at", "id"), tables=(("partition_by", [{"stream": "users", "column": "at", "transform": "day"}]),)),
    Kind("avro", "Avro"),
    Kind("jsonl", "JSONL", tables=(("cdc_deletion_mode", "soft"),)),
    Kind("csv", "CSV", cursor=False),
    Kind("logged", logged=True),
    Kind("logged, soft", "Avro", tables=(("cdc_deletion_mode", "soft"),), logged=True),
    Kind("logged text", "JSONL", logged=True),
)
LIKE_OTHERS = {"soft", "logged", "numbers"}
"""Kinds of which each part is one of another kind."""


def catalog(
    kind: Kind, sync: int = 1, generation: int = 1, minimum: int = 0, columns: dict[str, Any] | None = None, mode: str = "append_dedup"
) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": sync}
    schema = schema_of(columns or COLUMNS)
    return catalog_of(stream(schema=schema, mode=mode, key=kind.key, cursor="lsn" if kind.cursor else "", **ids))


def some_record(chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(KEYS)
    data = {
        "id": number if chance.random() > 0.02 else chance.choice([None, 10**20, 10**20 + 1]),
        "name": chance.choice(["a", "b\u0000c", "é", None, PLACEHOLDER]),
        "price": number / 4 if chance.random() > 0.05 else chance.choice([None, -0.0, 0, 1e300]),
        "at": None if number == 7 else f"2026-11-{21 + number % 3}T{number % 24:02}:00:00Z",
        "place": chance.choice([None, {"city": "Ulm"}, {"city": "Rom", "zip": number}]),
        "lsn": chance.choice([None, *range(9)]),
    }
    return {**data, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"} if chance.random() < 0.15 else data


def messages(records: Sequence[dict[str, Any]], emitted_at: int, word: str = "COMPLETE") -> Iterator[bytes]:
    """The records, with a STATE after each half."""
    for part in range(2):
        yield from (record(data, emitted_at=emitted_at) for data in records[part::2])
        yield state(emitted_at * 10 + part)
    yield status(word)


@pytest.fixture
def make_lake(s3_settings: S3Settings, tmp_path: Path) -> Callable[[Kind], Lake]:
    def make(kind: Kind) -> Lake:
        options = {"tables": {"raw_tables": False, "merge": WAIT, **dict(kind.tables)}, "change_log": {"enabled": kind.logged}}
        limits = Limits(batch_bytes=30_000, age_s=3600, spool_bytes=2**31)
        return Lake(s3_settings, tmp_path, limits, format=kind.formatted(), options=options, merge_limits={"least_file_bytes": 4096})

    return make


def copied(lake: Lake, to: S3Settings) -> Lake:
    """The lake in another bucket."""
    there = bucket_of(to)
    there.versions.clear()
    for key, body in lake.memory.objects.items():
        there.put(key, body, lake.memory.metadata(key))
    elsewhere = lake.directory / "elsewhere"  # its spool, too: the sync beside it may go on
    elsewhere.mkdir(exist_ok=True)
    return replace(lake, settings=to, directory=elsewhere)


def merged(lake: Lake, to: S3Settings, of: JsonObject) -> Any:
    """The table once all that waits has been merged, elsewhere."""
    other = copied(lake, to)
    merge(other, of)
    return tables.read(other.raw_config(), "users")


def merge(lake: Lake, of: JsonObject) -> None:
    """Merge what waits."""
    always = {**lake.options, "tables": {name: option for name, option in lake.options["tables"].items() if name != "merge"}}
    replace(lake, options=always, states=[]).sync(of, [status("COMPLETE")])


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": f"first {number}", "lsn": 1, **more}


@pytest.fixture
def waiting(make_lake: Callable[[Kind], Lake]) -> Lake:
    """A table of 2,000 rows in several files, and runs in which 30 of them change and 2 are deleted."""
    lake = make_lake(KINDS[0])
    lake.sync(catalog(KINDS[0]), messages([user(number) for number in range(2_000)], 1))
    for sync, numbers in enumerate((range(700, 720), range(1_500, 1_510)), 2):
        gone = user(numbers[5], lsn=3, _ab_cdc_deleted_at="2026-01-01T00:00:00Z")
        changed = [user(number, lsn=2, name="second") for number in numbers]
        lake.sync(catalog(KINDS[0], sync), messages([*changed, gone], sync))
    return lake


EXPECTED = {number: "second" if number in (*range(700, 720), *range(1_500, 1_510)) else f"first {number}" for number in range(2_000)
            if number not in (705, 1_505)}  # fmt: skip


def names(table: pa.Table) -> dict[int, str]:
    """The name of each user, of whom none is there twice."""
    found = dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    assert len(found) == len(table)
    return found


def test_a_fresh_read_streams_to_other_programs(waiting: Lake) -> None:
    users = fresh(waiting)

    assert names(users.to_table()) == EXPECTED
    assert names(tables.read(waiting.raw_config(), "users").to_table())[700] == "first 700"
    assert duckdb.execute("select count(*), max(id) from users where name = 'second'").fetchall() == [(28, 1_509)]
    assert len(polars.from_arrow(users.to_reader(["id"]))) == 1_998
    assert users.to_reader().schema == users.schema


def test_a_fresh_read_sends_only_gets(waiting: Lake) -> None:
    waiting.memory.forget()
    users = fresh(waiting)

    assert names(users.to_table()) == EXPECTED
    assert set(waiting.memory.actions()) <= {"GetObject", "HeadObject"}


def test_a_filter_on_keys_reads_only_the_runs_that_may_have_them(waiting: Lake) -> None:
    rows_of = fresh(waiting)._rows
    assert rows_of.merge is not None
    files = len(waiting.live(FileKind.FINAL))
    of_all, of_two = rows_of.merge.plan(None).replaced, rows_of.merge.plan(pc.field("id") < 710).replaced
    of_none, of_others = rows_of.merge.plan(pc.field("id") == 5).replaced, rows_of.merge.plan(pc.field("name") == "x").replaced

    assert files > len(of_all) > len(of_two) > len(of_none) == 0
    assert of_others == of_all, "a row may have had another name before"
    assert names(fresh(waiting).to_table(filter=pc.field("id") == 700)) == {700: "second"}
    assert not len(fresh(waiting).to_table(filter=pc.field("id") == 705))


def test_a_merge_before_the_first_row_starts_the_read_again(waiting: Lake) -> None:
    users = fresh(waiting)
    merge(waiting, catalog(KINDS[0], 4))

    assert names(pa.Table.from_batches(users.to_batches())) == EXPECTED


def test_a_merge_after_the_first_row_ends_the_read(waiting: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)  # one range for each file
    users = fresh(waiting)
    batches = users.to_batches(["id"])
    next(batches)
    merge(waiting, catalog(KINDS[0], 4))

    with pytest.raises(TableChanged, match="Read it again"):
        list(batches)
    assert names(users.to_table()) == EXPECTED


def test_a_file_that_something_else_deleted_is_an_error(waiting: Lake) -> None:
    users, [run, *_] = fresh(waiting), waiting.live(FileKind.DELTA)
    waiting.store.delete([run.key])

    with pytest.raises(DataError, match="is gone"):
        users.to_table()


def test_without_waiting_rows_it_is_the_plain_read(waiting: Lake) -> None:
    merge(waiting, catalog(KINDS[0], 4))
    users, plain = fresh(waiting), tables.read(waiting.raw_config(), "users")

    assert users.schema == plain.schema
    assert users.to_table().equals(plain.to_table())
    assert users.count_rows() == plain.count_rows() == len(EXPECTED)


def test_a_pending_generation_is_not_part_of_it(waiting: Lake) -> None:
    columns = {**COLUMNS, "id": {"type": "string"}, "more": {"type": "string"}}
    refresh = catalog(KINDS[0], 4, generation=4, minimum=4, columns=columns)
    with pytest.raises(TransientError, match="did not complete"):
        waiting.sync(refresh, messages([user(1, name="refreshed")], 4, "INCOMPLETE"))

    users = fresh(waiting)

    assert names(users.to_table()) == EXPECTED
    assert users.schema == tables.read(waiting.raw_config(), "users").schema


def test_new_columns_are_null_in_older_rows_and_runs(waiting: Lake) -> None:
    waiting.sync(catalog(KINDS[0], 3, columns={**COLUMNS, "more": {"type": "string"}}), messages([user(3, more="x", lsn=3)], 4))

    found = fresh(waiting).to_table()

    assert names(found) == EXPECTED
    assert found.filter(pc.field("more").is_valid()).select(["id", "more"]).to_pylist() == [{"id": 3, "more": "x"}]


def test_rows_under_another_key_are_read_once_they_are_merged(waiting: Lake) -> None:
    refused: list[str] = []

    def read() -> None:
        with pytest.raises(ConfigError) as caught:
            fresh(waiting).to_table()
        refused.append(caught.value.message)

    waiting.states = Told(read)
    waiting.sync(catalog(Kind("other key", key=("name",)), 4), messages([user(1)], 4))

    assert len(refused) == 2
    assert "its key, its format or a type has changed" in refused[0]
    assert rows(fresh(waiting).to_table()) == rows(tables.read(waiting.raw_config(), "users").to_table())


def test_rows_of_a_cancelled_refresh_wait_for_the_next_sync_of_an_append_table(make_lake: Callable[[Kind], Lake]) -> None:
    lake, kind = make_lake(KINDS[0]), KINDS[0]
    lake.sync(catalog(kind, 1, mode="append"), messages([user(1)], 1))
    with pytest.raises(TransientError, match="did not complete"):
        lake.sync(catalog(kind, 2, generation=2, minimum=2, mode="append"), messages([user(2)], 2, "INCOMPLETE"))
    assert names(fresh(lake).to_table()).keys() == {1}
    lake.states = Told(lambda: moments.append(sorted(names(fresh(lake).to_table()))))
    moments: list[list[int]] = []
    lake.sync(catalog(kind, 3, generation=2, mode="append"), messages([user(3)], 3))

    assert moments == [[1, 2, 3]] * 2
    assert names(fresh(lake).to_table()).keys() == {1, 2, 3}


def test_runs_that_were_combined_are_read(waiting: Lake, make_bucket: Callable[[], S3Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MOST_RUNS", 4)
    monkeypatch.setattr(waiting_runs, "MOST_RUNS", 4)
    for sync in range(4, 8):
        waiting.sync(
            catalog(KINDS[0], sync), messages([user(number, lsn=sync, name=f"of {sync}") for number in range(sync, 1_900, 300)], sync)
        )
    files = waiting.live(FileKind.DELTA)

    assert any(file.combined for file in files)
    assert rows(fresh(waiting).to_table()) == rows(merged(waiting, make_bucket(), catalog(KINDS[0], 8)).to_table())


def test_memory_does_not_grow_with_the_rows(make_lake: Callable[[Kind], Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    lake, kind = make_lake(KINDS[1]), KINDS[1]
    lake.limits = replace(lake.limits, batch_bytes=2**24)
    numbers: set[Any] = set()
    for sync in range(1, 4):
        chance = random.Random(sync)
        sent = [{"id": chance.randrange(10**5), "name": chance.randbytes(1_500).hex()} for _ in range(6_000)]
        numbers |= {one["id"] for one in sent}
        lake.sync(catalog(kind, sync), messages(sent, sync))
    monkeypatch.setattr(fresh_module, "BUDGET_BYTES", 2**21)
    monkeypatch.setattr(fresh_module, "SIZES", replace(fresh_module.SIZES, budget_bytes=2**20))
    users, before = fresh(lake), pa.total_allocated_bytes()
    most = size = 0
    for batch in users.to_batches():
        size += batch.nbytes
        most = max(most, pa.total_allocated_bytes() - before)

    assert size > 50_000_000
    assert most < size / 3
    assert users.count_rows() == len(numbers)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=[pytest.mark.slow] if kind.name in LIKE_OTHERS else []) for kind in KINDS]
)
def test_fresh_reads_equal_the_merged_table_after_each_commit(
    kind: Kind, make_lake: Callable[[Kind], Lake], make_bucket: Callable[[], S3Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 2**13)  # several ranges
    random_rows = chance(kind.name)
    lake, elsewhere = make_lake(kind), make_bucket()
    moments: list[tuple[bool, int]] = []

    def compare() -> None:
        moment = bool(lake.live(FileKind.FINAL)), len(lake.live(FileKind.DELTA))
        if moment in moments:
            return  # the second STATE of a commit
        moments.append(moment)
        expected, found = merged(lake, elsewhere, of), fresh(lake)
        assert found.schema == expected.schema
        table = found.to_table()
        assert table.schema == expected.schema
        assert rows(table) == rows(expected.to_table())
        assert found.count_rows() == expected.count_rows() == len(table)
        for columns, where in [] if "_airbyte_data" in table.column_names else random_rows.sample(READS, 4):
            assert rows(found.to_table(columns, where)) == rows(expected.to_table(columns=columns, filter=where))

    lake.states = Told(compare)
    for sync, count in enumerate((300, 5, 150, 20, 80), 1):
        of = catalog(kind, sync)
        sent = [some_record(random_rows) for _ in range(count)]
        lake.sync(of, messages(sent, 1_000 * sync - random_rows.choice([0, 1500])))
    assert not moments[0][0], "the first sync has been merged before a STATE went out"
    assert len(moments) >= 5, "each sync has at least one commit; how many it has is a matter of time"
    assert moments[-1] == (True, max(runs for _, runs in moments))
