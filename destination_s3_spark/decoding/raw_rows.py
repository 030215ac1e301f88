"""Conversion of raw table rows back to records, so that they can be typed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.decoding.changes import Change
from destination_s3_spark.decoding.envelope import Meta, SourceChange, Unwrapped


def row_runs(texts: pa.StringArray, run_bytes: int) -> Iterator[tuple[int, int]]:
    """Split the rows into runs of about `run_bytes` of text and yield each as (first row, count).

    A text longer than `run_bytes` ends its run.
    """
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64))
    first = 0
    while first < len(texts):
        before = int(ends[first - 1]) if first else 0
        stop = min(int(np.searchsorted(ends, before + run_bytes)) + 1, len(texts))
        yield first, stop - first
        first = stop


def records_of(raw: pa.RecordBatch, first: int) -> Unwrapped:
    """Return the records of raw rows (`schema.arrow.RAW_SCHEMA`). `first` is the ordinal in the block of the first row."""
    texts: list[bytes] = raw["_airbyte_data"].cast(pa.binary()).fill_null(b"").to_pylist()
    emitted_at = raw["_airbyte_extracted_at"].cast(pa.int64()).to_numpy()
    metas: dict[int, Meta] = {}
    for change in stored_changes(raw["_airbyte_meta"]):
        of_row = metas.setdefault(first + change.row, Meta([])).changes
        if of_row is not None:
            of_row.append(SourceChange(change.field, change.change, change.reason))
    return Unwrapped(b"\n".join(texts), texts, emitted_at, list(metas.items()))


def stored_changes(meta: pa.StructArray) -> list[Change]:
    """Return the entries of `_airbyte_meta.changes` by row, with an empty `order` (see `changes.Change`)."""
    lists: pa.ListArray[Any] = meta.field("changes")
    rows = pc.list_parent_indices(lists).to_pylist()
    return [Change(row, (), *entry.values()) for row, entry in zip(rows, lists.flatten().to_pylist(), strict=True)]
