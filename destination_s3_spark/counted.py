"""Numbers as messages say them: with their noun, as a size, as a duration."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size_text(size_bytes: int | None) -> str:
    """Return a size in a suitable decimal unit, or a question mark if it is unknown."""
    if size_bytes is None:
        return "?"
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def duration_text(seconds: float | None) -> str:
    """Return a duration in its two largest units, or a question mark if it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {left:02} s"


def listed(texts: Sequence[str], most: int) -> str:
    """Return texts separated by commas. Those after the first `most` are only counted: `a, b and 3 more`."""
    more = len(texts) - most
    return ", ".join(texts) if more <= 0 else f"{', '.join(texts[:most])} and {more:,} more"
