"""Object keys from destination-s3's templates: `s3_bucket_path`, `s3_path_format` and `file_name_pattern`.

A key consists of the table's root and a tail. The root is the longest constant folder and ends in "/" (see `final_root`). The tail is
rendered for each file and contains a token that no other file has. Where a stream's root had to differ from the template's (`table_paths`),
the caller passes the root and the tail stays the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TypeAlias
from uuid import uuid4

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.wording import nearest_name

DEFAULT_PATH_FORMAT = "${NAMESPACE}/${STREAM_NAME}/${YEAR}_${MONTH}_${DAY}_${EPOCH}_"
DEFAULT_FILE_PATTERN = "{part_number}{format_extension}"
MAX_KEY_BYTES = 1024
"""S3's limit for a key, in UTF-8 bytes."""

_VARIABLE = re.compile(r"\$\{(\w*)\}|\{(\w+)(?::([^{}]*))?\}")
_EXTENSION = re.compile(r"(?:\.(?:parquet|avro|csv|tsv|txt|jsonl?|gz))+$", re.IGNORECASE)
"""Extensions of data files that users write, ours or not: more than those of `formats.registry`."""
_WIDEST = {"format_extension": 16, "part_number": 12, "SYNC_ID": 20, "sync_id": 20, "UUID": 36, "timestamp": 17, "date": 40, "token": 41}
_NAME_LIMITS = (MAX_KEY_BYTES, 150, 50)
_DIGITS = {"YEAR": 4, "MONTH": 2, "DAY": 2, "HOUR": 2, "MINUTE": 2, "SECOND": 2, "MILLISECOND": 4}
_PATH_VARIABLES = ("NAMESPACE", "STREAM_NAME", "SYNC_ID", "UUID", "EPOCH", *_DIGITS)
_FILE_VARIABLES = ("date", "timestamp", "part_number", "sync_id", "format_extension")
_SPELLINGS = {name: f"${{{name}}}" for name in _PATH_VARIABLES} | {name: f"{{{name}}}" for name in _FILE_VARIABLES}
_BARE = re.compile(r"\$(\w+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def date_text(pattern: str, time: datetime) -> str:
    """Format the time by a date pattern, with English names. Raises ConfigError as `_runs` does."""
    return "".join(_format(letter, len(text), time) if letter else text for letter, text in _runs(pattern))


def date_regex(pattern: str) -> str:
    """Return a regular expression that matches every result of `date_text`. Raises ConfigError as `_runs` does."""
    return "".join(_regex(letter, len(text)) if letter else re.escape(text) for letter, text in _runs(pattern))


def _runs(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the runs of one letter in a date pattern, and literal text (letter "").

    Raises ConfigError naming an unsupported letter (weeks, eras and time zones) or an unclosed quote.
    """
    end = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        letter, quoted = match[2] or "", match[1]
        if letter and letter not in {"y", "a", "E", *_NUMBERS}:
            raise ConfigError(
                f"file_name_pattern: '{letter}' in {{date:{pattern}}} is not supported. Use y, M, d, D, H, h, m, s, S, a and E."
            )
        yield letter, match[0] if quoted is None else quoted.replace("''", "'") or "'"
    if end != len(pattern):
        raise ConfigError(f"file_name_pattern: {{date:{pattern}}} has a quote that is not closed.")


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


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    argument: str = ""


_Part: TypeAlias = str | _Variable


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """The three path templates of a configuration, with the values that are constant in one sync.

    `path_format` and `file_pattern` None mean destination-s3's defaults. `started_at` is the start of the sync in UTC. Only `{timestamp}`
    is the time of the file, from `clock`. Raises ConfigError for an unsupported date pattern. Raises ConfigError for text in a path that is
    probably a misspelt variable: as plain text it would mix all streams in one folder.
    """

    bucket_path: str
    path_format: str | None
    file_pattern: str | None
    started_at: datetime
    sync_id: int
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        for part in self._parts():
            if isinstance(part, _Variable):
                _regex_of(part)
        for option, written, near in self._unknown():
            if near is not None and option != "file_name_pattern":
                raise ConfigError(
                    f"{option}: there is no variable {written}; it would be plain text, the same for all streams. Write {near}."
                )

    @property
    def base(self) -> str:
        """Constant folder at the start of the bucket path, "" or ending in "/". It holds the connector's own folders."""
        first = next(_parse(self.bucket_path + "/", in_file_name=False), "")
        folder = first if isinstance(first, str) else ""
        return _folder(folder[: folder.rfind("/") + 1])

    def final_root(self, stream: StreamId) -> str:
        """Return the longest constant folder of the stream's keys, ending in "/" (or "" for the whole bucket)."""
        return self._bind(stream)[0]

    def identity(self, stream: StreamId) -> tuple[str, ...]:
        """Return the parts of the stream's identity that its root contains. Streams with equal parts share a root by the user's choice."""
        used: set[str] = set()
        waiting: set[str] = set()
        for part in takewhile(lambda part: isinstance(part, str) or part.name in {"NAMESPACE", "STREAM_NAME"}, self._parts()):
            if isinstance(part, _Variable):
                waiting.add(part.name)
            elif "/" in part:
                used |= waiting
        return (("namespace", stream.namespace or "") if "NAMESPACE" in used else ()) + (
            ("name", stream.name) if "STREAM_NAME" in used else ()
        )

    def key(self, stream: StreamId, extension: str, token: int, part_number: int, root: str | None = None) -> str:
        """Render the key of a file, made unique by `token`. Raises ConfigError for a key longer than S3's limit.

        `extension` begins with a dot. It is at the end, after the token, in the place of an extension at the end of the pattern. `root`
        replaces the template's root.
        """
        template_root, tail = self._bind(stream)
        values = self._values() | {"part_number": str(part_number), "format_extension": extension}
        text = ""
        for part in tail:
            if isinstance(part, str):
                text += part
            elif part.name == "token":
                text += str(token) if not text or text.endswith("/") else f"-{token}"
            elif part.argument:
                text += self._with_argument(part)
            else:
                text += values[part.name]
        key = (template_root if root is None else root) + safe_segments(text)
        if len(key.encode()) > MAX_KEY_BYTES:
            raise ConfigError(
                f"The key '{key[:100]}…' is longer than S3's {MAX_KEY_BYTES} bytes. Shorten s3_bucket_path or s3_path_format."
            )
        return key

    def warnings(self) -> list[str]:
        return [
            f"{option}: there is no variable {written}, so it is plain text in every name{f' (did you mean {near}?)' if near else ''}"
            for option, written, near in self._unknown()
        ]

    def key_pattern(self, stream: StreamId, root: str | None = None) -> re.Pattern[str]:
        """Return a pattern for the stream's keys, destination-s3's and the connector's, from any sync. Group `part` is the part number."""
        template_root, tail = self._bind(stream)
        expression = "/?" + re.escape(template_root if root is None else root)
        named = False
        for part in tail:
            if isinstance(part, str):
                expression += re.escape(part)
            elif part.name == "part_number" and not named:
                expression += r"(?P<part>\d+)"
                named = True
            else:
                expression += _regex_of(part)
        return re.compile(expression + r"(?:-\d+)?")

    def _unknown(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield (option, text, probable variable) for text that looks like a variable but is not one."""
        for option, template in (("s3_bucket_path", self.bucket_path), ("s3_path_format", self.path_format or "")):
            yield from _unknown(option, template, _PATH_VARIABLES)
            for match in _BARE.finditer(template):  # may also be plain text, so only a near match counts
                if near := nearest_name(match[1], _PATH_VARIABLES):
                    yield option, match[0], _SPELLINGS[near]
        yield from _unknown("file_name_pattern", self.file_pattern or "", _FILE_VARIABLES)

    def _parts(self) -> tuple[_Part, ...]:
        """Parse the whole template, with adjacent text joined into one part."""
        path = DEFAULT_PATH_FORMAT if self.path_format is None else self.path_format
        folder = f"{self.bucket_path}/{path}" if path else self.bucket_path
        name = re.sub(r"\s", "_", (self.file_pattern or "").strip()) or DEFAULT_FILE_PATTERN
        return (*_parse(folder, in_file_name=False), *_with_token(list(_parse(name, in_file_name=True))))

    def _bind(self, stream: StreamId) -> tuple[str, tuple[_Part, ...]]:
        """Return root and tail with the stream's names filled in. Names too long for S3's limit are cut and end in the stream's hash."""
        namespace, name = namespace_folder(stream.namespace), stream_folder(stream.name)
        for limit in _NAME_LIMITS:
            names = {"NAMESPACE": _cut(namespace, stream, limit), "STREAM_NAME": _cut(name, stream, limit)}
            parts = tuple(_joined(names.get(part.name, part) if isinstance(part, _Variable) else part for part in self._parts()))
            if sum(_widest(part) for part in parts) <= MAX_KEY_BYTES:
                break
        else:
            raise ConfigError(f"s3_bucket_path and s3_path_format make keys longer than S3's {MAX_KEY_BYTES} bytes. Shorten them.")
        head = parts[0] if parts and isinstance(parts[0], str) else ""
        cut = head.rfind("/") + 1
        rest = parts[1:] if head else parts
        return _folder(head[:cut]), tuple(_joined((head[cut:], *rest)))

    def _values(self) -> dict[str, str]:
        start = self.started_at.astimezone(UTC)
        numbers = (start.year, start.month, start.day, start.hour, start.minute, start.second, start.microsecond // 1000)
        return {name: f"{number:0{width}}" for (name, width), number in zip(_DIGITS.items(), numbers, strict=True)} | {
            "EPOCH": str(_microseconds(start) // 1000),
            "SYNC_ID": str(self.sync_id),
            "sync_id": str(self.sync_id),
            "UUID": str(uuid4()),
            "date": f"{start:%Y_%m_%d}",
            "timestamp": str(_microseconds(self.clock()) // 1000),
        }

    def _with_argument(self, part: _Variable) -> str:
        if part.name == "date":
            return date_text(part.argument, self.started_at.astimezone(UTC))
        now = _microseconds(self.clock())
        return str(now if part.argument == "micro" else now // 1000)


def _parse(template: str, *, in_file_name: bool) -> Iterator[_Part]:
    """Parse a template into text and variables. Unknown `${FOO}` becomes FOO, as in destination-s3; unknown `{foo}` stays as it is."""

    def parts() -> Iterator[_Part]:
        end = 0
        for match in _VARIABLE.finditer(template):
            yield template[end : match.start()]
            end = match.end()
            variable = _variable(match, in_file_name=in_file_name)
            yield variable or (match[0] if match[1] is None else match[1])
        yield template[end:]

    return _joined(parts())


def _variable(match: re.Match[str], *, in_file_name: bool) -> _Variable | None:
    path_name, file_name, argument = match[1], match[2], match[3] or ""
    if path_name is not None:
        return _Variable(path_name) if path_name in _PATH_VARIABLES else None
    return _Variable(file_name, argument) if in_file_name and _is_file_variable(file_name, argument) else None


def _unknown(option: str, template: str, names: tuple[str, ...]) -> Iterator[tuple[str, str, str | None]]:
    for match in _VARIABLE.finditer(template):
        if _variable(match, in_file_name=names is _FILE_VARIABLES) is None:
            near = nearest_name(match[1] or match[2] or "", names)
            yield option, match[0], _SPELLINGS[near] if near else None


def _is_file_variable(name: str, argument: str) -> bool:
    if name == "timestamp":
        return argument in {"", "millis", "micro"}
    return name == "date" or (name in {"part_number", "sync_id", "format_extension"} and not argument)


def _with_token(name: list[_Part]) -> list[_Part]:
    """Let the file name end in the token's placeholder and the extension, in the place of one that it ends in."""
    *parts, last = name
    if isinstance(last, str):
        parts.append(_EXTENSION.sub("", last))
    elif last != _Variable("format_extension"):
        parts.append(last)
    return [*parts, _Variable("token"), _Variable("format_extension")]


def _joined(parts: Iterator[_Part] | tuple[_Part, ...]) -> Iterator[_Part]:
    """Yield the parts with adjacent text joined, repeated slashes collapsed and empty text left out."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text = re.sub("/+", "/", text + part)
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


def _regex_of(part: _Variable) -> str:
    if part.name in _DIGITS:
        return rf"\d{{{_DIGITS[part.name]}}}"
    if part.name == "date":
        return date_regex(part.argument or "yyyy_MM_dd")
    special = {"UUID": "[0-9A-Fa-f-]{36}", "format_extension": r"(?:\.[A-Za-z0-9]+)*", "token": r"(?:-?\d+)?"}
    return special.get(part.name, r"\d+")


def _widest(part: _Part) -> int:
    return len(part.encode()) if isinstance(part, str) else _WIDEST.get(part.name, 13) + len(part.argument)


def _cut(text: str, stream: StreamId, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}_{stream_hash(stream)}"


def _folder(path: str) -> str:
    """Return the path with safe segments: "" or ending in "/"."""
    segments = safe_segments(path)
    return f"{segments}/" if segments else ""


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
