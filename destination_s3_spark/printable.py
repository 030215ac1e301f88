"""Text that a terminal or a log can show. Names come from sources, and their control characters could take a terminal over."""

from __future__ import annotations

import re
from json import dumps

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
