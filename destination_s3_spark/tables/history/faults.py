"""Faults of histories, found in their rows beside those of the table: overlaps, several valid versions of a key, and rows without one.

All files are in the order of the same key, so they are read side by side, a few megabytes of each at a time. Only the columns of the key
and the times of versions are read. Nothing that is found names a value of a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.tables.columns.partitioning import partitioning_of
from destination_s3_spark.tables.columns.row_plan import key_spec
from destination_s3_spark.tables.columns.validity import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_TO, VALIDITY
from destination_s3_spark.tables.history.versions import sorted_by_time
from destination_s3_spark.tables.runs.keys import META, OFFSET, RAW_ID, CdcDeletion, lower
from destination_s3_spark.tables.runs.merged_rows import READERS, RowStream, complete_rows
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFile
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT, OPENED_OFFSET, STORED_OFFSET, Flags, Indices, Ranking
from destination_s3_spark.tables.stream_table import recorded_stream
from destination_s3_spark.wording import counted

READ_AT_ONCE_BYTES = 4 * 2**20
"""Memory for the rows that are read of a file at a time."""
LOOKED_AT_BYTES = 16 * 2**20
"""Memory for the rows that are looked at together."""
_ALWAYS, _NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def history_faults(store: ObjectStore, state: TableState, live: LiveFiles, keys: Mapping[str, KeyRange]) -> Iterator[str]:
    """Yield what is wrong with the rows of each history in the order of the table's key. `keys` are the bounds of files that have rows.

    The history that goes on must have a valid version of each row of the table, and of no other. Raises what reading a file raises.
    """
    form = _form(state)
    if form is None:
        return
    mark = state.contents.history
    of_table = live.settled(FileKind.FINAL)
    for number in sorted({file.history or 0 for file in live.of(*HISTORY_KINDS)}):
        versions = [file for file in live.of(*HISTORY_KINDS) if file.history == number]
        goes_on = mark is not None and mark.number == number
        read = [file for file in (*versions, *(of_table if goes_on else ())) if file.key in keys]
        if all(file.sorted_by == form.spec.fingerprint for file in read):
            found = _Faults(None if form.spec.deleted_at is None else form.spec.deleted_at.name)
            for rows in _rows(store, form, read, keys):
                found.look(rows, beside_table=goes_on)
            yield from found.told(number)


def _times(values: pa.ChunkedArray[Any], null: int) -> Indices:
    return np.asarray(contiguous(values).cast(pa.int64()).fill_null(null))


def _is_live(rows: pa.Table, deleted_at: str | None) -> Flags:
    """Flag the rows that are not softly deleted. Those have no valid version."""
    return np.ones(len(rows), np.bool_) if deleted_at is None else np.asarray(contiguous(rows[deleted_at]).is_null())


def _form(state: TableState) -> MergeForm | None:
    """Return the form in which keys and times are read, or None for a table that has no key.

    A recovered column is of a table that appends: its histories have ended, and have their keys in the base column.
    """
    schema = state.schema or {}
    if not schema.get("primaryKey"):
        return None
    columns = from_event(schema)
    stream, _ = recorded_stream(state.identity.stream, schema, state.contents.generation)
    key = [columns.column(path[0]) for path in stream.primary_key]
    if any(column is not None and column.recovered_from is not None for column in key):
        return None
    try:
        partitioning = partitioning_of(stream, columns, ParquetOptions())
        spec = replace(key_spec(stream, columns, CdcDeletion.HARD, of_text=False, partitioning=partitioning), cursor=None)
    except ConfigError:
        return None
    names = {RAW_ID, EXTRACTED_AT, META, *(one.name for one in spec.fields)}
    payload = pa.schema([*(column for column in columns.columns if column.name in names), *(one.with_nullable(True) for one in VALIDITY)])
    return MergeForm(payload, spec)


def _rows(store: ObjectStore, form: MergeForm, files: Sequence[FileEntry], keys: Mapping[str, KeyRange]) -> Iterator[pa.Table]:
    """Yield all rows with all rows of a key in the same table, in the order of the keys."""
    with ThreadPoolExecutor(READERS, "rows") as pool:
        streams = [RowStream(_read(store, form, file), pool, lower(keys[file.key])) for file in files]
        yield from complete_rows(streams, LOOKED_AT_BYTES)


def _read(store: ObjectStore, form: MergeForm, file: FileEntry) -> Iterator[pa.Table]:
    with RangedFile(store, file.key, file.bytes) as source:
        yield from SortedFile(source, file.kind, form).read(portion_bytes=READ_AT_ONCE_BYTES)


@dataclass(slots=True)
class _Faults:
    """The numbers of keys with each fault. `deleted_at`: the column with the time of a soft deletion, if there is one."""

    deleted_at: str | None
    counts: dict[str, int] = field(default_factory=dict)

    def look(self, rows: pa.Table, *, beside_table: bool) -> None:
        """Count the faults of some keys. `rows` must have all of theirs."""
        rows = sorted_by_time(rows)
        group: Indices = np.cumsum(Ranking.of_ranked(rows).first) - 1
        offsets = np.asarray(contiguous(rows[OFFSET]))
        valid, row = offsets == OPENED_OFFSET, offsets == STORED_OFFSET
        since, until = _times(rows[VALID_FROM], _ALWAYS), _times(rows[VALID_TO], _NEVER)
        follows = np.append(False, (group[1:] == group[:-1]) & ~row[1:] & (until[:-1] > since[1:]))
        self._count("versions that overlap", group, follows)
        per_key = np.bincount(group, valid)
        self._count("more than one valid version", group, valid & (per_key[group] > 1))
        current, deleted = (np.asarray(contiguous(rows[name]).fill_null(False)) for name in (IS_CURRENT, IS_DELETED))
        wrong = (current != valid) | (valid != (until == _NEVER)) | (valid & deleted) | (until < since) | (since == _ALWAYS)
        self._count("a version whose columns contradict each other or its file", group, wrong & ~row)
        if beside_table:
            has_row = np.bincount(group, row) > 0
            self._count("a valid version, but no row in the table", group, valid & ~has_row[group])
            self._count("a row in the table, but no valid version", group, row & _is_live(rows, self.deleted_at) & (per_key[group] == 0))

    def told(self, number: int) -> Iterator[str]:
        return (f"history {number}: {counted(keys, 'key')} with {what}" for what, keys in self.counts.items())

    def _count(self, what: str, group: Indices, flags: Flags) -> None:
        keys = len(np.unique(group[flags]))
        if keys:
            self.counts[what] = self.counts.get(what, 0) + keys
