"""The identity of a stream."""

from __future__ import annotations

from msgspec import Struct


class StreamId(Struct, frozen=True, order=True):
    """A stream as the catalog names it. An empty namespace and none are the same."""

    namespace: str | None
    name: str

    @classmethod
    def of(cls, namespace: str | None, name: str) -> StreamId:
        """Make the identity of a stream as messages and catalogs spell it."""
        return cls(namespace or None, name)

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"
