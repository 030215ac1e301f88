"""Places of late records among versions that have ended. Pure functions without I/O.

Late records are rare, so they are placed one by one. They never change a version that is valid, and one that the history already has
changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.schema.arrow import contiguous, with_columns
from destination_s3_spark.tables.capture.events import PLACEHOLDER, differ, has_placeholder
from destination_s3_spark.tables.columns.validity import IS_DELETED, VALID_FROM, VALID_TO
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.history.versions import sorted_by_time, version_rows
from destination_s3_spark.tables.runs.keys import CURSOR, DELETED, KEY, OFFSET, RAW_ID
from destination_s3_spark.tables.runs.winners import CLOSED_OFFSET, ENDED_OFFSET, EXTRACTED_AT, ranking, ranking_at


@dataclass(order=True, slots=True)
class _Version:
    start: int
    end: int
    deleted: bool
    row: int
    fill: int | None = None
    """The row that has the values which this one left out."""


def placed(rows: pa.Table, form: HistoryForm) -> tuple[pa.Table, bool]:
    """Return the closed versions of all keys of `rows` in the order of key and time, and whether there are others than before."""
    rows = _unexpired(rows, form)
    offsets = np.asarray(contiguous(rows[OFFSET]))
    is_late = (offsets != CLOSED_OFFSET) & (offsets != ENDED_OFFSET)
    changed = bool((offsets == ENDED_OFFSET).any())
    if not is_late.any():
        return sorted_by_time(rows), changed
    versions = [_version(rows, row) for row in range(len(rows))]
    by_key: dict[bytes, list[_Version]] = {}
    keys = contiguous(rows[KEY])
    for row in np.flatnonzero(~is_late).tolist():
        insort(by_key.setdefault(keys[row].as_py(), []), versions[row])
    newest_first = ranking_at(rows, np.flatnonzero(is_late), form.spec)
    for row in newest_first.order[::-1].tolist():
        key = keys[row].as_py()
        gone = rows[DELETED][row].as_py()
        changed |= _place(by_key.setdefault(key, []), versions[row], rows, form, gone=gone)
    found = [version for key in sorted(by_key) for version in by_key[key]]
    at, start, end = (np.array([getattr(one, name) for one in found], np.int64) for name in ("row", "start", "end"))
    deleted = np.array([one.deleted for one in found], np.bool_)
    return version_rows(_filled(rows, form, found), at, start, end, deleted), changed


def _unexpired(rows: pa.Table, form: HistoryForm) -> pa.Table:
    """Return the rows without versions that are not kept any longer, and without late records from before, whose place is not known."""
    if form.kept_since is None:
        return rows
    offsets = np.asarray(contiguous(rows[OFFSET]))
    has_ended = (offsets == CLOSED_OFFSET) | (offsets == ENDED_OFFSET)
    start, end = (np.asarray(contiguous(rows[name]).cast(pa.int64())) for name in (VALID_FROM, VALID_TO))
    return rows.filter(pa.array(np.where(has_ended, end, start) >= form.kept_since))


def _version(rows: pa.Table, row: int) -> _Version:
    start, end = (rows[name][row].cast(pa.int64()).as_py() for name in (VALID_FROM, VALID_TO))
    return _Version(start, end, rows[IS_DELETED][row].as_py(), row)


def _place(versions: list[_Version], late: _Version, rows: pa.Table, form: HistoryForm, *, gone: bool) -> bool:
    """Put a late record among the closed versions of its key. Return whether it changed any."""
    if not gone and any(_has(one, late, rows, form) for one in versions):
        return False
    holder = next((one for one in reversed(versions) if one.start <= late.start < one.end), None)
    if holder is not None:
        return _place_within(holder, versions, late, rows, form, gone=gone)
    if gone:
        return False
    following = bisect_right(versions, late.start, key=lambda one: one.start)
    if following < len(versions):
        after = versions[following]
        if _equal(rows, form, after.row, late.row):
            after.start = late.start
        else:
            versions.insert(following, _Version(late.start, after.start, False, late.row))
        return True
    if late.end < late.start or (late.deleted and late.end == late.start):
        return False
    versions.append(late)
    return True


def _has(version: _Version, late: _Version, rows: pa.Table, form: HistoryForm) -> bool:
    """Tell whether a version is that of a late record, whose time may be before the version: its own, or another one like it."""
    ids = rows[RAW_ID]
    return ids[version.row] == ids[late.row] or (version.start == late.start and _equal(rows, form, version.row, late.row))


def _place_within(holder: _Version, versions: list[_Version], late: _Version, rows: pa.Table, form: HistoryForm, *, gone: bool) -> bool:
    """Put a late record into the version that was valid at its time. Return whether it changed any."""
    comes_first = holder.start == late.start and not _outranks(rows, form, late.row, holder.row)
    if gone:
        if not comes_first:
            holder.end, holder.deleted = late.start, True
        return not comes_first
    if _equal(rows, form, holder.row, late.row):
        return False
    if comes_first:
        insort(versions, _Version(late.start, late.start, False, late.row, holder.row))
        return True
    following = _Version(late.start, holder.end, holder.deleted, late.row, holder.row)
    holder.end, holder.deleted = late.start, False
    versions.insert(versions.index(holder) + 1, following)
    return True


def _outranks(rows: pa.Table, form: HistoryForm, late: int, one: int) -> bool:
    """Tell whether a late record ranks above the row of a version. On a tie it came later, and changes nothing."""
    names = [name for name in (KEY, CURSOR, EXTRACTED_AT) if name in rows.schema.names]
    both = rows.select(names).take(pa.array([one, late])).append_column(OFFSET, pa.array([1, 0]))
    return int(ranking(both, form.spec).order[0]) == 1


def _equal(rows: pa.Table, form: HistoryForm, one: int, late: int) -> bool:
    """Tell whether a late record has the values of a version. Those that it left out are those of the version."""

    def equal(column: pa.ChunkedArray[Any]) -> bool:
        if form.fills and has_placeholder(column.slice(late, 1)):
            return True
        return not differ(*(contiguous(column.slice(at, 1)) for at in (one, late)))[0]

    return all(equal(rows[name]) for name in form.tracked)


def _filled(rows: pa.Table, form: HistoryForm, versions: list[_Version]) -> pa.Table:
    """Return the rows with the values that late records left out, or null where no version before has any."""
    fills = {version.row: version.fill for version in versions}

    def source(at: int | None, texts: pa.ChunkedArray[Any]) -> int | None:
        while at is not None and texts[at].as_py() == PLACEHOLDER:
            at = fills.get(at)
        return at

    filled: dict[str, pa.Array[Any]] = {}
    for name in form.tracked if form.fills else ():
        if has_placeholder(rows[name]):
            places = [source(row, rows[name]) for row in range(len(rows))]
            filled[name] = contiguous(rows[name]).take(pa.array(places, pa.int64()))
    return with_columns(rows, filled)
