"""Column names that Avro and Parquet readers accept, and that stay what they are once given.

A name depends on the source names that arrive together, in the order in which they are declared, and on the names already taken among
their siblings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from itertools import count

from destination_s3_spark.schema.avro_names import safe_name

_META_PREFIX = "_airbyte_"
"""Names of the connector's own columns start with this, in any case."""


class Level(Enum):
    """Where the names stand. Columns stand beside the connector's own columns, members of an object do not."""

    COLUMN = "column"
    MEMBER = "member"


def assign_names(sources: Iterable[str], taken: Collection[str], level: Level) -> dict[str, str]:
    """Give each source a name that no sibling has, also when upper and lower case are the same to a reader.

    `taken` are the names of siblings that have one already; they are never given again. A source that is a safe name keeps it before
    one that has to be changed, and else the first one declared does. Who finds its name gone gets `_1`, `_2`, …, and so do columns
    named like the connector's own.
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
