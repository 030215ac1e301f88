"""Events of a table's change log, each a change of one row, and their counts by kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.stream_id import StreamId

IN_NEW, IN_OLD = 1, 2
"""Bits of Exists: the column is in the new image, or in the old image."""
EXISTS = ("0", "1", "2", "3")
"""Texts of Exists, indexed by its bits."""


class Operation(Enum):
    """The operation of an event on its row. The value is its letter in every format."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


class BeforeImage(Enum):
    """The columns whose old values an update or delete event shows."""

    KEY = "KEY"
    ALL = "ALL"


class AfterImage(Enum):
    """The columns whose new values an update event shows."""

    UPDATED = "UPDATED"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns in a stream's change log: its data columns in the table's order, and the names of the key columns. Picklable.

    `cursor`: the members of the cursor. An event shows only those that are not null.
    """

    stream: StreamId
    fields: tuple[pa.Field[Any], ...]
    key: tuple[str, ...]
    cursor: tuple[pa.Field[Any], ...]

    @property
    def event_schema(self) -> pa.Schema:
        """Schema of a batch of events. Byte i of `exists` has the bits of field i; `new` and `old` hold a value only if its bit is set."""
        row = pa.struct(self.fields)
        return pa.schema(
            [
                pa.field("op", pa.string(), nullable=False),
                pa.field("cursor", pa.struct(self.cursor), nullable=False),
                pa.field("position", pa.int64(), nullable=False),
                pa.field("exists", pa.binary(max(1, len(self.fields))), nullable=False),
                pa.field("new", row, nullable=False),
                pa.field("old", row, nullable=False),
            ]
        )

    @property
    def row_schema(self) -> pa.Schema:
        """Schema of a batch of rows in a snapshot."""
        return pa.schema(self.fields)

    @property
    def key_indices(self) -> tuple[int, ...]:
        names = [field.name for field in self.fields]
        return tuple(names.index(name) for name in self.key)


@dataclass(frozen=True, slots=True)
class CountColumns:
    """The running counts by kind after each event of a batch."""

    insert: pa.Int64Array
    update: pa.Int64Array
    delete: pa.Int64Array
    replace: int

    @property
    def total(self) -> pa.Int64Array:
        """Sequence numbers of the events."""
        sequence: pa.Int64Array = pc.add(pc.add(self.insert, self.update), pc.add(self.delete, self.replace))
        return sequence

    def json(self, quote: str = '"') -> tuple[str | pa.StringArray, ...]:
        """Return the `text_join` parts of each event's `OperationCount` as compact JSON, with `quote` as its quotation mark."""
        kinds = (("{", "insert", self.insert), (",", "update", self.update), (",", "delete", self.delete))
        parts = ((f"{before}{quote}{kind}Count{quote}:", numbers.cast(pa.string())) for before, kind, numbers in kinds)
        return *chain.from_iterable(parts), f",{quote}replaceCount{quote}:{self.replace}}}"


class RunningCount:
    """The count of a file's events, advanced batch by batch."""

    def __init__(self, start: OperationCount) -> None:
        self.count = start

    def advance(self, op: pa.StringArray) -> CountColumns:
        """Count the events of a batch and return the counts after each event."""
        before = self.count
        insert, update, delete = (
            pc.cumulative_sum(pc.equal(op, operation.value).cast(pa.int64()), start=start)
            for operation, start in (
                (Operation.INSERT, before.insert_count),
                (Operation.UPDATE, before.update_count),
                (Operation.DELETE, before.delete_count),
            )
        )
        if len(op):
            self.count = OperationCount(insert[-1].as_py(), update[-1].as_py(), delete[-1].as_py(), before.replace_count)
        return CountColumns(insert, update, delete, before.replace_count)


def exists_columns(exists: pa.FixedSizeBinaryArray) -> list[np.ndarray[Any, Any]]:
    """Return each column's Exists over the events of a batch, as uint8."""
    width = exists.type.byte_width
    data = np.frombuffer(exists.buffers()[1] or b"", np.uint8)[exists.offset * width : (exists.offset + len(exists)) * width]
    return list(np.ascontiguousarray(data.reshape(-1, width).T))
