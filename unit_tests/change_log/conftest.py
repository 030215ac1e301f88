"""Events as a test writes them down, and the bytes of a file that has them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import IN_NEW, IN_OLD, LogColumns
from destination_s3_spark.change_log.options import ChangeLogOptions, open_changes, open_snapshot
from destination_s3_spark.stream_id import StreamId

NO_COUNT = OperationCount()

EventRow = tuple[str, dict[str, Any], dict[str, Any], str]
"""Op, new image, old image, cursor as JSON. A column that is not in the image has no member."""

CURSOR = {
    "lsn": pa.int64(),
    "file": pa.string(),
    "_ab_cdc_lsn": pa.int64(),
    # And those of Arcion's page. It has `dscId` in two events and `dscI` in the third.
    "extractorId": pa.int64(),
    "nodeID": pa.string(),
    "timestamp": pa.int64(),
    "extractionTimestamp": pa.int64(),
    "dscId": pa.int64(),
    "dscI": pa.int64(),
    "mutId": pa.int64(),
    "partNum": pa.int64(),
    "v": pa.int64(),
}
"""The members that cursors of tests have, in their order."""


@dataclass(frozen=True)
class Log:
    """The log of a stream with these columns."""

    fields: Sequence[tuple[str, pa.DataType]]
    key: Sequence[str]
    options: ChangeLogOptions = field(default_factory=ChangeLogOptions)
    stream: StreamId = StreamId("shop", "users")  # noqa: RUF009 (a tuple)

    @property
    def columns(self) -> LogColumns:
        return LogColumns(self.stream, tuple(starmap(pa.field, self.fields)), tuple(self.key), tuple(starmap(pa.field, CURSOR.items())))

    def events(self, rows: Iterable[EventRow]) -> pa.RecordBatch:
        names = [name for name, _ in self.fields]
        listed = [
            {
                "op": op,
                "cursor": json.loads(cursor, object_pairs_hook=_members),
                "position": position,
                "exists": bytes(IN_NEW * (name in new) + IN_OLD * (name in old) for name in names),
                "new": new,
                "old": old,
            }
            for position, (op, new, old, cursor) in enumerate(rows)
        ]
        return pa.RecordBatch.from_pylist(listed, schema=self.columns.event_schema)

    def rows(self, rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), schema=self.columns.row_schema)

    def changes_file(self, batches: Iterable[pa.RecordBatch], start: OperationCount = NO_COUNT) -> bytes:
        sink = io.BytesIO()
        file = open_changes(sink, self.columns, self.options, start)
        return _closed(sink, file, batches)

    def snapshot_file(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        sink = io.BytesIO()
        return _closed(sink, open_snapshot(sink, self.columns, self.options), batches)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert [name for name, _ in pairs] == [name for name in CURSOR if name in dict(pairs)]
    return dict(pairs)


def _closed(sink: io.BytesIO, file: Any, batches: Iterable[pa.RecordBatch]) -> bytes:
    rows = 0
    for batch in batches:
        file.write(batch)
        rows += batch.num_rows
    assert file.close().rows == rows
    return sink.getvalue()


@pytest.fixture(scope="session")
def log() -> Callable[..., Log]:
    """`log(fields, key, options)`: see Log."""
    return Log
