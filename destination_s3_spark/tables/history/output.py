"""The history's part of a merge task, whose final files and files of valid versions have the same rows.

The version of a row that stays valid is the table's row. So the merge of the table makes the rows of both, and only the times at which
versions began are read of the files of versions. Versions are looked for only where records came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.history.ends import Ends
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.history.task import EndedOutput, EndedVersions
from destination_s3_spark.tables.history.versions import merged_versions, with_columns
from destination_s3_spark.tables.rules import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_FROM_SYNC, VALID_TO
from destination_s3_spark.tables.runs.keys import DELETED, KEY, OFFSET
from destination_s3_spark.tables.runs.merged_rows import RowSource, complete_rows, row_streams
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, OPENED_OFFSET, STORED_OFFSET, Flags, Indices, Ranking
from destination_s3_spark.tables.stored.conversion import project
from destination_s3_spark.tables.updates.resources import TaskResources

_MICROS = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class VersionTask:
    """The history's part of a merge task. Picklable.

    `current`: the files of valid versions with keys of the range. `ended`: those of ended versions, each with its last key. `number`: that
    of the history. `scratch`: the key for the run of versions that end.
    """

    form: HistoryForm
    number: int
    current: tuple[RowSource, ...]
    ended: tuple[tuple[RowSource, bytes], ...]
    notice: Notice
    scratch: str


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """The output of a task for the history: the number of valid versions read, and those that have ended."""

    read: int
    ended: EndedVersions | None


class VersionOutput(ExitStack):
    """The history's part of a running merge task, which takes the keys of its range in their order. A context manager."""

    def __init__(self, task: VersionTask, bounds: tuple[bytes, bytes | None], resources: TaskResources) -> None:
        super().__init__()
        self._task = task
        self._form = task.form
        self._ends = Ends(task.ended, task.form.merge, resources.s3)
        streams = self.enter_context(row_streams(task.current, task.form.beginnings, bounds, resources))
        self._valid = _ValidVersions(complete_rows(streams, 0), task.form.beginnings.schema)
        self._ended = self.enter_context(EndedOutput(task.form, task.scratch, bounds[0], resources.s3))

    def take(self, rows: pa.Table, ranked: Ranking, best: pa.Table) -> pa.Table:
        """Return the winners with the columns of a history. `rows` must hold all rows of their keys, and `best` has one for each key."""
        group: Indices = np.cumsum(ranked.first) - 1
        offsets = np.asarray(contiguous(rows[OFFSET]))[ranked.order]
        stored = np.flatnonzero(offsets == STORED_OFFSET)
        before = self._valid.until(best[KEY][-1].as_py())
        _require_same_keys(rows[KEY], ranked.order[stored], before)
        beginnings = _Beginnings.of(len(best))
        beginnings.place(group[stored], before)
        touched = np.zeros(len(best), np.bool_)
        touched[group[(offsets >= 0) & (offsets < BURIED_OFFSET)]] = True
        if touched.any():
            opened = before.filter(pa.array(touched[group[stored]]))
            current = self._touched(rows.take(pa.array(ranked.order[touched[group]])), opened)
            at = np.flatnonzero(touched & ~np.asarray(contiguous(best[DELETED])))
            _require_same_keys(best[KEY], at, current)
            beginnings.place(at, current)
        return beginnings.beside(best)

    def finish(self) -> VersionedRows:
        """Finish the run of versions that have ended."""
        return VersionedRows(self._valid.taken, self._ended.finish())

    def _touched(self, rows: pa.Table, before: pa.Table) -> pa.Table:
        """Return the versions that are valid now of the keys that came, and write those that have ended. `rows` are sorted by key."""
        rows = project(rows, self._form.merge.schema)
        stored = rows.filter(pc.equal(rows[OFFSET], STORED_OFFSET))
        own = {name: contiguous(before[name]) for name in (VALID_FROM, VALID_FROM_SYNC)}
        opened = with_columns(stored, {**own, OFFSET: pa.array(np.full(len(stored), OPENED_OFFSET))})
        versions = merged_versions(pa.concat_tables([rows, opened]), self._form, self._task.notice, self._ends)
        self._ended.write(versions)
        return versions.current


class _ValidVersions:
    """The beginnings of valid versions, in the order of their keys."""

    def __init__(self, portions: Iterator[pa.Table], schema: pa.Schema) -> None:
        self._portions = portions
        self._rows = schema.empty_table()
        self._has_more = True
        self.taken = 0
        """Number of versions taken."""

    def until(self, last: bytes) -> pa.Table:
        """Take the versions up to and including this key."""
        parts = []
        while self._has_more and (not len(self._rows) or self._rows[KEY][-1].as_py() <= last):
            parts.append(self._rows)
            rows = next(self._portions, None)
            self._rows, self._has_more = (self._rows.slice(0, 0), False) if rows is None else (rows, True)
        count = bisect_right(range(len(self._rows)), last, key=lambda row: self._rows[KEY][row].as_py())
        found = pa.concat_tables([*parts, self._rows.slice(0, count)])
        self._rows = self._rows.slice(count)
        self.taken += len(found)
        return found


def _require_same_keys(keys: pa.ChunkedArray[Any], at: Indices, versions: pa.Table) -> None:
    if not contiguous(keys).take(pa.array(at)).equals(contiguous(versions[KEY])):
        raise Bug(
            "The rows of a table and the valid versions of its history have different keys; nothing was committed. Run verify to see them. "
            "The table goes on if tables.history leaves the stream out."
        )


@dataclass(frozen=True, slots=True)
class _Beginnings:
    """When the valid versions of rows began, in microseconds since 1970, and the sync that began each, unless it is not known."""

    start: Indices
    sync: Indices
    known: Flags

    @classmethod
    def of(cls, rows: int) -> _Beginnings:
        return cls(np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.bool_))

    def place(self, at: Indices, versions: pa.Table) -> None:
        """Take over those of versions for the rows at these positions."""
        syncs = contiguous(versions[VALID_FROM_SYNC])
        self.start[at] = np.asarray(contiguous(versions[VALID_FROM]).cast(pa.int64()))
        self.sync[at], self.known[at] = np.asarray(syncs.fill_null(0)), np.asarray(syncs.is_valid())

    def beside(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns of a history, as valid versions."""
        none = np.zeros(len(rows), np.bool_)
        own = {
            VALID_FROM: pa.array(self.start).cast(_MICROS),
            VALID_TO: pa.nulls(len(rows), _MICROS),
            IS_CURRENT: pa.array(~none),
            IS_DELETED: pa.array(none),
            VALID_FROM_SYNC: pa.array(self.sync, mask=~self.known),
        }
        for name, values in own.items():
            rows = rows.append_column(name, values)
        return rows
