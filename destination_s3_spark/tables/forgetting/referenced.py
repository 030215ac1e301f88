"""Values of the rows to forget on which rows of other streams hang. Spark tasks run `collect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.decoding.value_text import value_texts
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.storage.ranged import present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.forgetting.wanted import Either, Wanted
from destination_s3_spark.tables.stored.foreign import Source
from destination_s3_spark.tables.updates.steps import Steps, Work

if TYPE_CHECKING:  # a cluster's executors have no pydantic
    from destination_s3_spark.tables.forgetting.course import Forgetting


@dataclass(frozen=True, slots=True)
class CollectTask:
    """A file with rows to forget, and the columns whose values are collected, those that belong together in one tuple."""

    stored: Source
    wanted: Wanted | Either
    columns: Sequence[tuple[Field, ...]]
    s3: S3Settings


ReferencedValues = dict[tuple[str, ...], set[tuple[bytes, ...]]]
"""The JSON texts of values of a row by the JSON keys of their columns. Rows with a null are left out."""


def collect(task: CollectTask) -> ReferencedValues:
    """Collect the values. Raises DataError for a file that is gone, ConfigError or TransientError."""
    values: ReferencedValues = {}
    with present(task.stored.file.key, task.s3):
        for _, typed in task.stored.rows(task.s3):
            add_values(values, task.columns, typed.filter(task.wanted.mask(typed)))
    return values


def add_values(values: ReferencedValues, columns: Sequence[tuple[Field, ...]], rows: pa.RecordBatch) -> None:
    """Add the values of these columns of typed rows."""
    for fields in columns:
        texts = zip(*(value_texts(contiguous(rows[field.name]), field.type) for field in fields), strict=True)
        values.setdefault(tuple(field.source for field in fields), set()).update(row for row in texts if None not in row)


def referenced(forgetting: Forgetting, columns: Sequence[tuple[Field, ...]]) -> Steps[ReferencedValues]:
    """Collect the values that the rows to forget have, or had in an earlier version. The search must have ended."""
    files = [(file, wanted) for file in forgetting.files if file.kind is not FileKind.TOMBSTONE and (wanted := forgetting.meant(file))]
    stored = forgetting.stored([file for file, _ in files])
    tasks = [CollectTask(one, wanted, columns, forgetting.resources.task.s3) for one, (_, wanted) in zip(stored, files, strict=True)]
    values: ReferencedValues = {tuple(field.source for field in fields): set() for fields in columns}
    done = yield from Work(collect, tasks, lambda task: task.stored.file.bytes).results()
    for found in (*done, *(yield from forgetting.log.values(columns))):
        for names, texts in found.items():
            values[names] |= texts
    return values
