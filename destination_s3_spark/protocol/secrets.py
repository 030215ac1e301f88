"""Masking of a configuration's secrets, as marked in the specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "****"
SURE_SECRET = 8
"""Minimum length in characters of a secret that is masked everywhere, even inside a word. AWS's keys have 16 or more, MinIO's passwords at
least 8. Shorter secrets are those of test servers ("test", "key") and also occur inside other words by chance. They are therefore masked
only as whole words: masked everywhere, they would garble stream names and thereby reveal the secret.
"""


def secrets_of(schema: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that a JSON schema marks with `airbyte_secret`, at any depth and in every variant of a `oneOf`."""
    for name, member in schema.get("properties", {}).items():
        value = options.get(name)
        if member.get("airbyte_secret") and value is not None:
            yield str(value)
        if isinstance(value, Mapping):
            for variant in (member, *member.get("oneOf", ())):
                yield from secrets_of(variant, value)


class SecretFilter:
    """Filter that masks secrets in texts. It starts without any secrets."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        self._secrets |= {secret for secret in secrets if secret.strip()}
        # Longest first, because one secret may contain another.
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None

    def masked(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _pattern(secret: str) -> str:
    """Return the pattern of a secret. A short one must be a whole word: next to a slash or a full stop, but not part of a name."""
    exactly = re.escape(secret)
    return exactly if len(secret) >= SURE_SECRET else rf"(?<![\w-])(?<!\w\.){exactly}(?![\w-])(?!\.\w)"
