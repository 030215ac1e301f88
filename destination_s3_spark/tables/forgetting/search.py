"""Search for the rows to forget in a table's files, and for values of theirs on which rows of other streams hang. Spark tasks run it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.decoding.value_text import value_texts
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.storage.ranged import opened, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.forgetting.wanted import FieldTexts, Wanted, is_one_of
from destination_s3_spark.tables.runs.keys import KEY, KeySpec, after, is_unfit, key_column
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFile
from destination_s3_spark.tables.stored.foreign import Source


@dataclass(frozen=True, slots=True)
class Found:
    """The number of rows found in a file, their keys if they were asked for, and the number of rows read."""

    rows: int
    keys: frozenset[bytes] = frozenset()
    read: int = 0


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A file that is read whole. `spec`: of the keys to return."""

    stored: Source
    wanted: Wanted
    spec: KeySpec | None
    s3: S3Settings


@dataclass(frozen=True, slots=True)
class SortedSearchTask:
    """A sorted file, of which only the row groups and columns are read that tell whether it has one of the keys."""

    file: FileEntry
    form: MergeForm
    keys: frozenset[bytes]
    s3: S3Settings


def search(task: SearchTask) -> Found:
    """Find the rows. Raises DataError for a file that is gone, ConfigError or TransientError."""
    rows, read, keys = 0, 0, set[bytes]()
    with present(task.stored.file.key, task.s3):
        for _, typed in task.stored.rows(task.s3):
            found = typed.filter(task.wanted.mask(typed))
            rows, read = rows + found.num_rows, read + typed.num_rows
            if task.spec is not None and found.num_rows:
                keys.update(key_column(found, task.spec).to_pylist())
    return Found(rows, frozenset(keys), read)


def search_sorted(task: SortedSearchTask) -> Found:
    """Find the rows with the keys, mostly from the columns of the key alone. Raises as `search`."""
    low, high = min(task.keys), after(max(task.keys))
    with opened(task.file.key, task.file.bytes, task.s3) as source:
        file = SortedFile(source, task.file.kind, task.form)
        rows = None if any(is_unfit(key, task.form.spec) for key in task.keys) else _count_of(file.keys(low, high), task.keys)
        if rows is None:
            rows = sum(_count(is_one_of(found[KEY], task.keys)) for found in file.read(low, high))
    return Found(rows)


def _count_of(found: Iterable[pa.BinaryArray | None], keys: frozenset[bytes]) -> int | None:
    """Count the rows with some keys, or return None if they are not known of all rows."""
    rows = 0
    for part in found:
        if part is None:
            return None
        rows += _count(is_one_of(part, keys))
    return rows


def _count(flags: pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]) -> int:
    return pc.sum(flags).as_py() or 0


@dataclass(frozen=True, slots=True)
class CollectTask:
    """A file with rows to forget, and the columns whose values are collected, those that belong together in one tuple."""

    stored: Source
    wanted: Wanted
    columns: Sequence[tuple[Field, ...]]
    s3: S3Settings


def collect(task: CollectTask) -> FieldTexts:
    """Collect the values of rows without a null. Raises DataError for a file that is gone, ConfigError or TransientError."""
    values: FieldTexts = {}
    with present(task.stored.file.key, task.s3):
        for _, typed in task.stored.rows(task.s3):
            add_values(values, task.columns, typed.filter(task.wanted.mask(typed)))
    return values


def add_values(values: FieldTexts, columns: Sequence[tuple[Field, ...]], rows: pa.RecordBatch) -> None:
    for fields in columns:
        texts = zip(*(value_texts(contiguous(rows[field.name]), field.type) for field in fields), strict=True)
        values.setdefault(tuple(field.source for field in fields), set()).update(row for row in texts if None not in row)
