"""Column names that Avro and Parquet readers accept and that never change once assigned.

A name depends on the source names declared together, on their order, and on the names that their siblings already have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from itertools import count

from destination_s3_spark.schema.avro_names import safe_name

_META_PREFIX = "_airbyte_"
"""Prefix of the names of the connector's own columns, compared without regard to case."""


class Level(Enum):
    """The level of names in a table. Only column names can clash with the connector's own columns."""

    COLUMN = "column"
    MEMBER = "member"


def assign_names(sources: Iterable[str], taken: Collection[str], level: Level) -> dict[str, str]:
    """Assign each source a name that differs from the names of all its siblings, ignoring case.

    `taken` holds the names of siblings that already have one; they are never assigned again. If two sources want the same name, one that is
    already a safe name wins; otherwise the first one declared wins. The others get the suffix `_1`, `_2`, …, and so do columns named like
    the connector's own.
    """
    used = {name.casefold() for name in taken}
    names: dict[str, str] = {}
    clashing: list[str] = []
    for source in sorted(dict.fromkeys(sources), key=lambda source: safe_name(source) != source):
        name = safe_name(source)
        if name.casefold() in used or (level is Level.COLUMN and name.casefold().startswith(_META_PREFIX)):
            clashing.append(source)
        else:
            names[source] = name
            used.add(name.casefold())
    for source in clashing:
        names[source] = _suffixed(safe_name(source), used)
        used.add(names[source].casefold())
    return names


def _suffixed(name: str, used: set[str]) -> str:
    return next(candidate for candidate in (f"{name}_{number}" for number in count(1)) if candidate.casefold() not in used)
