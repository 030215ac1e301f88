from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.blocks import Block, block_hash, encode
from destination_s3_spark.chain.events import AddData, Close, Event, OffsetInterval, OpenEpoch, Seed, SetDataSchema, UnknownEvent, Void
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import fold
from destination_s3_spark.chain.readable import Readable
from destination_s3_spark.chain.state import Checkpoint, Pending, TableState
from destination_s3_spark.cli import report
from destination_s3_spark.cli.inspection import InspectedTable, ValueChange
from destination_s3_spark.cli.report import Align
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.stream_id import StreamId
from unit_tests.chain.built_chain import live_files

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


def add_data(start: int, rows: int, changes: dict[str, int], schema_id: int = 0) -> AddData:
    files = tuple(
        FileEntry(kind, f"{kind.value}/{start}.parquet", rows, 1_500_000, "upload", ("etag",)) for kind in (FileKind.RAW, FileKind.FINAL)
    )
    checkpoint = Checkpoint("00", rows, "00", 3)
    return AddData(schema_id, 7, 3, start - 1 if start else None, OffsetInterval(start, start + rows - 1), files, (checkpoint,), changes)


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
        block = Block(len(self.blocks), previous, START, epoch, "nonce", settled, event)
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
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 1_200, {"DESTINATION_SERIALIZATION_ERROR": 3}))
    return chain.append(Close(), settled=2).inspected()


def test_a_grid_aligns_its_columns() -> None:
    text = report.grid((("name", Align.LEFT), ("rows", Align.RIGHT)), [("orders", "7"), ("a", "1,000")])

    assert text.splitlines() == ["name     rows", "──────  ─────", "orders      7", "a       1,000"]


def test_a_grid_is_never_wider_than_a_line() -> None:
    text = report.grid((("a", Align.LEFT), ("b", Align.LEFT)), [("x" * 30, "y" * 200)])

    assert max(map(len, text.splitlines())) == report.WIDTH
    assert text.endswith("yyy…")


def test_the_overview_tells_final_and_raw_files_apart(table: InspectedTable) -> None:
    header, _, row = report.overview([table]).splitlines()

    assert header.split() == ["table", "generation", "rows", "columns", "files", "size", "raw", "files", "raw", "size"]
    assert row.split() == ["shop.orders", "3", "1,200", "6", "1", "1.5", "MB", "1", "1.5", "MB"]


def test_the_chain_has_a_line_per_block_that_says_what_it_did(table: InspectedTable) -> None:
    lines = report.chain(table).splitlines()

    assert [line.split(maxsplit=4)[3] for line in lines[2:]] == ["Seed", "SetDataSchema", "AddData", "Close"]
    assert lines[2].split(maxsplit=3)[:3] == ["0", "2026-03-01", "12:30:00"]
    assert lines[2].endswith("table shop.orders begins, sync 7, generation 3")
    assert lines[3].split(maxsplit=4)[4].startswith("schema 0, version 1-0-0: 2 data columns; KeyAddition /")
    assert lines[4].endswith("1,200 rows, 2 files (3.0 MB), 1 checkpoint, 3 changed")
    assert lines[5].endswith("the sync ended cleanly")


def test_the_state_of_a_closed_table(table: InspectedTable) -> None:
    facts = dict(line.split("  ", 1) for line in report.table_state(table).splitlines())
    facts = {name: value.strip() for name, value in facts.items()}

    assert facts == {
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
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5, {}))
    whole = report.table_state(chain.inspected())
    chain.left_out = 2
    text = report.table_state(chain.inspected())

    assert "block 2 is written and all its files are there: the next sync or `repair` finishes it" in whole
    assert "block 2 is written, its files are not all there and not shown here" in text
    assert "not yet, or not cleanly" in text


def test_files_are_listed_by_kind_and_those_of_a_pending_generation_apart() -> None:
    seed = Seed(SEED.stream, SEED.table_id, 42, "lake/shop/orders/", ("lake/shop/orders/old.parquet",), 7, 3, START)
    chain = HandMadeChain().append(seed).append(SCHEMA).append(add_data(0, 5, {}))
    chain.append(OpenEpoch(8, 4, START, Pending(4, 5, 8)), settled=2).append(SCHEMA_AGAIN, settled=2).append(
        add_data(5, 3, {}, 1), settled=2
    )

    table = chain.inspected()

    cells = [line.replace(", ", ",").split() for line in report.files(table).splitlines()[2:]]
    assert cells == [
        ["raw", "1", "5", "1.5", "MB"],
        ["raw,pending", "1", "3", "1.5", "MB"],
        ["final", "1", "5", "1.5", "MB"],
        ["final,pending", "1", "3", "1.5", "MB"],
        ["adopted", "1", "?", "?"],
    ]
    assert "generation 4 waits to replace the table, begun by sync 8" in report.table_state(table)


def test_a_voided_block_leaves_no_files_and_is_told() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5, {}))

    table = chain.append(Void(2)).inspected()

    assert report.files(table) == "No files."
    assert report.chain(table).splitlines()[-1].endswith("takes back block 2")


def test_a_table_without_data_has_no_schema_yet() -> None:
    table = HandMadeChain().append(SEED).append(UnknownEvent("Note")).inspected()

    assert report.columns(table) == "No schema yet."
    assert "no data yet" in report.table_state(table)
    assert report.chain(table).splitlines()[-1].split() == ["1", "2026-03-01", "12:30:00", "Note", "written", "by", "a", "newer", "version"]


def test_columns_show_nested_types(table: InspectedTable) -> None:
    assert report.columns(table).splitlines()[-1].split(maxsplit=1) == ["lines", "list<struct<quantity: int64>>"]


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
    assert report.value_text(value) == text


def test_first_rows_show_the_data_columns_that_fit() -> None:
    wide = {f"column{number}": ["v" * 40, None] for number in range(9)}
    rows = pa.table({"_airbyte_raw_id": ["r1", "r2"], "id": [1, 2], **wide})

    lines = report.first_rows(rows, 1).splitlines()

    assert lines[0].split() == ["id", "column0", "column1", "column2"]
    assert len(lines) == 4
    assert lines[-1] == "… and 6 more columns"


def test_changes_show_counts_and_one_example() -> None:
    text = report.changes([ValueChange("lines.[].quantity", "NULLED", "DESTINATION_SERIALIZATION_ERROR", "lines.[3].quantity", 1_234)])

    assert text.splitlines()[-1].split() == [
        "lines.[].quantity",
        "NULLED",
        "DESTINATION_SERIALIZATION_ERROR",
        "1,234",
        "lines.[3].quantity",
    ]


def test_no_changes_is_said_in_words() -> None:
    assert report.changes([]) == "Every value fitted its declared type."


@pytest.mark.parametrize(("size", "text"), [(999, "999 B"), (1_000, "1.0 kB"), (2_500_000, "2.5 MB"), (12 * 10**12, "12,000.0 GB")])
def test_sizes_use_the_unit_that_suits_them(size: int, text: str) -> None:
    assert report.size_text(size) == text
