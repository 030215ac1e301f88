"""What the change log of a table consists of: events, each of which changed one row, and how many there were of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.stream_id import StreamId

IN_NEW, IN_OLD = 1, 2
"""The bits of Exists: the column is in the new image, in the old image."""
EXISTS = ("0", "1", "2", "3")
"""The texts of Exists."""


class Operation(Enum):
    """What an event did to its row; the value is its letter in every format."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


class BeforeImage(Enum):
    """The columns whose old values an update or a deletion shows."""

    KEY = "KEY"
    ALL = "ALL"


class AfterImage(Enum):
    """The columns whose new values an update shows."""

    UPDATED = "UPDATED"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class LogColumns:
    """What the change log of a stream shows: its data columns in the table's order, and which of them are the key. Picklable.

    `cursor` are the members of the cursor, of which an event shows those that are not null.
    """

    stream: StreamId
    fields: tuple[pa.Field[Any], ...]
    key: tuple[str, ...]
    cursor: tuple[pa.Field[Any], ...]

    @property
    def event_schema(self) -> pa.Schema:
        """A batch of events: byte i of `exists` has the bits of field i; a value stands in `new` and `old` only where its bit is set."""
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
        """A batch of rows, as snapshots have them."""
        return pa.schema(self.fields)

    @property
    def key_indices(self) -> tuple[int, ...]:
        """Where the columns of the key stand among the fields."""
        names = [field.name for field in self.fields]
        return tuple(names.index(name) for name in self.key)


@dataclass(frozen=True, slots=True)
class CountColumns:
    """The running count of each kind after each event of a batch."""

    insert: pa.Int64Array
    update: pa.Int64Array
    delete: pa.Int64Array
    replace: int

    @property
    def total(self) -> pa.Int64Array:
        """The sequence numbers of the events."""
        sequence: pa.Int64Array = pc.add(pc.add(self.insert, self.update), pc.add(self.delete, self.replace))
        return sequence

    def json(self, quote: str = '"') -> tuple[str | pa.StringArray, ...]:
        """What to put together for each event's `OperationCount` as compact JSON, with another text for its quotation marks if need be."""
        kinds = (("{", "insert", self.insert), (",", "update", self.update), (",", "delete", self.delete))
        pieces = ((f"{before}{quote}{kind}Count{quote}:", numbers.cast(pa.string())) for before, kind, numbers in kinds)
        return *chain.from_iterable(pieces), f",{quote}replaceCount{quote}:{self.replace}}}"


class RunningCount:
    """Counts the events of a file, batch after batch."""

    def __init__(self, start: OperationCount) -> None:
        self.count = start

    def advance(self, op: pa.StringArray) -> CountColumns:
        """Count a batch; returns the counts after each of its events."""
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
    """The Exists of each column over the events of a batch, as uint8."""
    width = exists.type.byte_width
    data = np.frombuffer(exists.buffers()[1] or b"", np.uint8)[exists.offset * width : (exists.offset + len(exists)) * width]
    return list(np.ascontiguousarray(data.reshape(-1, width).T))
