"""Reading of record envelopes: the stream, time and meta of each record line, and the undecoded text of its `data`.

msgspec decodes many lines at once and leaves `data` undecoded. A line that msgspec refuses is read again on its own by an exact reader.
Both give the same result for every line that both accept. Unknown members are ignored everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from destination_s3_spark.decoding import coercions
from destination_s3_spark.exact_json.values import (
    ARRAY,
    NULL,
    QUOTE,
    Text,
    compact,
    split_array,
    split_object,
    string,
    without_lone_surrogates,
)
from destination_s3_spark.stream_id import StreamId

_Int64 = Annotated[int, msgspec.Meta(ge=coercions.INT64_MIN, le=coercions.INT64_MAX)]
_INTEGER = re.compile(rb"-?(?:0|[1-9]\d{0,18})")

REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""Exceptions that msgspec raises for a text that it cannot decode as the requested type."""


class UnreadableRecord(Exception):
    """A line cannot be read as a record. `index` is its ordinal in the block. The error never carries content."""

    def __init__(self, index: int) -> None:
        super().__init__(f"record {index} of the block cannot be read")
        self.index = index


class MisroutedRecord(Exception):
    """A record belongs to a stream other than the block's. `index` is its ordinal in the block."""

    def __init__(self, index: int) -> None:
        super().__init__(f"record {index} of the block belongs to another stream")
        self.index = index


class SourceChange(msgspec.Struct):
    """An entry of the source's `meta.changes`. Any text is accepted as a change or a reason."""

    field: str | None = None
    change: str | None = None
    reason: str | None = None


class Meta(msgspec.Struct):
    """A record's `meta`."""

    changes: list[SourceChange] | None = None


class Record(msgspec.Struct, kw_only=True):
    """A record with undecoded data. `emitted_at` is in ms since the epoch; the text in `data` is not yet known to be an object."""

    emitted_at: _Int64
    data: msgspec.Raw
    meta: Meta | None = None


class Unwrapped(NamedTuple):
    """The records of some lines.

    `texts` are those of `data`, not yet known to be objects. `emitted_at` is in ms since the epoch. `metas` pairs a row's ordinal in the
    block with its meta. All texts are parts of `source`, each between ASCII characters or the ends of `source`, so that they are valid
    UTF-8 if `source` is.
    """

    source: bytes
    texts: list[bytes]
    emitted_at: np.ndarray[Any, np.dtype[np.int64]]
    metas: list[tuple[int, Meta]]


class Envelopes:
    """Reader of the envelopes of one stream's record lines."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        message = msgspec.defstruct("Message", [("record", _record_of(stream))], gc=False)
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(message)
        self._decode_lines = decoder.decode_lines
        self._decode = decoder.decode

    def read(self, lines: bytes, first: int) -> Unwrapped:
        """Read whole lines. `first` is the ordinal in the block of the first line. Raises UnreadableRecord or MisroutedRecord."""
        records = self._records(lines, first)
        metas = [(row, record.meta) for row, record in enumerate(records, first) if record.meta is not None]
        emitted_at = np.fromiter((record.emitted_at for record in records), np.int64, len(records))
        return Unwrapped(lines, [bytes(record.data) for record in records], emitted_at, metas)

    def _records(self, lines: bytes, first: int) -> list[Record]:
        try:
            messages = self._decode_lines(lines)
        except REFUSED:
            messages = []
        if messages and _one_a_line(lines, len(messages)):
            return [message.record for message in messages]
        return [self._read_line(line, index) for index, line in enumerate(lines.removesuffix(b"\n").split(b"\n"), first)]

    def _read_line(self, line: bytes, index: int) -> Record:
        try:
            record: Record = self._decode(line).record
        except REFUSED:
            return self._read_exactly(line, index)
        return record

    def _read_exactly(self, line: bytes, index: int) -> Record:
        try:
            message = split_object(line)
            members = split_object(_required(message, "record"))
            stream = StreamId.of(_string(members.get("namespace", NULL)), _string(_required(members, "stream")) or "")
            emitted_at = _integer(_required(members, "emitted_at"))
            record = Record(emitted_at=emitted_at, data=msgspec.Raw(_required(members, "data")), meta=_meta(members))
        except ValueError:
            raise UnreadableRecord(index) from None
        if stream != self._stream:
            raise MisroutedRecord(index)
        return record


def _record_of(stream: StreamId) -> type[Record]:
    """Return a Struct type for the records of this stream. With it, msgspec refuses records of other streams."""
    name: Any = Literal[stream.name]
    namespace: Any = Literal[stream.namespace] if stream.namespace else Literal[""] | None
    own = ("namespace", namespace) if stream.namespace else ("namespace", namespace, None)
    return msgspec.defstruct("StreamRecord", [("stream", name), own], bases=(Record,), kw_only=True, gc=False)  # type: ignore[return-value]


def _one_a_line(lines: bytes, count: int) -> bool:
    """Return whether each line holds exactly one of the `count` JSON objects that the lines are known to consist of.

    No newline inside an object is between a closing and an opening brace. If all newlines are, none of them is inside an object.
    """
    text = np.frombuffer(lines, np.uint8)
    newlines = np.flatnonzero(text == ord("\n"))
    if newlines.size and newlines[-1] == len(lines) - 1:
        newlines = newlines[:-1]
    return bool(len(newlines) == count - 1 and (text[newlines - 1] == ord("}")).all() and (text[newlines + 1] == ord("{")).all())


def _required(members: Mapping[str, Text], key: str) -> Text:
    if key not in members:
        raise ValueError
    return members[key]


def _string(text: Text) -> str | None:
    text = bytes(text)
    if text == NULL:
        return None
    if text[0] != QUOTE:
        raise ValueError
    return without_lone_surrogates(string(text))


def _integer(text: Text) -> int:
    text = bytes(text)
    if not _INTEGER.fullmatch(text) or not coercions.INT64_MIN <= int(text) <= coercions.INT64_MAX:
        raise ValueError
    return int(text)


def _meta(members: Mapping[str, Text]) -> Meta | None:
    meta = bytes(members.get("meta", NULL))
    if meta == NULL:
        return None
    changes = bytes(split_object(meta).get("changes", NULL))
    if changes == NULL:
        return None
    if changes[0] != ARRAY:
        raise ValueError
    return Meta([_source_change(item) for item in split_array(changes)])


def _source_change(text: bytes) -> SourceChange:
    members = split_object(text)
    return SourceChange(*(_any_text(members.get(key, NULL)) for key in SourceChange.__struct_fields__))


def _any_text(text: Text) -> str | None:
    text = bytes(text)
    return _string(text) if text[0] == QUOTE or text == NULL else compact(text).decode()
