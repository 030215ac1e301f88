"""Parts of the paths that destination-s3 makes: names in its safe form, and dates by a subset of Java's SimpleDateFormat."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.stream_id import StreamId

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS = {
    "M": lambda time: time.month,
    "d": lambda time: time.day,
    "D": lambda time: time.timetuple().tm_yday,
    "H": lambda time: time.hour,
    "h": lambda time: (time.hour - 1) % 12 + 1,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
    "S": lambda time: time.microsecond // 1000,
}
_UNSAFE = re.compile(r"[^A-Za-z0-9/!_.*')(&$@=;:+,?-]")
_WHEN_EMPTY = "unnamed"


def safe_characters(text: str) -> str:
    """Return destination-s3's form of a name: NFKD without combining marks, and `_` for each character that is unsafe in S3 keys."""
    decomposed = unicodedata.normalize("NFKD", text)
    return _UNSAFE.sub("_", "".join(c for c in decomposed if not unicodedata.category(c).startswith("M")))


def safe_segments(path: str) -> str:
    """Return the path without empty segments. `.` and `..` become underscores because readers and browsers would resolve them."""
    segments = (segment for segment in path.split("/") if segment)
    return "/".join("_" * len(segment) if segment in {".", ".."} else segment for segment in segments)


def namespace_folder(namespace: str | None) -> str:
    """Return the folder of a namespace, which may contain slashes; empty without a namespace."""
    return safe_segments(safe_characters(namespace or ""))


def stream_folder(name: str) -> str:
    """Return the folder of a stream's name, which may contain slashes; never empty."""
    return safe_segments(safe_characters(name)) or _WHEN_EMPTY


def stream_hash(stream: StreamId) -> str:
    """Return 8 hex digits of the stream's identity, the same in every sync."""
    return hashlib.sha256(json.dumps([stream.namespace or "", stream.name]).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A parsed pattern: runs of one letter, and literal text (letter "")."""

    runs: tuple[tuple[str, str], ...]

    def format(self, time: datetime) -> str:
        """Format the time with English names."""
        return "".join(text if not letter else _format(letter, len(text), time) for letter, text in self.runs)

    def regex(self) -> str:
        """Return a regular expression that matches every result of `format`."""
        return "".join(_regex(letter, len(text)) if letter else re.escape(text) for letter, text in self.runs)


def parse_date_pattern(pattern: str) -> DatePattern:
    """Parse the pattern. Raises ConfigError naming an unsupported letter (weeks, eras and time zones) or an unclosed quote."""
    runs: list[tuple[str, str]] = []
    end = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        letter = match[2] or ""
        if letter and letter not in {"y", "a", "E", *_NUMBERS}:
            raise ConfigError(
                f"file_name_pattern: '{letter}' in {{date:{pattern}}} is not supported. Use y, M, d, D, H, h, m, s, S, a and E."
            )
        quoted = match[1]
        runs.append((letter, match[0] if quoted is None else quoted.replace("''", "'") or "'"))
    if end != len(pattern):
        raise ConfigError(f"file_name_pattern: {{date:{pattern}}} has a quote that is not closed.")
    return DatePattern(tuple(runs))


def _format(letter: str, width: int, time: datetime) -> str:
    if letter == "y":
        return f"{time.year % 100:02}" if width == 2 else f"{time.year:0{width}}"
    if letter == "a":
        return "AM" if time.hour < 12 else "PM"
    if letter == "E":
        return _DAYS[time.weekday()][: None if width >= 4 else 3]
    if letter == "M" and width >= 3:
        return _MONTHS[time.month - 1][: None if width >= 4 else 3]
    return f"{_NUMBERS[letter](time):0{width}}"


def _regex(letter: str, width: int) -> str:
    return "[A-Za-z]+" if letter in {"a", "E"} or (letter == "M" and width >= 3) else r"\d+"
