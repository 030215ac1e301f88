"""Names Avro accepts, and the places of its named types in a schema (destination-s3's rules)."""

from __future__ import annotations

import re
import unicodedata
from itertools import count

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_DEFAULT_NAMESPACE = "default"
"""What destination-s3 calls the namespace of a stream that has none."""


def safe_name(source: str) -> str:
    """`source` with only letters, digits and `_` of ASCII, and no digit in front: `spécial` → `special`, `1st` → `_1st`, `` → `_`."""
    decomposed = unicodedata.normalize("NFKD", source)
    bare = "".join(character for character in decomposed if not unicodedata.combining(character))
    name = _UNSAFE.sub("_", bare)
    return f"_{name}" if not name or name[0].isdigit() else name


def safe_namespace(namespace: str | None) -> str:
    """A stream's namespace as one of Avro: safe names joined by dots."""
    return ".".join(safe_name(part) for part in (namespace or _DEFAULT_NAMESPACE).split("."))


class RecordNames:
    """Gives each record of one schema the full name that no other record in it has."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def give(self, path: tuple[str, ...]) -> tuple[str, str]:
        """Name and namespace of the record at a path of safe names: `(shop, users, address)` is `address` in `users.shop`.

        An object and an array of one union can meet in a name; the later of the two gets `_1`.
        """
        *parents, wanted = path
        namespace = ".".join(reversed(parents))
        candidates = (wanted if number == 0 else f"{wanted}_{number}" for number in count())
        name = next(name for name in candidates if (name, namespace) not in self._taken)
        self._taken.add((name, namespace))
        return name, namespace
