"""Which texts of a configuration are secret, as the specification says, and their mask."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "****"
SURE_SECRET = 8
"""The fewest characters that are masked wherever they stand: AWS's keys have 16 and more, MinIO's passwords at least 8. Shorter ones are
those of test servers ("test", "key") and turn up inside of other words by chance, so they are masked where they are a word of their own.
Masked everywhere they would rewrite names of streams and spell the secret out; not masked at all they would be printed."""


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
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on."""
        self._secrets |= {secret for secret in secrets if secret.strip()}
        # In this order, since one secret may hold another.
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None

    def masked(self, text: str) -> str:
        """The text without a secret."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _pattern(secret: str) -> str:
    """Where the secret stands as such. A word of its own may have a slash or a full stop beside it, but no part of a name."""
    exactly = re.escape(secret)
    return exactly if len(secret) >= SURE_SECRET else rf"(?<![\w-])(?<!\w\.){exactly}(?![\w-])(?!\.\w)"
