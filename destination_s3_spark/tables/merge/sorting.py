"""Sorting of stored rows into scratch runs, which a merge reads like landed runs.

It is needed for files that are not sorted by the table's key: the table was not deduplicated before, or had another key. A Spark task runs
`sort_rows` for each stored file. The runs are visible objects that no block names. The caller has to delete them, even after a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.decoding.keyed_ids import carried_digest, keyed_id
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.runs.keys import RAW_ID, KeySpec, unfit_rows
from destination_s3_spark.tables.runs.sorted_file import RunFile
from destination_s3_spark.tables.runs.staged_file import visible_run
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.updates.resources import TaskResources

COPIES = 3
"""Number of copies of a run's rows in memory while the run is sorted and written."""

_Rows = tuple[pa.RecordBatch, pa.RecordBatch]
"""Rows in the payload columns of a run, and the same rows with the key, cursor and deletion columns."""


@dataclass(frozen=True, slots=True)
class SortTask:
    """A stored file to sort into runs of `payload` columns, under the keys `<scratch><number>.parquet`.

    The plan of `stored` types the columns of `spec`. If `payload` is the schema of raw rows, the file must hold raw rows.
    """

    stored: Stored
    payload: pa.Schema
    spec: KeySpec
    scratch: str
    resources: TaskResources


def sort_rows(task: SortTask) -> tuple[FileEntry, ...]:
    """Write the runs and return them in the order of their rows in the source. Arrivals are the positions of rows in the source.

    Raises ConfigError, DataError or TransientError.
    """
    runs: list[FileEntry] = []
    first = 0
    for batches in _portions(_rows(task), task.resources.budget_bytes // COPIES):
        run = visible_run(_staged(task, f"{task.scratch}{len(runs)}.parquet", batches, first), task.resources.s3)
        runs.append(run)
        first += run.rows
    return tuple(runs)


def _rows(task: SortTask) -> Iterator[_Rows]:
    with present(task.stored.file.key, task.resources.s3):
        for raw, typed in task.stored.rows(task.resources.s3):
            found = typed if raw is not None else _told_apart(typed, task)
            yield (raw if raw is not None and task.payload == RAW_SCHEMA else found), found


def _told_apart(rows: pa.RecordBatch, task: SortTask) -> pa.RecordBatch:
    """Make rows with an unfit key distinct, if the text of their records is not available.

    A row keeps the digest that its id carries if it was stored under the same key. Otherwise it gets a digest of its own.
    """
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
    """Yield the batches in lists of about `size` bytes."""
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


def _staged(task: SortTask, key: str, rows: Iterable[_Rows], first: int) -> FileEntry:
    with StagedFileSink(task.resources.s3, key) as sink:
        run = RunFile(sink, task.payload, task.spec, first)
        try:
            for batch, typed in rows:
                run.write(batch, typed)
            written = run.close()
        except BaseException:
            run.abandon()
            raise
        return FileEntry.staged(FileKind.DELTA, sink.stage(), written)
