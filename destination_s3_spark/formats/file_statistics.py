"""Statistics of the columns of one file, in the form of Delta Lake's per-file statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct


class FileStatistics(Struct, frozen=True):
    """Bounds and null counts of a file's columns, ready for JSON. Members of structs are in nested dicts.

    `min` and `max` have every column that is not inside a list, except times of day in Parquet's TIME and columns without a value. A struct
    without any bounded member is an empty dict. `nulls` has the null counts of the same columns, also of those without a value; a member is
    null where its struct is. All three are empty if some value has no bound in this form, because a reader (delta-rs) that finds bounds for
    some columns of a file only returns too few rows.

    Numbers and booleans are JSON's. An infinite bound is the text "Infinity" or "-Infinity", dates are "2026-11-20", and timestamps
    "2026-11-20T12:00:00.123Z", rounded outwards to milliseconds. Texts are cut to 32 characters, with U+10FFFF appended to a cut maximum.
    """

    min: dict[str, Any] = {}
    max: dict[str, Any] = {}
    nulls: dict[str, Any] = {}

    def __hash__(self) -> int:
        return hash(frozenset(self.nulls))  # not of the dicts, which have no hash, nor of their order


UNBOUNDED = FileStatistics()
"""Statistics of a file that has a value without a bound."""


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


def _combined(trees: Sequence[dict[str, Any]], combine: Callable[[list[Any]], Any]) -> dict[str, Any]:
    names = dict.fromkeys(name for tree in trees for name in tree)
    found = {name: [tree[name] for tree in trees if name in tree] for name in names}
    return {name: _combined(values, combine) if isinstance(values[0], dict) else combine(values) for name, values in found.items()}


def _order(bounds: list[Any]) -> Callable[[Any], Any] | None:
    """Return the sort key of a column's bounds. Only among numbers an infinite bound is a text of another type."""
    return float if len({isinstance(bound, str) for bound in bounds}) > 1 else None
