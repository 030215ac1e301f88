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
from destination_s3_spark.tables.history.versions import Versions, merged_versions, with_columns
from destination_s3_spark.tables.rules import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_FROM_SYNC, VALID_TO
from destination_s3_spark.tables.runs.keys import DELETED, KEY, OFFSET
from destination_s3_spark.tables.runs.merged_rows import RowSource, complete_rows, row_streams
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, OPENED_OFFSET, STORED_OFFSET, Indices, sorted_by_key
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

    def take(self, rows: pa.Table, best: pa.Table) -> pa.Table:
        """Return the winners with the columns of a history. `rows` must hold all rows of their keys."""
        keys, live = contiguous(best[KEY]), ~np.asarray(contiguous(best[DELETED]))
        before = self._valid.until(pc.max(rows[KEY]).as_py())
        offsets = np.asarray(contiguous(rows[OFFSET]))
        came = contiguous(rows[KEY]).filter(pa.array((offsets >= 0) & (offsets < BURIED_OFFSET)))
        is_touched, was_touched = (np.asarray(pc.is_in(found, came)) for found in (keys, contiguous(before[KEY])))
        start, sync = np.zeros(len(best), np.int64), np.zeros(len(best), np.int64)
        known = np.zeros(len(best), np.bool_)
        parts = [(live & ~is_touched, before.filter(pa.array(~was_touched)))]
        if len(came):
            parts.append((live & is_touched, self._touched(rows, came, before.filter(pa.array(was_touched)))))
        for places, versions in parts:
            if not keys.filter(pa.array(places)).equals(contiguous(versions[KEY])):
                raise Bug("The rows of a table and the valid versions of its history have different keys; nothing was committed.")
            start[places] = np.asarray(contiguous(versions[VALID_FROM]).cast(pa.int64()))
            syncs = contiguous(versions[VALID_FROM_SYNC])
            sync[places], known[places] = np.asarray(syncs.fill_null(0)), np.asarray(syncs.is_valid())
        return _with_validity(best, start, pa.array(sync, mask=~known))

    def finish(self) -> VersionedRows:
        """Finish the run of versions that have ended."""
        return VersionedRows(self._valid.taken, self._ended.finish())

    def _touched(self, rows: pa.Table, came: pa.Array[Any], before: pa.Table) -> pa.Table:
        """Return the versions that are valid now of the keys that came, and write those that have ended."""
        rows = rows.filter(pc.is_in(rows[KEY], came))
        stored = sorted_by_key(rows.filter(pc.equal(rows[OFFSET], STORED_OFFSET)))
        if not contiguous(stored[KEY]).equals(contiguous(before[KEY])):
            raise Bug("The rows of a table and the valid versions of its history have different keys; nothing was committed.")
        opened = _of_history(stored, self._form)
        offsets = pa.array(np.full(len(stored), OPENED_OFFSET))
        own = {name: contiguous(before[name]) for name in (VALID_FROM, VALID_FROM_SYNC)}
        both = pa.concat_tables([_of_history(rows, self._form), with_columns(opened, {**own, OFFSET: offsets})])
        versions: Versions = merged_versions(both, self._form, self._task.notice, self._ends)
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


def _of_history(rows: pa.Table, form: HistoryForm) -> pa.Table:
    """Return rows of the table in the merge form of its history."""
    return project(rows, form.merge.schema)


def _with_validity(rows: pa.Table, start: Indices, sync: pa.Array[Any]) -> pa.Table:
    none = np.zeros(len(rows), np.bool_)
    own = {
        VALID_FROM: pa.array(start).cast(_MICROS),
        VALID_TO: pa.nulls(len(rows), _MICROS),
        IS_CURRENT: pa.array(~none),
        IS_DELETED: pa.array(none),
        VALID_FROM_SYNC: sync,
    }
    for name, values in own.items():
        rows = rows.append_column(name, values)
    return rows
