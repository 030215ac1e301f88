"""Columnar storage of a block's changes, for blocks in which many values of a column became null.

The positions stay in arrays from the kernel to the table, because one Python object per change costs as much as typing its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_s3_spark.decoding.changes import Change, Changes, ColumnPlaces, ItemPlaces, MemberPlaces, Places, Reason
from destination_s3_spark.decoding.metadata import meta_array

_NULLED = "NULLED"

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Trail:
    """The path from a top-level column down to a (child) column, one step per Trail.

    `source` is the key of a member. It is None for the items of an array, whose `offsets` say where each array's items begin.
    """

    above: Trail | None
    ordinal: int
    source: str | None
    offsets: np.ndarray[Any, Any] | None = None

    def places(self) -> Places:
        """Return the same path for single values."""
        if self.above is None:
            return ColumnPlaces(self.ordinal, self.source or "", 0)
        if self.source is None and self.offsets is not None:
            return ItemPlaces(self.above.places(), self.offsets)
        return MemberPlaces(self.above.places(), self.ordinal, self.source or "")


class _Run(NamedTuple):
    """Values of one column that became null.

    `rows` are their rows. `order` is a matrix of the ordinals that sort a row's changes, with a column per step. `paths` are their paths.
    """

    rows: Ints
    order: Ints
    paths: pa.Array[Any]


class BulkChanges(Changes):
    """Changes of a block. Values that became null because they have another type are also kept as runs."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[_Run] = []

    @property
    def in_bulk(self) -> bool:
        """Whether any change is kept in a run."""
        return bool(self._runs)

    def nulled_run(self, trail: Trail, positions: Ints) -> None:
        """Record that the values at these positions of a column became null because they have another type."""
        self._runs.append(_located(trail, positions))

    def reasons(self) -> Counter[str]:
        """Count the entries by reason."""
        found = Counter(entry.reason for entry in self.entries if entry.reason is not None)
        return found + Counter({Reason.SERIALIZATION.value: sum(len(run.rows) for run in self._runs)})

    def of_fields(self) -> Counter[tuple[int, str | None]]:
        """Count the changes of whole fields by the ordinal of the field and the kind of change."""
        found = super().of_fields()
        for run in self._of_fields():
            found[int(run.order[0, 0]), _NULLED] += len(run.rows)
        return found

    def rows_of(self, ordinals: Set[int]) -> list[int]:
        """Return the rows in which one of these fields was changed as a whole, in ascending order."""
        runs = [run.rows for run in self._of_fields() if int(run.order[0, 0]) in ordinals]
        rows: list[int] = np.unique(np.concatenate([_ints(super().rows_of(ordinals)), *runs])).tolist()
        return rows

    def _of_fields(self) -> list[_Run]:
        return [run for run in self._runs if run.order.shape[1] == 1]

    def meta(self, sync_ids: pa.Array[Any], meta_type: pa.StructType) -> pa.StructArray:
        """Build `_airbyte_meta` for rows with these sync ids (int64), as `metadata.meta_array` would from all entries."""
        if not self._runs:
            return meta_array(sync_ids, self.in_order(), meta_type)
        list_type = meta_type.field("changes").type
        rows = np.concatenate([_ints([entry.row for entry in self.entries]), *(run.rows for run in self._runs)])
        order = np.lexsort((*_sorting(self.entries, self._runs), rows))
        count = len(rows) - len(self.entries)
        texts = [
            pa.concat_arrays([_texts(self.entries, "field"), *(run.paths for run in self._runs)]),
            pa.concat_arrays([_texts(self.entries, "change"), pa.repeat(_NULLED, count)]),
            pa.concat_arrays([_texts(self.entries, "reason"), pa.repeat(Reason.SERIALIZATION.value, count)]),
        ]
        entries = pa.StructArray.from_arrays([column.take(pa.array(order)) for column in texts], fields=list(list_type.value_type))
        offsets = np.zeros(len(sync_ids) + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=len(sync_ids)), out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets), entries, type=list_type)
        return pa.StructArray.from_arrays([sync_ids, lists], fields=list(meta_type))


def _located(trail: Trail, positions: Ints) -> _Run:
    steps: list[tuple[Ints | int, str | None]] = []
    step: Trail | None = trail
    while step is not None:
        if step.source is None and step.offsets is not None:
            arrays = step.offsets.searchsorted(positions, side="right") - 1
            steps.append((positions - step.offsets[arrays], None))
            positions = arrays
        else:
            steps.append((step.ordinal, step.source))
        step = step.above
    steps.reverse()
    order = np.column_stack([np.broadcast_to(ordinal, positions.shape) for ordinal, _ in steps])
    return _Run(positions, order, _paths([source for _, source in steps], order))


def _paths(sources: Sequence[str | None], order: Ints) -> pa.Array[Any]:
    """Return the paths in the notation of `changes`. Each distinct path is made only once."""
    items = [at for at, source in enumerate(sources) if source is None]
    if not items:
        return pa.repeat(_path(sources, ()), len(order))
    indexes, which = np.unique(order[:, items], axis=0, return_inverse=True)
    return pa.array([_path(sources, of) for of in indexes.tolist()], pa.string()).take(pa.array(which.reshape(-1)))


def _path(sources: Sequence[str | None], indexes: Sequence[int]) -> str:
    left = iter(indexes)
    return ".".join(f"[{next(left)}]" if source is None else source for source in sources)


def _sorting(entries: Sequence[Change], runs: Sequence[_Run]) -> list[Ints]:
    """Return the keys for `np.lexsort` that sort a row's entries, the last key first. A prefix of an order comes before that order."""
    width = max([0, *(len(entry.order) for entry in entries), *(run.order.shape[1] for run in runs)])
    parts = [_ints([(*entry.order, *[-1] * (width - len(entry.order))) for entry in entries]).reshape(-1, width)]
    parts += [np.pad(run.order, ((0, 0), (0, width - run.order.shape[1])), constant_values=-1) for run in runs]
    return list(np.concatenate(parts).T[::-1])


def _ints(values: Sequence[Any]) -> Ints:
    return np.array(values, np.int64)


def _texts(entries: Sequence[Change], part: str) -> pa.Array[Any]:
    return pa.array([getattr(entry, part) for entry in entries], pa.string())
