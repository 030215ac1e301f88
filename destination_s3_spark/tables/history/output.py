"""The history's part of a merge task, which makes the rows of final files and of files of valid versions.

The version of a row that stays valid is the table's row. So the merge of the table makes the rows of both, and reads files of versions in
the place of the final files that were written together with them. Of other files of versions, only the times at which these began are read.
Versions are looked for only where records came. Softly deleted rows have no valid version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.errors import Bug
from destination_s3_spark.schema.arrow import MICROS, contiguous, with_columns
from destination_s3_spark.tables.columns.validity import IS_CURRENT, IS_DELETED, VALID_FROM, VALID_FROM_SYNC, VALID_TO
from destination_s3_spark.tables.history.ends import Ends
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.history.task import EndedOutput, EndedVersions
from destination_s3_spark.tables.history.versions import Mode, versions_of
from destination_s3_spark.tables.runs.keys import KEY, OFFSET, after
from destination_s3_spark.tables.runs.merged_rows import RowSource, complete_rows, row_streams
from destination_s3_spark.tables.runs.refreshed import Notice
from destination_s3_spark.tables.runs.sorted_file import position
from destination_s3_spark.tables.runs.winners import BURIED_OFFSET, OPENED_OFFSET, STORED_OFFSET, Indices, Ranking, ranking
from destination_s3_spark.tables.stored.conversion import project
from destination_s3_spark.tables.updates.resources import TaskResources

_DIFFERENT = (
    "The rows of a table and the valid versions of its history have different keys; nothing was committed. Run verify to see them. "
    "The table goes on if tables.history leaves the stream out."
)

_BEGINNING = (VALID_FROM, VALID_FROM_SYNC)


@dataclass(frozen=True, slots=True)
class VersionTask:
    """The history's part of a merge task. Picklable.

    `current`: the files of valid versions with keys of the range that are not read as the table's rows. `ended`: those of ended versions.
    `number`: that of the history. `scratch`: the key for the run of versions that end. `alike`: whether all rows of the table have valid
    versions, so that the files of both have the same rows.
    """

    form: HistoryForm
    number: int
    current: tuple[RowSource, ...]
    ended: tuple[RowSource, ...]
    notice: Notice
    scratch: str
    alike: bool


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """The output of a task for the history: the number of valid versions read beside the table's rows, and those that have ended."""

    read: int
    ended: EndedVersions | None


class VersionOutput:
    """The history's part of a running merge task, which takes the keys of its range in their order. `stack` drops what is not finished."""

    def __init__(self, task: VersionTask, bounds: tuple[bytes, bytes | None], resources: TaskResources, stack: ExitStack) -> None:
        self._task = task
        self._form = task.form
        self._ends = Ends(task.ended, task.form.merge, resources.s3)
        streams = stack.enter_context(row_streams(task.current, task.form.beginnings, bounds, resources))
        self._valid = _ValidVersions(complete_rows(streams, 0), task.form.beginnings.schema)
        self._ended = EndedOutput(task.form, task.scratch, resources.s3, stack)

    def ranked(self, rows: pa.Table) -> tuple[pa.Table, Ranking]:
        """Rank the rows, and give those of the table the beginnings of their versions. `rows` must hold all rows of their keys."""
        ranked = ranking(rows, self._form.spec)
        if not self._task.current:
            return rows, ranked
        before = self._valid.until(rows[KEY][int(ranked.order[-1])].as_py())
        stored = ranked.order[np.asarray(contiguous(rows[OFFSET]))[ranked.order] == STORED_OFFSET]
        at = stored[(np.asarray(contiguous(rows[VALID_FROM]).is_null()) & self._form.is_live(rows))[stored]]
        return _with_beginnings(rows, at, before), ranked

    def take(self, rows: pa.Table, ranked: Ranking, best: pa.Table) -> pa.Table:
        """Return the winners with the columns of a history.

        `rows` must hold all rows of their keys. `best` has one for each key, which may be followed by tombstones.
        """
        group: Indices = np.cumsum(ranked.first) - 1
        offsets = np.asarray(contiguous(rows[OFFSET]))[ranked.order]
        touched = np.zeros(len(best), np.bool_)
        touched[group[(offsets >= 0) & (offsets < BURIED_OFFSET)]] = True
        if touched.any():
            has_records = np.zeros(len(rows), np.bool_)
            has_records[ranked.order[touched[group]]] = True
            current = self._touched(rows.filter(pa.array(has_records)))
            at = np.flatnonzero(touched & self._form.is_live(best))
            best = _with_beginnings(best, at, current)
        if best[VALID_FROM].null_count and (np.asarray(contiguous(best[VALID_FROM]).is_null()) & self._form.is_live(best)).any():
            raise Bug(_DIFFERENT)
        return _as_valid(best)

    def finish(self) -> VersionedRows:
        return VersionedRows(self._valid.taken, self._ended.finish())

    def _touched(self, rows: pa.Table) -> pa.Table:
        """Return the versions that are valid now of the keys that came, and write those that have ended."""
        schema = self._form.merge.schema
        is_valid = np.asarray(contiguous(rows[VALID_FROM]).is_valid())
        stored = project(rows.filter(pa.array(is_valid)), schema)
        opened = with_columns(stored, {OFFSET: pa.array(np.full(len(stored), OPENED_OFFSET))})
        rows = project(rows.drop_columns(list(_BEGINNING)), schema)
        versions = versions_of(pa.concat_tables([rows, opened]), self._form, Mode.MERGE, self._task.notice, self._ends)
        self._ended.write(versions)
        return versions.current


class _ValidVersions:
    """The beginnings of valid versions, in the order of their keys."""

    def __init__(self, portions: Iterator[pa.Table], schema: pa.Schema) -> None:
        self._portions = portions
        self._rows = schema.empty_table()
        self._has_more = True
        self.taken = 0  # versions

    def until(self, last: bytes) -> pa.Table:
        """Take the versions up to and including this key."""
        parts = []
        while self._has_more and (not len(self._rows) or self._rows[KEY][-1].as_py() <= last):
            parts.append(self._rows)
            rows = next(self._portions, None)
            self._rows, self._has_more = (self._rows.slice(0, 0), False) if rows is None else (rows, True)
        count = position(self._rows[KEY], after(last))
        found = pa.concat_tables([*parts, self._rows.slice(0, count)])
        self._rows = self._rows.slice(count)
        self.taken += len(found)
        return found


def _with_beginnings(rows: pa.Table, at: Indices, versions: pa.Table) -> pa.Table:
    """Give the rows at these indices the beginnings of the versions. Raises Bug unless both have the same keys."""
    if not contiguous(rows[KEY]).take(pa.array(at)).equals(contiguous(versions[KEY])):
        raise Bug(_DIFFERENT)
    begins = np.zeros(len(rows), np.bool_)
    begins[at] = True
    mask, order = pa.array(begins), pa.array(np.argsort(at))
    own = {name: (contiguous(rows[name]), contiguous(versions[name]).take(order)) for name in _BEGINNING}
    return with_columns(rows, {name: pc.replace_with_mask(before, mask, version) for name, (before, version) in own.items()})


def _as_valid(rows: pa.Table) -> pa.Table:
    """Return the rows with all columns of a history, as valid versions."""
    own = {
        VALID_TO: pa.nulls(len(rows), MICROS),
        IS_CURRENT: pa.repeat(True, len(rows)),
        IS_DELETED: pa.repeat(False, len(rows)),
    }
    for name, values in own.items():
        rows = rows.append_column(name, values)
    return rows
