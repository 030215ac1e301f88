"""Column names that Avro and Parquet readers accept and that never change once assigned, and names of Avro's records.

A name depends on the source names declared together, on their order, and on the names that their siblings already have. What is safe
follows destination-s3's rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from itertools import count

_META_PREFIX = "_airbyte_"
"""Prefix of the names of the connector's own columns, compared without regard to case."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_DEFAULT_NAMESPACE = "default"
"""Namespace that destination-s3 uses for a stream without one."""


def safe_name(source: str) -> str:
    """Reduce `source` to ASCII letters, digits and `_`, without a leading digit: `spécial` → `special`, `1st` → `_1st`, `` → `_`."""
    decomposed = unicodedata.normalize("NFKD", source)
    bare = "".join(character for character in decomposed if not unicodedata.combining(character))
    name = _UNSAFE.sub("_", bare)
    return f"_{name}" if not name or name[0].isdigit() else name


def safe_namespace(namespace: str | None) -> str:
    """Return the Avro namespace for a stream's namespace: safe names joined by dots."""
    return ".".join(safe_name(part) for part in (namespace or _DEFAULT_NAMESPACE).split("."))


class RecordNames:
    """The full names of the records in one schema, each of them unique."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def give(self, path: tuple[str, ...]) -> tuple[str, str]:
        """Assign name and namespace to the record at a path of safe names: `(shop, users, address)` gives `address` in `users.shop`.

        An object and an array of the same union can want the same name; the later one gets the suffix `_1`.
        """
        *parents, wanted = path
        namespace = ".".join(reversed(parents))
        candidates = (wanted if number == 0 else f"{wanted}_{number}" for number in count())
        name = next(name for name in candidates if (name, namespace) not in self._taken)
        self._taken.add((name, namespace))
        return name, namespace


def assign_names(sources: Iterable[str], taken: Collection[str], *, of_columns: bool) -> dict[str, str]:
    """Assign each source a name that differs from the names of all its siblings, ignoring case.

    `taken` holds the names of siblings that already have one; they are never assigned again. If two sources want the same name, one that is
    already a safe name wins; otherwise the first one declared wins. The others get the suffix `_1`, `_2`, …, and so do columns named like
    the connector's own, which members (without `of_columns`) cannot clash with.
    """
    used = {name.casefold() for name in taken}
    names: dict[str, str] = {}
    clashing: list[str] = []
    for source in sorted(dict.fromkeys(sources), key=lambda source: safe_name(source) != source):
        name = safe_name(source)
        if name.casefold() in used or (of_columns and name.casefold().startswith(_META_PREFIX)):
            clashing.append(source)
        else:
            names[source] = name
            used.add(name.casefold())
    for source in clashing:
        candidates = (f"{safe_name(source)}_{number}" for number in count(1))
        names[source] = next(name for name in candidates if name.casefold() not in used)
        used.add(names[source].casefold())
    return names
