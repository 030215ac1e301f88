"""Record of the changes that typing makes to values: the entries of `_airbyte_meta.changes`.

The changes of many values of a column that became null stay in arrays from the kernel to the table, because one Python object per change
costs as much as typing its line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Union
from destination_s3_spark.schema.arrow import META_FIELDS, contiguous

MOST_CHANGED_FIELDS = 100
"""Most fields whose changed values are counted apart."""

Place = tuple["Place | None", int, str | None]
"""Place of a value in a record: that of its container (None for the record itself), its ordinal there, and its key (None for an item)."""

Ints = np.ndarray[Any, np.dtype[np.int64]]

_NULLED, _TRUNCATED = "NULLED", "TRUNCATED"
_CHANGES = frozenset({_NULLED, _TRUNCATED})
_REASONS = frozenset(
    {
        *(f"{who}_{what}" for who in ("SOURCE", "PLATFORM", "DESTINATION") for what in ("RECORD_SIZE_LIMITATION", "FIELD_SIZE_LIMITATION")),
        *(f"{who}_SERIALIZATION_ERROR" for who in ("SOURCE", "PLATFORM", "DESTINATION")),
        *("SOURCE_RETRIEVAL_ERROR", "DESTINATION_TYPECAST_ERROR"),
    }
)
"""The reasons of airbyte_protocol.yaml."""
_PARTS = ["field", "change", "reason"]
_ITEM = re.compile(r"(?<=\.)\[\d+\]")


class Reason(Enum):
    """Reason why a value could not be kept as it is (airbyte_protocol.yaml). Coercions return it in place of a value."""

    SERIALIZATION = "DESTINATION_SERIALIZATION_ERROR"
    SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"


class ValueChange(NamedTuple):
    """One entry of a row's `_airbyte_meta.changes`.

    `order` holds the ordinals that sort a row's entries in the order in which its fields are declared. It is empty for an entry of the
    source, so that it sorts first.
    """

    row: int
    order: tuple[int, ...]
    field: str | None
    change: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Trail:
    """The path from a top-level column down to a (child) column, one step per Trail.

    `source` is the key of a member. It is None for the items of an array, whose `offsets` say where each array's items begin.
    """

    above: Trail | None
    ordinal: int
    source: str | None
    offsets: np.ndarray[Any, Any] | None = None

    def located(self, positions: Ints) -> Located:
        """Return where the values at these positions of the column are."""
        steps: list[tuple[Ints | int, str | None]] = []
        step: Trail | None = self
        while step is not None:
            if step.offsets is not None:
                arrays = step.offsets.searchsorted(positions, side="right") - 1
                steps.append((positions - step.offsets[arrays], None))
                positions = arrays
            else:
                steps.append((step.ordinal, step.source))
            step = step.above
        steps.reverse()
        order = np.column_stack([np.broadcast_to(ordinal, positions.shape) for ordinal, _ in steps])
        return Located(positions, order, tuple(source for _, source in steps))


class Located(NamedTuple):
    """Places of values of one column.

    `rows` are their rows. `order` is a matrix of ordinals with a row per value and a column per step, and `sources` are the steps' keys.
    """

    rows: Ints
    order: Ints
    sources: tuple[str | None, ...]

    def places(self) -> Iterator[tuple[int, Place]]:
        """Yield the row and the place of each value."""
        for row, (first, *others) in zip(self.rows.tolist(), self.order.tolist(), strict=True):
            place: Place = (None, first, self.sources[0])
            for ordinal, source in zip(others, self.sources[1:], strict=True):
                place = (place, ordinal, source)
            yield row, place

    def paths(self) -> pa.Array[Any]:
        """Return the path of each value as text. Each distinct path is made only once."""
        items = [at for at, source in enumerate(self.sources) if source is None]
        if not items:
            return pa.repeat(self._path(()), len(self.order))
        indexes, which = np.unique(self.order[:, items], axis=0, return_inverse=True)
        return pa.array([self._path(of) for of in indexes.tolist()], pa.string()).take(pa.array(which.reshape(-1)))

    def _path(self, indexes: Sequence[int]) -> str:
        left = iter(indexes)
        return ".".join(f"[{next(left)}]" if source is None else source for source in self.sources)


class Changes:
    """The changes of one block, in any order. Single values are recorded for the current `row`."""

    def __init__(self) -> None:
        self.row = 0
        self.entries: list[ValueChange] = []
        self._nulled: list[Located] = []

    def nulled(self, place: Place, reason: Reason) -> None:
        self._add(place, _NULLED, reason)

    def truncated(self, place: Place, reason: Reason) -> None:
        """Record that a value of the current row lost a part: lone surrogates, which no UTF-8 column can hold, or digits."""
        self._add(place, _TRUNCATED, reason)

    def nulled_all(self, located: Located) -> None:
        """Record that the values at these places became null because they have another type."""
        self._nulled.append(located)

    def of_source(self) -> Changes:
        found = Changes()
        found.entries = [entry for entry in self.entries if not entry.order]
        return found

    def of_fields(self) -> Counter[tuple[int, str | None]]:
        """Count the changes of whole fields by the ordinal of the field and the kind of change."""
        found = Counter((entry.order[0], entry.change) for entry in self.entries if len(entry.order) == 1)
        for located in self._nulled_fields():
            found[int(located.order[0, 0]), _NULLED] += len(located.rows)
        return found

    def rows_of(self, ordinals: Set[int]) -> list[int]:
        """Return the rows in which one of these fields was changed as a whole, in ascending order."""
        single = [entry.row for entry in self.entries if len(entry.order) == 1 and entry.order[0] in ordinals]
        many = [located.rows for located in self._nulled_fields() if int(located.order[0, 0]) in ordinals]
        rows: list[int] = np.unique(np.concatenate([_ints(single), *many])).tolist()
        return rows

    def meta(self, sync_ids: pa.Array[Any], meta_type: pa.StructType) -> pa.StructArray:
        """Build `_airbyte_meta` for rows with these sync ids (int64).

        A row's entries are those of the source, then ours in the order of the columns.
        """
        list_type = meta_type.field("changes").type
        # Most blocks have no change, and sorting none takes half a millisecond.
        none = _ints([]), pa.array([], list_type.value_type)
        rows, entries = self._in_order(list_type.value_type) if self.entries or self._nulled else none
        offsets = np.zeros(len(sync_ids) + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=len(sync_ids)), out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets), entries, type=list_type)
        return pa.StructArray.from_arrays([sync_ids, lists], fields=list(meta_type))

    def _in_order(self, entry_type: pa.StructType) -> tuple[Ints, pa.Array[Any]]:
        """Return the row of each entry, in no order, and the entries in order of their rows."""
        rows = np.concatenate([_ints([entry.row for entry in self.entries]), *(located.rows for located in self._nulled)])
        order = pa.array(np.lexsort((*self._sorting(), rows)))
        count = len(rows) - len(self.entries)
        parts = [pa.array([getattr(entry, part) for entry in self.entries], pa.string()) for part in _PARTS]
        parts = [
            pa.concat_arrays([parts[0], *(located.paths() for located in self._nulled)]),
            pa.concat_arrays([parts[1], pa.repeat(_NULLED, count)]),
            pa.concat_arrays([parts[2], pa.repeat(Reason.SERIALIZATION.value, count)]),
        ]
        return rows, pa.StructArray.from_arrays([part.take(order) for part in parts], fields=list(entry_type))

    def _add(self, place: Place, change: str, reason: Reason) -> None:
        steps: list[tuple[int, str | None]] = []
        inner: Place | None = place
        while inner is not None:
            inner, ordinal, key = inner
            steps.append((ordinal, key))
        steps.reverse()
        path = ".".join(f"[{ordinal}]" if key is None else key for ordinal, key in steps)
        self.entries.append(ValueChange(self.row, tuple(ordinal for ordinal, _ in steps), path, change, reason.value))

    def _nulled_fields(self) -> list[Located]:
        return [located for located in self._nulled if located.order.shape[1] == 1]

    def _sorting(self) -> list[Ints]:
        """Return the keys for `np.lexsort` that sort a row's entries, the last key first. A prefix of an order comes before that order."""
        width = max([0, *(len(entry.order) for entry in self.entries), *(located.order.shape[1] for located in self._nulled)])
        single = _ints([(*entry.order, *[-1] * (width - len(entry.order))) for entry in self.entries]).reshape(len(self.entries), width)
        many = [np.pad(each.order, ((0, 0), (0, width - each.order.shape[1])), constant_values=-1) for each in self._nulled]
        return list(np.concatenate([single, *many]).T[::-1])


def stored_changes(meta: pa.StructArray) -> list[ValueChange]:
    """Return the entries of `_airbyte_meta.changes` by row, as those of the source."""
    lists: pa.ListArray[Any] = meta.field("changes")
    rows = pc.list_parent_indices(lists).to_pylist()
    return [ValueChange(row, (), *entry.values()) for row, entry in zip(rows, lists.flatten().to_pylist(), strict=True)]


def _ints(values: Sequence[Any]) -> Ints:
    return np.array(values, np.int64)


class ChangedField(NamedTuple):
    """A change that a value of a field underwent, as an entry of `meta.changes`, or all such changes, to count them.

    To count them, `field` has `[]` for any array index, and a part is None if it is not one of those that may be named.
    """

    field: str | None
    change: str | None
    reason: str | None


def changed_values(rows: pa.RecordBatch | pa.Table, declared: Container[str]) -> Counter[ChangedField]:
    """Count the changed values of the rows by field, change and reason. The work depends on the number of changes, not of rows.

    Only declared paths and the protocol's words are named: members of records have any name, sources report changes in any words, and
    either may be a value of a record, which must be neither in a block nor in a log.
    """
    changes = contiguous(rows[META_FIELDS[2].name]).field("changes").flatten()
    counts: Counter[ChangedField] = Counter()
    if len(changes):
        groups = pa.table([changes.field(part) for part in _PARTS], _PARTS).group_by(_PARTS, use_threads=False)
        for group in groups.aggregate([([], "count_all")]).to_pylist():
            path, change, reason = (group[part] for part in _PARTS)
            path = path and _ITEM.sub("[]", path)
            named = ChangedField(_known(path, declared), *protocol_words(change, reason))
            counts[named] += group["count_all"]
    return counts


def _known(text: str | None, known: Container[str]) -> str | None:
    return text if text in known else None


def protocol_words(change: str | None, reason: str | None) -> tuple[str | None, str | None]:
    """Return the change and the reason of an entry, None for what is not one of the protocol's words."""
    return _known(change, _CHANGES), _known(reason, _REASONS)


def most_changed(counts: Mapping[ChangedField, int]) -> dict[ChangedField, int]:
    """Return the counts, largest first. If there are too many, the fields with the fewest are summed up by change and reason."""
    ordered = Counter(counts).most_common()
    rest: Counter[ChangedField] = Counter()
    for changed, values in ordered[MOST_CHANGED_FIELDS:]:
        rest[ChangedField(None, changed.change, changed.reason)] += values
    return dict(Counter(dict(ordered[:MOST_CHANGED_FIELDS])) + rest)


def declared_paths(fields: Iterable[Field], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all values that a stream declares, in the form of `ChangedField`."""
    for field in fields:
        yield from _paths(field.type, prefix + field.source)


def _paths(kind: AirbyteType, path: str) -> Iterator[str]:
    yield path
    match kind:
        case Object(fields):
            yield from declared_paths(fields, f"{path}.")
        case Array(items):
            yield from _paths(items, f"{path}.[]")
        case Union(options):
            for option in options:
                yield from _paths(option, path)
