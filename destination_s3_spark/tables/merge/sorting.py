"""Stored rows that are not sorted by the table's key -> sorted scratch runs, which a merge takes like those that were landed.

For a table that was not deduplicated before, or by another key. A Spark task runs `sort_rows` for a stored file. The runs are visible
objects that no block names, and the caller's to delete, also after a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import DataFile, FileEntry, FileKind
from destination_s3_spark.decoding.keyed_ids import carried_digest, keyed_id
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.runs.keys import RAW_ID, KeySpec, unfit_rows
from destination_s3_spark.tables.runs.sorted_file import RunFile
from destination_s3_spark.tables.runs.staged_file import visible_run
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import Stored

COPIES = 3
"""How often a run's rows are in memory while it is sorted and written."""

_Rows = tuple[pa.RecordBatch, pa.RecordBatch]
"""Rows as runs have them, and the same rows with the columns of the key."""


@dataclass(frozen=True, slots=True)
class SortTask:
    """A stored file whose rows become runs of `payload` columns, under the keys `<scratch><number>.parquet`.

    The plan of `stored` types the columns that `spec` goes by. With the columns of raw rows as payload the file must be one of raw rows.
    `budget_bytes` is for rows in Arrow's memory.
    """

    stored: Stored
    payload: pa.Schema
    spec: KeySpec
    scratch: str
    budget_bytes: int
    s3: S3Settings


def sort_rows(task: SortTask) -> tuple[FileEntry, ...]:
    """Write the runs, and return them in the order of their rows in the source; arrivals count the source's rows.

    Raises ConfigError, DataError or TransientError.
    """
    runs: list[FileEntry] = []
    first = 0
    for batches in _portions(_rows(task), task.budget_bytes // COPIES):
        run = visible_run(_staged(task, f"{task.scratch}{len(runs)}.parquet", batches, first), task.s3)
        runs.append(run)
        first += run.rows
    return tuple(runs)


def _rows(task: SortTask) -> Iterator[_Rows]:
    with present(task.stored.file.key, task.s3):
        for raw, typed in task.stored.rows(task.s3):
            found = typed if raw is not None else _told_apart(typed, task)
            yield (raw if raw is not None and task.payload == RAW_SCHEMA else found), found


def _told_apart(rows: pa.RecordBatch, task: SortTask) -> pa.RecordBatch:
    """Rows without their records' text, told apart where their key did not fit: by the key they were stored by, or each on its own."""
    keys = task.stored.file.keys
    same_key = keys is not None and keys.of == task.spec.fingerprint
    new = {row: raw_id for row, raw_id in unfit_rows(rows, task.spec) if not (same_key and carried_digest(raw_id))}
    if not new:
        return rows
    ids = rows[RAW_ID].to_pylist()
    for row, raw_id in new.items():
        ids[row] = keyed_id(raw_id, raw_id.encode())
    return rows.set_column(rows.schema.get_field_index(RAW_ID), rows.schema.field(RAW_ID), pa.array(ids, pa.string()))


def _portions(rows: Iterable[_Rows], size: int) -> Iterator[list[_Rows]]:
    """The batches in lists of about this many bytes."""
    portion: list[_Rows] = []
    taken = 0
    for batch in rows:
        portion.append(batch)
        taken += batch[0].nbytes
        if taken >= size:
            yield portion
            portion, taken = [], 0
    if portion:
        yield portion


def _staged(task: SortTask, key: str, rows: Iterable[_Rows], first: int) -> DataFile:
    with StagedFileSink(task.s3, key) as sink:
        run = RunFile(sink, task.payload, task.spec, first)
        try:
            for batch, typed in rows:
                run.write(batch, typed)
            count = run.close()
        except BaseException:
            run.abandon()
            raise
        return DataFile(FileKind.DELTA, sink.stage(), count, run.keys)
