"""What a writer knows of a finished file: its rows, the bounds of its keys, and statistics in the form of Delta Lake's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

Hex: TypeAlias = Annotated[str, Meta(pattern="^(?:[0-9a-f]{2})*$")]


class KeyRange(Struct, frozen=True):
    """Bounds of the encoded keys in a sorted file, in hex. Long keys are cut to valid bounds. `of`: fingerprint of the key's columns."""

    first: Hex
    last: Hex
    of: str


class FileStatistics(Struct, frozen=True):
    """Bounds and null counts of a file's columns, ready for JSON. Members of structs are in nested dicts.

    `min` and `max` have every column that is not inside a list, except times of day in Parquet's TIME and columns without a value. A column
    with a value that has no bound in this form, such as a date in year 0, has NO_BOUND in both. A struct without any bounded member is an
    empty dict. `nulls` has the null counts of the same columns, also of those without a value; a member is null where its struct is. All
    three are empty if the nulls are not known.

    Numbers and booleans are JSON's. An infinite bound is the text "Infinity" or "-Infinity", dates are "2026-11-20", and timestamps
    "2026-11-20T12:00:00.123Z", rounded outwards to milliseconds. Texts are cut to 32 characters, with U+10FFFF appended to a cut maximum.
    """

    min: dict[str, Any] = {}
    max: dict[str, Any] = {}
    nulls: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash(frozenset(self.nulls))  # not of the dicts, which have no hash, nor of their order


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What a closed writer says of its file. `keys`: those of a file with rows sorted by key. `statistics`: if its options ask for them."""

    rows: int
    keys: KeyRange | None = None
    statistics: FileStatistics | None = None


NO_BOUND = None
"""Bound of a column with a value that cannot be bounded."""
UNBOUNDED = FileStatistics()
"""Statistics of a file of which no more than its rows is known."""


def united(parts: Sequence[FileStatistics | None]) -> FileStatistics | None:
    """Return the statistics of a file with the rows of several files of the same columns. Return None if those of a file are unknown."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    if any(not part.nulls for part in known):
        return UNBOUNDED
    return FileStatistics(
        _combined([part.min for part in known], lambda bounds: min(bounds, key=_order(bounds))),
        _combined([part.max for part in known], lambda bounds: max(bounds, key=_order(bounds))),
        _combined([part.nulls for part in known], sum),
    )


def unbounded_columns(files: Iterable[FileStatistics]) -> frozenset[str]:
    """Return the names of the columns that have NO_BOUND, themselves or in a member, in one of the files."""
    return frozenset(name for file in files for name, bound in file.min.items() if _holds_no_bound(bound))


def of_member(tree: Any, path: Iterable[str]) -> Any:
    """Return what a tree of statistics has of a column or member, None if it has nothing."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _holds_no_bound(bound: Any) -> bool:
    return any(map(_holds_no_bound, bound.values())) if isinstance(bound, dict) else bound is NO_BOUND


def _combined(trees: Sequence[dict[str, Any]], combine: Callable[[list[Any]], Any]) -> dict[str, Any]:
    names = dict.fromkeys(name for tree in trees for name in tree)
    found = {name: [tree[name] for tree in trees if name in tree] for name in names}
    return {name: _of_column(values, combine) for name, values in found.items()}


def _of_column(values: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    if NO_BOUND in values:
        return NO_BOUND
    return _combined(values, combine) if isinstance(values[0], dict) else combine(values)


def _order(bounds: list[Any]) -> Callable[[Any], Any] | None:
    """Return the sort key of a column's bounds. Only among numbers an infinite bound is a text of another type."""
    return float if len({isinstance(bound, str) for bound in bounds}) > 1 else None
