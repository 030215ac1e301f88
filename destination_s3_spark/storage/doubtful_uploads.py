"""Count of CreateMultipartUpload requests that this process repeated after an attempt without a response.

The store may have begun one upload per attempt. The ids of the others are unknown, so only a listing finds them.
"""

from __future__ import annotations

from threading import Lock

_COUNTING = Lock()
_count = 0


def note() -> None:
    """Count one more repeated request."""
    global _count  # noqa: PLW0603 (one count per process, because clients are shared too)
    with _COUNTING:
        _count += 1


def count() -> int:
    """Return the number of repeated requests so far."""
    return _count
