"""Rows of a raw table as the records they once were, to be typed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.changes import Change
from destination_s3_spark.decoding.envelope import Meta, SourceChange, Unwrapped


def row_runs(texts: pa.StringArray, run_bytes: int) -> Iterator[tuple[int, int]]:
    """Consecutive rows as (first, count), each run of about `run_bytes` of text; a longer text is a run of its own."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64))
    first = 0
    while first < len(texts):
        before = int(ends[first - 1]) if first else 0
        stop = min(int(np.searchsorted(ends, before + run_bytes)) + 1, len(texts))
        yield first, stop - first
        first = stop


def records_of(raw: pa.RecordBatch, first: int) -> Unwrapped:
    """The records of rows of `schema.arrow.RAW_SCHEMA`; `first` is the ordinal in the block of the first of them."""
    texts: list[bytes] = raw["_airbyte_data"].cast(pa.binary()).fill_null(b"").to_pylist()
    emitted_at = raw["_airbyte_extracted_at"].cast(pa.int64()).to_numpy()
    metas: dict[int, Meta] = {}
    for change in stored_changes(raw["_airbyte_meta"]):
        of_row = metas.setdefault(first + change.row, Meta([])).changes
        if of_row is not None:
            of_row.append(SourceChange(change.field, change.change, change.reason))
    return Unwrapped(b"\n".join(texts), texts, emitted_at, list(metas.items()))


def stored_changes(meta: pa.StructArray) -> list[Change]:
    """The entries of `_airbyte_meta.changes`, in the order of the rows; they have no order of their own (see `changes.Change`)."""
    lists: pa.ListArray[Any] = meta.field("changes")
    rows = pc.list_parent_indices(lists).to_pylist()
    return [Change(row, (), *entry.values()) for row, entry in zip(rows, lists.flatten().to_pylist(), strict=True)]
