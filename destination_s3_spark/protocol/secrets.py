"""Which texts of a configuration are secret, as the specification says, and their mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "****"


def secrets_of(schema: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """The values that a JSON schema marks with `airbyte_secret`, at any depth and in whatever variant of a `oneOf`."""
    for name, member in schema.get("properties", {}).items():
        value = options.get(name)
        if member.get("airbyte_secret") and value is not None:
            yield str(value)
        if isinstance(value, Mapping):
            for variant in (member, *member.get("oneOf", ())):
                yield from secrets_of(variant, value)


class SecretFilter:
    """Texts with the secrets in them masked; none are known at first."""

    def __init__(self) -> None:
        self._secrets: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on."""
        # In this order, since one secret may hold another.
        self._secrets = tuple(sorted({*self._secrets, *filter(None, secrets)}, key=len, reverse=True))

    def masked(self, text: str) -> str:
        """The text without a secret."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text
