"""Identity of a stream."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct

from destination_s3_spark.wording import LINE_END, printable


class StreamId(Struct, frozen=True, order=True):
    """Namespace and name of a stream as in the catalog. An empty namespace equals a missing one."""

    namespace: str | None
    name: str

    @classmethod
    def of(cls, namespace: str | None, name: str) -> StreamId:
        """Build the identity from the namespace and name in a message or catalog."""
        return cls(namespace or None, name)

    def matches(self, pattern: str) -> bool:
        """Tell whether the name, or the namespace, a dot and the name, match a pattern with * and ?."""
        return matches(self.name, pattern) or (self.namespace is not None and matches(f"{self.namespace}.{self.name}", pattern))

    def __str__(self) -> str:
        """Return the name as people are shown it, on one line."""
        return printable(self.name if self.namespace is None else f"{self.namespace}.{self.name}", LINE_END)


def matches(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern with * and ?. Brackets are ordinary characters: names of streams and columns may have them."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
