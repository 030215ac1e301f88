"""Reading of one record line: its stream, its time, the source's changes, and the undecoded text of its `data`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.decoding.coercions import INT64_MAX
from destination_s3_spark.exact_json.values import ARRAY, NULL, QUOTE, compact, split_array, split_object, string, without_lone_surrogates
from destination_s3_spark.stream_id import StreamId

_INTEGER = re.compile(rb"-?(?:0|[1-9]\d{0,18})")
LATEST_MS = INT64_MAX // 1000
"""Latest time of a record, in ms since the epoch, and the earliest one is as far before it: those that tables can hold in microseconds."""


class UnreadableRecord(Exception):
    """A line cannot be read as a record. `index` is its ordinal in the block. The error never carries content."""

    def __init__(self, index: int) -> None:
        super().__init__(f"record {index} of the block cannot be read")
        self.index = index


class MisroutedRecord(UnreadableRecord):
    """A record belongs to a stream other than the block's."""


class RecordLine(NamedTuple):
    """A record with undecoded data. `emitted_at` is in ms since the epoch; the text in `data` is not yet known to be an object."""

    stream: StreamId
    emitted_at: int
    data: bytes
    changes: list[ChangedField]


def read_line(line: bytes) -> RecordLine:
    """Read a line. Unknown members are ignored everywhere. Raises ValueError unless it is a record."""
    members = split_object(_required(split_object(line), "record"))
    stream = StreamId.of(_string(members.get("namespace", NULL)), _string(_required(members, "stream")) or "")
    changes = source_changes(members.get("meta", NULL))
    return RecordLine(stream, _time(_required(members, "emitted_at")), _required(members, "data"), changes)


def source_changes(meta: bytes) -> list[ChangedField]:
    """Return the changes in a record's `meta`, with any text as a change or a reason.

    Raises ValueError for another value than an object, and for other changes than objects.
    """
    changes = NULL if meta == NULL else split_object(meta).get("changes", NULL)
    if changes == NULL:
        return []
    if changes[0] != ARRAY:
        raise ValueError
    found = map(split_object, split_array(changes))
    return [ChangedField(*(_any_text(members.get(key, NULL)) for key in ChangedField._fields)) for members in found]


def _required(members: Mapping[str, bytes], key: str) -> bytes:
    if key not in members:
        raise ValueError
    return members[key]


def _string(text: bytes) -> str | None:
    if text == NULL:
        return None
    if text[0] != QUOTE:
        raise ValueError
    return without_lone_surrogates(string(text))


def _time(text: bytes) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > LATEST_MS:
        raise ValueError
    return int(text)


def _any_text(text: bytes) -> str | None:
    return _string(text) if text[0] == QUOTE or text == NULL else compact(text).decode()
