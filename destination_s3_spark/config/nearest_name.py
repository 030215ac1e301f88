"""Suggestion of a known name for a misspelt one. Tasks import it, and executors have no pydantic."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LEAST_LIKENESS = 0.7
"""Minimum similarity by difflib's measure. The similarity of STREAM and STREAM_NAME is only just above it."""


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the known names, or None if none is similar enough for a misspelling."""
    folded = {known.casefold(): known for known in names}
    return next((folded[found] for found in get_close_matches(name.casefold(), folded, 1, LEAST_LIKENESS)), None)
