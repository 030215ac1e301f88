"""Hand-made chains of one table for tests of what `inspect` shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from destination_s3_spark.chain.blocks import Block, block_hash, encode
from destination_s3_spark.chain.events import (
    AddData,
    ChangedValues,
    Event,
    OffsetInterval,
    OpenEpoch,
    Seed,
    SetDataSchema,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import fold
from destination_s3_spark.chain.settle import Readable
from destination_s3_spark.chain.state import Checkpoint, TableState
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.decoding.changes import Reason
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.stream_id import StreamId
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


def nulled(values: int, field: str | None = None) -> ChangedValues:
    return ChangedValues(field, "NULLED", NULLED, values)


def add_data(start: int, rows: int, *changed: ChangedValues, schema_id: int = 0) -> AddData:
    files = tuple(
        FileEntry(kind, f"{kind.value}/{start}.parquet", rows, 1_500_000, "upload", ("etag",)) for kind in (FileKind.RAW, FileKind.FINAL)
    )
    checkpoint = Checkpoint("00", rows, "00", 3)
    interval = OffsetInterval(start, start + rows - 1)
    return AddData(schema_id, 7, 3, start - 1 if start else None, interval, files, (checkpoint,), changed)


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
