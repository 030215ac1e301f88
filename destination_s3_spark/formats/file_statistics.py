"""Statistics of the columns of one file, in the form of Delta Lake's per-file statistics."""

from __future__ import annotations

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
        return hash(tuple(self.nulls))


UNBOUNDED = FileStatistics()
"""Statistics of a file that has a value without a bound."""
