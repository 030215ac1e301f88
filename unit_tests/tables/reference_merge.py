"""What a deduplicated table is, in plain Python: every version a key ever had, and the one that counts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

STORED = 2**63 - 1
"""The offset of rows and tombstones the table has: later than any arrival."""


@dataclass(frozen=True, slots=True)
class Version:
    """One row of a key. `number` tells versions apart that are otherwise the same."""

    number: int
    key: tuple[Any, ...]
    cursor: Any
    extracted_at: int
    deleted: bool
    offset: int


def surviving(history: Iterable[Version], snapshots: Sequence[int] = ()) -> list[Version]:
    """The version of each key that counts, in the order of the keys; of equals the one named first.

    `snapshots`: the times from which snapshots without cursors were extracted, ascending.
    """
    versions: dict[tuple[Any, ...], list[Version]] = {}
    for version in history:
        versions.setdefault(key_rank(version.key), []).append(version)
    return [max(versions[key], key=lambda version: _age(version, snapshots)) for key in sorted(versions)]


def softly(history: Iterable[Version], snapshots: Sequence[int] = ()) -> list[tuple[Version, Version]]:
    """With soft deletions: the version of each key that counts, and the one whose values its row has.

    A deletion has those of the newest version that is none, wherever in the history that is; its own only where there is none.
    """
    versions = list(history)
    rows = {key_rank(row.key): row for row in surviving((version for version in versions if not version.deleted), snapshots)}
    return [(found, rows.get(key_rank(found.key), found) if found.deleted else found) for found in surviving(versions, snapshots)]


def key_rank(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a key sorts by: nulls first, not-a-number last; equal for equal keys."""
    return tuple((0,) if value is None else (2,) if _is_nan(value) else (1, value) for value in key)


def _age(version: Version, snapshots: Sequence[int]) -> tuple[Any, ...]:
    cursor = version.cursor
    rank = (0,) if cursor is None else (1,) if _is_nan(cursor) else (2, cursor)
    return bisect_right(snapshots, version.extracted_at), rank, version.extracted_at, version.offset


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
