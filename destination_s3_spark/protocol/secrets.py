"""Masking of secrets. The specification marks the secrets of a configuration; names of variables mark the secrets of the environment.

The environment may hold secrets of the platform, which whoever writes the configuration must not learn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import orjson

from destination_s3_spark.config import SPEC_FILE

MASK = "****"
SURE_SECRET = 8
"""Minimum length in characters of a secret that is masked everywhere, even inside a word. AWS's keys have 16 or more, MinIO's passwords at
least 8. Shorter secrets are those of test servers ("test", "key") and also occur inside other words by chance. They are therefore masked
only as whole words: masked everywhere, they would garble stream names and thereby reveal the secret.
"""
SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
"""What the name of an environment variable with a secret holds."""
EXTERNAL_ID = "AWS_ASSUME_ROLE_EXTERNAL_ID"
_PASSWORDS = (re.compile(r"[\w+.-]+://[^/?#@:]*:(.*)@"), re.compile(r"[\w+.-]+://[^/?#@:]*:([^@]*)@"))
"""Passwords in an address, up to its last `@` and to its first."""
_HEX = re.compile("%[0-9A-F]{2}")


def configuration_secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets of a configuration, which may be invalid."""
    specification: Mapping[str, Any] = orjson.loads(SPEC_FILE.read_bytes())
    yield from secrets_of(specification["connectionSpecification"], options)


def secrets_of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of the environment. Short values are left out, because names such as KEYBOARD have some, too."""
    for name, value in environ.items():
        if name == EXTERNAL_ID or (SECRET_NAME.search(name) and len(value) >= SURE_SECRET):
            yield value


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
    """Filter that masks secrets in texts, as they are and as programs spell them. It starts without any secrets."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        self._secrets |= {part for secret in secrets if secret.strip() for part in (secret, *_parts(secret))}
        spelt = {form: len(secret) >= SURE_SECRET for secret in sorted(self._secrets, key=len) for form in _spellings(secret)}
        # Longest first, because one secret may contain another.
        longest_first = sorted(spelt, key=len, reverse=True)
        self._pattern = re.compile("|".join(_pattern(form, sure=spelt[form]) for form in longest_first)) if longest_first else None

    def clear(self) -> None:
        """Forget all secrets."""
        self._secrets, self._pattern = frozenset(), None

    def masked(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _parts(secret: str) -> Iterator[str]:
    """Yield what is secret by itself in a secret: the password of an address, as it stands there and as it is, and the second of a pair."""
    for pattern in _PASSWORDS:
        if (found := pattern.match(secret)) and found[1]:
            yield from (found[1], unquote(found[1]))
    if "://" not in secret and len(second := secret.partition(":")[2]) >= SURE_SECRET:
        yield second


def _spellings(secret: str) -> set[str]:
    """Return a secret as it is, and as JSON, Python and URLs spell it."""
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    as_url = {quote(secret, safe="", errors="replace"), quote(secret, errors="replace"), quote_plus(secret, errors="replace")}
    return {
        secret,
        *escaped,
        *(text.replace("/", "\\/") for text in escaped),
        repr(secret)[1:-1],
        repr(f'{secret}"')[1:-2],  # within a text that has both quotes
        repr(secret.encode(errors="replace"))[2:-1],
        *as_url,
        *(_HEX.sub(lambda found: found[0].lower(), text) for text in as_url),
    }


def _pattern(form: str, *, sure: bool) -> str:
    """Return the pattern of a spelling. That of a short secret must be a whole word: next to a slash or a full stop, not within a name."""
    exactly = re.escape(form)
    return exactly if sure else rf"(?<![\w-])(?<!\w\.){exactly}(?![\w-])(?!\.\w)"
