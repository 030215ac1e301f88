"""Words of messages: numbers with their nouns, sizes, durations, suggestions of names, and text that a terminal can show.

Tasks import it, and executors have no pydantic. Names come from sources, and their control characters could take a terminal over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from json import dumps


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


LINE_END = "␤"
"""Shown for a line end within a name, which would otherwise look like the end of the message."""
_FORMULA = ("=", "+", "-", "@")
_UNUSUAL = re.compile(r"[^\n -~]")


def printable(text: str, line_end: str = "\n") -> str:
    """Return the text without characters that nothing is to be seen of. Line ends become `line_end`."""
    if text.isprintable():
        return text
    shown = {"\n": line_end, "\t": " "}
    return "".join(character if character.isprintable() else shown.get(character, "�") for character in text)


def printable_json(document: bytes) -> bytes:
    """Return the JSON document with such characters escaped. Its values stay what they are."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _UNUSUAL.sub(_escaped, document.decode()).encode()


def spreadsheet_cell(text: str) -> str:
    """Return the text as one line that no spreadsheet takes for a formula: an apostrophe comes before what begins like one."""
    line = printable(text, LINE_END)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _escaped(unusual: re.Match[str]) -> str:
    return unusual[0] if unusual[0].isprintable() else dumps(unusual[0])[1:-1]


LEAST_LIKENESS = 0.7
"""Minimum similarity by difflib's measure. The similarity of STREAM and STREAM_NAME is only just above it."""


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the known names, or None if none is similar enough for a misspelling."""
    folded = {known.casefold(): known for known in names}
    return next((folded[found] for found in get_close_matches(name.casefold(), folded, 1, LEAST_LIKENESS)), None)
