"""How often this process began an upload again because the answer to the first request did not come.

The store may have begun one for each request. Nobody knows the ids of the others, so they can only be found by listing.
"""

from __future__ import annotations

from threading import Lock

_COUNTING = Lock()
_count = 0


def note() -> None:
    """Count one more."""
    global _count  # noqa: PLW0603 (of the process, whose clients are shared as well)
    with _COUNTING:
        _count += 1


def count() -> int:
    """How many there were so far."""
    return _count
