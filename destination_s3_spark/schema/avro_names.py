"""Avro names: safe names, and the full names of the records in a schema (destination-s3's rules)."""

from __future__ import annotations

import re
import unicodedata
from itertools import count

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
