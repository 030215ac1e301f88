"""The known name that a misspelt one may mean."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LEAST_LIKENESS = 0.7
"""By difflib's measure: STREAM is just as much like STREAM_NAME."""


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The one of these names that this one is most like, if it may be a misspelling of any."""
    folded = {known.casefold(): known for known in names}
    return next((folded[found] for found in get_close_matches(name.casefold(), folded, 1, LEAST_LIKENESS)), None)
