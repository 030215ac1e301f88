"""Count of the times that this process may have left an upload open without anyone knowing of it, so that only a listing finds it.

Either an attempt to begin an upload had no response, and the store may have begun one; or an upload that nobody needs could not be aborted.
"""

from __future__ import annotations

from threading import Lock

_COUNTING = Lock()
_count = 0


def note() -> None:
    """Count one more time."""
    global _count  # noqa: PLW0603 (one count per process, because clients are shared too)
    with _COUNTING:
        _count += 1


def count() -> int:
    """Return the number of times so far."""
    return _count
