from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from destination_s3_spark.chain.blocks import Block, block_hash, encode
from destination_s3_spark.chain.events import (
    AddData,
    ChangedValues,
    Close,
    Event,
    MergeData,
    OffsetInterval,
    OpenEpoch,
    Seed,
    SetDataSchema,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import fold
from destination_s3_spark.chain.readable import Readable
from destination_s3_spark.chain.state import Checkpoint, Pending, TableState
from destination_s3_spark.cli import views, words
from destination_s3_spark.cli.inspection.commits import commits
from destination_s3_spark.cli.inspection.ddl import SqlEngine, ddl
from destination_s3_spark.cli.inspection.files import Standing, file_totals, table_files
from destination_s3_spark.cli.inspection.schemas import columns, schema_changes
from destination_s3_spark.cli.inspection.summary import summary
from destination_s3_spark.cli.inspection.syncs import SyncEnd, syncs
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.cli.inspection.values import changed_values
from destination_s3_spark.config.config import Config
from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.schema.partitioning import Partitioning, PartitionSpec, Transform
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, encode_key, key_column, key_range
from unit_tests.chain.built_chain import live_files

NULLED = Reason.SERIALIZATION.value

START = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
COLUMNS = pa.schema([*META_FIELDS, ("id", pa.int64()), ("lines", pa.list_(pa.struct([("quantity", pa.int64())])))])
SEED = Seed(StreamId("shop", "orders"), "shop_raw__stream_orders", 42, "lake/shop/orders/", (), 7, 3, START)
SCHEMA = SetDataSchema(
    {
        "schemaId": 0,
        "mode": "append",
        "primaryKey": [["id"]],
        "version": "1-0-0",
        "fields": [{"name": "id"}, {"name": "lines"}],
        "changes": [{"kind": "KeyAddition", "path": "/lines"}],
        "arrowSchema": schema_to_text(COLUMNS),
    }
)


SCHEMA_AGAIN = SetDataSchema({**SCHEMA.schema, "schemaId": 1})


def add_data(
    start: int, rows: int, changes: dict[str, int] | None = None, schema_id: int = 0, by_field: tuple[ChangedValues, ...] = ()
) -> AddData:
    files = tuple(
        FileEntry(kind, f"{kind.value}/{start}.parquet", rows, 1_500_000, "upload", ("etag",)) for kind in (FileKind.RAW, FileKind.FINAL)
    )
    checkpoint = Checkpoint("00", rows, "00", 3)
    interval = OffsetInterval(start, start + rows - 1)
    return AddData(schema_id, 7, 3, start - 1 if start else None, interval, files, (checkpoint,), changes or {}, by_field)


class HandMadeChain:
    """Folds one event after the other, as the chain does."""

    def __init__(self) -> None:
        self.state: TableState | None = None
        self.blocks: list[Block] = []
        self.left_out: int | None = None

    def append(self, event: Event, *, settled: int | None = None) -> HandMadeChain:
        state = self.state
        epoch = 1 if state is None else state.epoch + isinstance(event, OpenEpoch)
        previous = None if state is None else state.block_hash
        time = START + timedelta(seconds=len(self.blocks))
        block = Block(len(self.blocks), previous, time, epoch, "nonce", settled, event)
        self.state = fold(state, block, block_hash(encode(block)))
        self.blocks.append(block)
        return self

    def inspected(self) -> InspectedTable:
        assert self.state is not None
        schemas = tuple(block for block in self.blocks if isinstance(block.event, SetDataSchema))
        seen = Readable(self.state.contents, live_files(self.blocks), self.left_out)
        return InspectedTable(self.state, seen, tuple(self.blocks), schemas)


@pytest.fixture
def table() -> InspectedTable:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 1_200, {NULLED: 3}))
    return chain.append(Close(), settled=2).inspected()


def test_the_summary_tells_final_and_raw_files_apart(table: InspectedTable) -> None:
    found = summary(table)

    assert (found.table, found.generation, found.rows, found.columns) == ("shop.orders", 3, 1_200, 6)
    assert (found.files, found.bytes, found.raw_files, found.raw_bytes) == (1, 1_500_000, 1, 1_500_000)
    assert (found.last_sync_id, found.last_sync_started_at, found.last_session_end) == (7, START, SyncEnd.CLEAN)


def test_facts_about_a_table(table: InspectedTable) -> None:
    assert {name: value for name, value in views.facts(summary(table)).items() if value} == {
        "stream": "shop.orders",
        "table": "shop_raw__stream_orders",
        "final root": "lake/shop/orders/",
        "mode": "append",
        "primary key": "id",
        "generation": "3",
        "rows": "1,200",
        "last sync": "7, started 2026-03-01 12:30:00, epoch 1",
        "ended": "cleanly",
        "settled": "all data, up to block 2",
    }


def test_a_block_that_is_not_settled_is_named() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5))
    whole = views.facts(summary(chain.inspected()))
    chain.left_out = 2
    unseen = views.facts(summary(chain.inspected()))

    assert whole["settled"] == "block 2 is written and all its files are there: the next sync or `repair` finishes it"
    assert str(unseen["settled"]).startswith("block 2 is written, its files are not all there and not shown here")
    assert unseen["ended"] == "not yet, or not cleanly"


def test_after_a_repair_the_last_sync_is_the_one_before_it() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Close(), settled=2)
    chain.append(OpenEpoch(0, 3, START + timedelta(hours=1)), settled=2).append(Close(), settled=2)

    repaired = chain.inspected()

    assert str(views.facts(summary(repaired))["last sync"]).startswith("7, started 2026-03-01 12:30:00")
    assert [sync.sync_id for sync in syncs(repaired.blocks)] == [7, None]
    assert commits(repaired)[4].summary == "epoch 2, no sync id, generation 3"


def test_syncs_without_an_id_are_syncs() -> None:
    chain = HandMadeChain().append(msgspec.structs.replace(SEED, sync_id=0)).append(SCHEMA)
    chain.append(msgspec.structs.replace(add_data(0, 5), sync_id=0)).append(Close(), settled=2)

    found = chain.inspected()

    assert [sync.sync_id for sync in syncs(found.blocks)] == [0]
    assert str(views.facts(summary(found))["last sync"]).startswith("0, started 2026-03-01 12:30:00")
    assert commits(found)[0].summary == "table shop.orders begins, no sync id, generation 3"


def test_a_table_of_repairs_alone_has_no_last_sync() -> None:
    chain = HandMadeChain().append(SEED).append(Close()).append(OpenEpoch(0, 3, START))
    table = chain.inspected()
    cut = InspectedTable(table.state, table.readable, table.blocks[2:], table.schemas)

    assert summary(cut).last_sync_id is None
    assert views.facts(summary(cut))["last sync"] == "none among the blocks that were read"


def test_blocks_say_what_they_did(table: InspectedTable) -> None:
    found = commits(table)

    assert [(row.block, row.kind) for row in found] == [(0, "Seed"), (1, "SetDataSchema"), (2, "AddData"), (3, "Close")]
    assert found[0].summary == "table shop.orders begins, sync 7, generation 3"
    assert found[1].summary.startswith("schema 0, version 1-0-0: 2 data columns; KeyAddition /")
    assert found[2].summary == "1,200 rows, 2 files (3.0 MB), 1 checkpoint, 3 values changed"
    assert (found[2].rows, found[2].files_added, found[2].bytes_added, found[2].checkpoints, found[2].values_changed) == (
        1_200,
        2,
        3_000_000,
        1,
        3,
    )
    assert found[3].summary == "the session ended cleanly"


def test_numbers_of_one_have_a_singular() -> None:
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 1, 1_500_000)
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 1, 7, "upload")
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 1, {NULLED: 1}))

    found = commits(chain.append(MergeData(0, 7, 3, 0, (merged,), (removed,)), settled=2).inspected())

    assert found[2].summary == "1 row, 2 files (3.0 MB), 1 checkpoint, 1 value changed"
    assert found[3].summary == "rows come into the final table: 1 file with 1 final row in, 1 file out"
    assert (found[3].rows, found[3].files_removed) == (1, 1)


def test_the_size_of_the_table_is_known_after_each_block() -> None:
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 3, 7, "upload")
    chain = (
        HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2)
    )
    chain.append(add_data(5, 9), settled=3).append(Void(4), settled=3)

    table = chain.inspected()
    cut = InspectedTable(table.state, table.readable, table.blocks[3:], table.schemas)

    sizes = [(row.table_rows, row.table_bytes) for row in commits(table)]
    assert sizes == [(0, 0), (0, 0), (5, 1_500_000), (3, 7), (3, 7), (3, 7)]
    assert [(row.table_rows, row.table_bytes) for row in commits(cut)] == sizes[3:]


def test_a_block_that_readers_do_not_see_does_not_count() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(add_data(5, 9), settled=2)
    assert [row.table_rows for row in commits(chain.inspected())] == [0, 0, 5, 14]

    before = chain.state.unsettled.before  # type: ignore[union-attr]
    table = chain.inspected()
    unseen = InspectedTable(table.state, Readable(before, table.readable.live, 3), table.blocks, table.schemas)
    assert [row.table_rows for row in commits(unseen)] == [0, 0, 5, 5]


def test_a_voided_block_leaves_no_files_and_is_marked() -> None:
    table = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Void(2)).inspected()

    assert (file_totals(table), table_files(table)) == ((), ())
    assert [row.taken_back for row in commits(table)] == [False, False, True, False]
    assert commits(table)[3].summary == "takes back block 2"
    (sync,) = syncs(table.blocks)
    assert (sync.rows, sync.commits, sync.commits_taken_back) == (0, 0, 1)


def test_a_sync_has_its_duration_rows_bytes_and_end() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5, {NULLED: 2}))
    chain.append(add_data(5, 3), settled=2).append(Close(), settled=3)
    chain.append(OpenEpoch(8, 4, START + timedelta(seconds=5)), settled=3).append(add_data(8, 1), settled=3)
    chain.append(OpenEpoch(9, 4, START + timedelta(seconds=7)), settled=6).append(add_data(9, 2), settled=6)

    first, second, third = syncs(chain.blocks)

    assert (first.sync_id, first.started_at, first.duration_s, first.end) == (7, START, 4.0, SyncEnd.CLEAN)
    assert (first.rows, first.commits, first.files, first.bytes, first.values_changed) == (8, 2, 4, 6_000_000, 2)
    assert (second.sync_id, second.rows, second.duration_s, second.end) == (8, 1, 1.0, SyncEnd.UNCLEAN)
    assert (third.sync_id, third.rows, third.end, third.first_block, third.last_block) == (9, 2, SyncEnd.OPEN, 7, 8)


def test_a_sync_that_opens_its_table_twice_is_one() -> None:
    started = START + timedelta(minutes=1)
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5))
    chain.append(OpenEpoch(8, 3, started)).append(OpenEpoch(8, 3, started), settled=2).append(Close(), settled=2)

    assert [(sync.sync_id, sync.first_block, sync.last_block) for sync in syncs(chain.blocks)] == [(7, 0, 2), (8, 3, 5)]


def test_the_rest_of_a_sync_that_began_before_the_blocks_has_no_start() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Close(), settled=2)

    (sync,) = syncs(chain.blocks[2:])

    assert (sync.sync_id, sync.started_at, sync.duration_s, sync.rows, sync.end) == (7, None, None, 5, SyncEnd.CLEAN)


def test_changed_values_are_summed_by_sync_and_field() -> None:
    by_field = (ChangedValues("lines.[].quantity", "NULLED", NULLED, 3), ChangedValues("id", "NULLED", NULLED, 1))
    again = (ChangedValues("id", "NULLED", NULLED, 4),)
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 6, {NULLED: 4}, by_field=by_field))
    chain.append(add_data(6, 4, {NULLED: 4}, by_field=again), settled=2).append(Close(), settled=3)
    chain.append(OpenEpoch(8, 3, START), settled=3).append(add_data(10, 8, {NULLED: 2}), settled=3)

    found = changed_values(chain.blocks)

    assert [(row.sync_id, row.field, row.change, row.values, row.rows, row.share) for row in found] == [
        (7, "id", "NULLED", 5, 10, 0.5),
        (7, "lines.[].quantity", "NULLED", 3, 10, 0.3),
        (8, None, None, 2, 8, 0.25),
    ]
    assert {row.reason for row in found} == {NULLED}


def test_files_are_listed_by_kind_and_those_of_a_pending_generation_apart() -> None:
    seed = Seed(SEED.stream, SEED.table_id, 42, "lake/shop/orders/", ("lake/shop/orders/old.parquet",), 7, 3, START)
    chain = HandMadeChain().append(seed).append(SCHEMA).append(add_data(0, 5))
    chain.append(OpenEpoch(8, 4, START, Pending(4, 5, 8)), settled=2).append(SCHEMA_AGAIN, settled=2)
    table = chain.append(add_data(5, 3, schema_id=1), settled=2).inspected()

    assert [(row.kind.value, row.standing, row.files, row.rows, row.bytes) for row in file_totals(table)] == [
        ("raw", Standing.LIVE, 1, 5, 1_500_000),
        ("raw", Standing.PENDING, 1, 3, 1_500_000),
        ("final", Standing.LIVE, 1, 5, 1_500_000),
        ("final", Standing.PENDING, 1, 3, 1_500_000),
        ("adopted", Standing.LIVE, 1, None, None),
    ]
    assert views.facts(summary(table))["pending"] == "generation 4 waits to replace the table, begun by sync 8"
    files = table_files(table)
    assert [(file.key, file.rows, file.block) for file in files] == [
        ("lake/shop/orders/old.parquet", None, None),
        ("raw/0.parquet", 5, 2),
        ("final/0.parquet", 5, 2),
        ("raw/5.parquet", 3, 5),
        ("final/5.parquet", 3, 5),
    ]
    assert files[1].committed_at == START + timedelta(seconds=2)


KEYED = SetDataSchema(
    {
        **SCHEMA.schema,
        "primaryKey": [["id"], ["name"]],
        "cursor": [],
        "fields": [
            {"id": 0, "name": "id", "source": "id", "type": "integer", "addedIn": 0},
            {"id": 1, "name": "name", "source": "name", "type": "string", "addedIn": 0},
        ],
    }
)
KEY = (Field("id", "id", Scalar.INTEGER), Field("name", "name", Scalar.STRING))


@pytest.mark.parametrize(("spec_key", "shown"), [(KEY, ("-5, a", "7, null")), (KEY[:1], (None, None))])
def test_files_that_are_sorted_by_key_show_its_range(spec_key: tuple[Field, ...], shown: tuple[str | None, str | None]) -> None:
    spec = KeySpec(spec_key, None, None, CdcDeletion.HARD)
    first, last = encode_key([pa.array([-5, 7]), pa.array(["a", None])]).to_pylist()
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 2, 7, "upload", keys=key_range(first, last, spec))
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    chain = HandMadeChain().append(SEED).append(KEYED).append(add_data(0, 5))

    table = chain.append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2).inspected()

    assert [(file.first_key, file.last_key, file.block) for file in table_files(table) if file.kind is FileKind.FINAL] == [(*shown, 3)]


def test_files_of_partitions_show_them_and_their_keys_without_them() -> None:
    by = PartitionSpec("name", Transform.IDENTITY, "of")
    spec = KeySpec(KEY, None, None, CdcDeletion.HARD, partitioning=Partitioning(by, KEY[1]))
    meta = pa.array([{"sync_id": 0, "changes": []}] * 2, META_FIELDS[2].type)
    rows = pa.record_batch({"id": [-5, 7], "name": ["a", "a"], "_airbyte_meta": meta, "_airbyte_raw_id": ["", ""]})
    first, last = key_column(rows, spec).to_pylist()
    merged = FileEntry(FileKind.FINAL, "final/of=a/1.parquet", 2, 7, "upload", keys=key_range(first, last, spec), partition="a")
    divided = SetDataSchema({**KEYED.schema, "partition": by.to_json()})
    chain = HandMadeChain().append(SEED).append(divided).append(add_data(0, 5))
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    shown = table_files(chain.append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2).inspected())
    assert [(file.partition, file.first_key, file.last_key) for file in shown if file.kind is FileKind.FINAL] == [("a", "-5, a", "7, a")]
    assert "partition" in [cell.title for cell in views.files(shown).cells]
    assert "partition" not in [cell.title for cell in views.files([file for file in shown if file.partition is None]).cells]


ODD = {"kind": "object", "fields": [{"source": "a:b", "name": "a:b", "type": "string"}]}
TIMES = {"kind": "array", "items": "time_without_timezone"}
CONFIG = Config.parse(
    {"s3_bucket_name": "la'ke", "s3_bucket_path": "lake", "s3_bucket_region": "us-east-1", "format": {"format_type": "Parquet"}}
)


def statement(engine: SqlEngine, *columns: tuple[str, Any]) -> str:
    """The statement for a table with these columns."""
    fields = [{"id": number, "name": name, "source": name, "type": kind, "addedIn": 0} for number, (name, kind) in enumerate(columns)]
    chain = HandMadeChain().append(SEED).append(SetDataSchema({**SCHEMA.schema, "fields": fields})).append(add_data(0, 5))
    return ddl(chain.inspected(), CONFIG, engine)


@pytest.mark.parametrize(
    ("engine", "left_out"),
    [(SqlEngine.ATHENA, True), (SqlEngine.REDSHIFT, True), (SqlEngine.SPARK, False), (SqlEngine.TRINO, False)],
)
def test_columns_that_an_engine_cannot_read_are_left_out_and_named(engine: SqlEngine, left_out: bool) -> None:
    text = statement(engine, ("id", "integer"), ("odd", ODD), ("times", TIMES))

    comments = [line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("-- Left out")]
    assert comments == (["odd", "times"] if left_out else ["times"])
    assert "//la''ke/" in text


@pytest.mark.parametrize(("engine", "quoted"), [(SqlEngine.SPARK, '`a``b"c` STRING'), (SqlEngine.TRINO, '"a`b""c" varchar')])
def test_names_are_quoted(engine: SqlEngine, quoted: str) -> None:
    assert quoted in statement(engine, ('a`b"c', "string"))


def test_files_in_folders_below_the_root_are_found() -> None:
    final = FileEntry(FileKind.FINAL, "lake/shop/orders/2026/03/f.parquet", 5, 1, "upload")
    deep = msgspec.structs.replace(add_data(0, 5), files=(final,))
    chain = HandMadeChain().append(SEED).append(KEYED).append(deep)

    assert "shop/orders/*/*/*.parquet'" in ddl(chain.inspected(), CONFIG, SqlEngine.DUCKDB)
    assert "recursiveFileLookup 'true'" in ddl(chain.inspected(), CONFIG, SqlEngine.SPARK)


def test_a_table_without_data_has_no_schema_yet() -> None:
    table = HandMadeChain().append(SEED).append(UnknownEvent("Note")).inspected()

    assert (columns(table), schema_changes(table.schemas)) == ((), ())
    assert views.facts(summary(table))["settled"] == "no data yet"
    assert (commits(table)[-1].kind, commits(table)[-1].summary) == ("Note", "written by a newer version")


def test_columns_have_their_whole_types(table: InspectedTable) -> None:
    found = columns(table)

    assert found[2].type == "struct<sync_id: int64, changes: list<struct<field: string, change: string, reason: string>>>"
    assert (found[-1].column, found[-1].type) == ("lines", "list<struct<quantity: int64>>")


def test_the_schema_history_has_whole_types() -> None:
    lines = {"kind": "array", "items": {"kind": "object", "fields": [{"source": "n", "name": "n", "type": "integer"}]}}
    union = {"kind": "union", "options": ["integer", "string"]}
    change = {"kind": "Recovery", "path": "/lines", "old": lines, "new": union}
    chain = HandMadeChain().append(SEED).append(SCHEMA)
    chain.append(SetDataSchema({**SCHEMA.schema, "schemaId": 1, "version": "2-0-0", "changes": [change]}))

    first, second = schema_changes(chain.inspected().schemas)

    assert (first.schema_id, first.change, first.path) == (0, "KeyAddition", "/lines")
    assert (second.schema_id, second.version, second.block, second.columns) == (1, "2-0-0", 2, 2)
    assert (second.old, second.new) == ("array<object<n: integer>>", "union<integer, string>")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        ({"a": [1, None], "b": Decimal("1.5")}, '{"a": [1, null], "b": "1.…'),
        ("two\nlines", "two lines"),
        ("x" * 100, "x" * 25 + "…"),
    ],
)
def test_values_take_one_short_line(value: Any, text: str) -> None:
    assert views.value_text(value) == text


def test_first_rows_show_the_data_columns_that_fit() -> None:
    wide = {f"column{number}": ["v" * 40, None] for number in range(9)}
    rows = pa.table({"_airbyte_raw_id": ["r1", "r2"], "id": [1, 2], **wide})

    shown = views.first_rows(rows, 1)

    assert [cell.title for cell in shown.cells] == ["id", "column0", "column1", "column2", "and 6 more columns"]
    assert [[cell.text(row) for cell in shown.cells[:2]] for row in shown.rows] == [["1", "v" * 25 + "…"]]


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (1_000, "1.0 kB"), (2_500_000, "2.5 MB"), (12 * 10**12, "12,000.0 GB"), (None, "?")]
)
def test_sizes_use_the_unit_that_suits_them(size: int | None, text: str) -> None:
    assert words.size_text(size) == text


@pytest.mark.parametrize(("seconds", "text"), [(1.94, "1.9 s"), (61, "1 min 01 s"), (7_325, "2 h 02 min"), (None, "?")])
def test_durations_use_two_units(seconds: float | None, text: str) -> None:
    assert words.duration_text(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0.00 %"), (0.00001, "< 0.01 %"), (0.123, "12.30 %"), (2, "200.00 %")])
def test_a_share_that_is_not_zero_is_not_shown_as_zero(share: float, text: str) -> None:
    assert words.share_text(share) == text
