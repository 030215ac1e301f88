"""STATE messages, parsed only as far as routing needs and returned byte for byte.

The platform adds its own fields to a STATE (`id`, `partition_id`) and needs them back, and the blob inside belongs to the source. The
received line is therefore kept, and only statistics are inserted. They are `destinationStats.recordCount`, and the running totals that the
platform displays when it does not count records itself. It reads the totals next to the type of a STREAM state, and in each entry of a
GLOBAL one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from destination_s3_spark.exact_json.members import elements, members
from destination_s3_spark.exact_json.values import NULL, split_object, string_value
from destination_s3_spark.stream_id import StreamId


class StateKind(Enum):
    """Scope of a STATE: one stream, all streams, or (LEGACY) everything before it. The value is the protocol's name."""

    STREAM = "STREAM"
    GLOBAL = "GLOBAL"
    LEGACY = "LEGACY"


_TOTALS = ("committedRecordsCount", "committedBytesCount")
"""The members for the totals. No record is ever rejected, so `rejectedRecordsCount` is not sent."""
_BLOB_FIELD = {StateKind.STREAM: "stream", StateKind.GLOBAL: "global", StateKind.LEGACY: "data"}


@dataclass(frozen=True, slots=True)
class Totals:
    """Amount that a sync has committed of a stream so far: records, and the bytes of their lines."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateMessage:
    """A received STATE. `stream` is the catalog index, None for GLOBAL, LEGACY and streams that are not in the catalog.

    `state_hash` is the sha256 (hex) of the blob's bytes: the value of `stream`, `global` or `data`, without ids and statistics. `before`
    and `after` are the bytes of the line around the inserted number. The value of the member `state` starts at byte `start` of the line and
    ends `tail` bytes before its end. `streams` maps the catalog's streams to their indexes. `totals` maps catalog indexes to the amounts
    that the sync has committed up to this STATE, once known.
    """

    kind: StateKind
    stream: int | None
    state_hash: str
    before: bytes
    after: bytes
    start: int = 0
    tail: int = 0
    streams: Mapping[StreamId, int] = field(default_factory=dict)
    totals: Mapping[int, Totals] | None = None

    def covered(self, streams: Iterable[int]) -> Iterable[int]:
        """Return the streams, of those given, whose records the STATE covers; none for a stream that is not in the catalog."""
        if self.kind is not StateKind.STREAM:
            return streams
        return () if self.stream is None else (self.stream,)

    def blob_of(self, stream: int) -> bytes | None:
        """Return the text of the state of one stream that it covers: of a LEGACY state all of it.

        Return None for a GLOBAL state without an entry for the stream.
        """
        line = b"%b0%b" % (self.before, self.after)
        end = len(line) - self.tail
        if self.kind is StateKind.GLOBAL:
            entries = ((fields, self.streams.get(described)) for _, _, fields, described in self._entries(line, end))
            return next((fields.get("stream_state", NULL) for fields, index in entries if index == stream), None)
        found = _value_of(line, self.start, end, _BLOB_FIELD[self.kind])
        if found is not None and self.kind is StateKind.STREAM:
            found = _value_of(line, *found, "stream_state")
        return NULL if found is None else line[found[0] : found[1]]

    def clears_all(self) -> bool:
        """Tell whether it is a GLOBAL state as of a Clear of all streams of the catalog, under other names than the catalog's.

        The platform changes namespaces and prefixes in catalogs, RECORDs and STREAM states, but not in GLOBAL states. A Clear nulls the
        shared state too, unless streams that are not in its catalog keep theirs.
        """
        line = b"%b0%b" % (self.before, self.after)
        end = len(line) - self.tail
        entries = self._entries(line, end)
        if any(described in self.streams for _, _, _, described in entries):
            return False
        nulled = sum(fields.get("stream_state", NULL) == NULL for _, _, fields, _ in entries)
        blob = _value_of(line, self.start, end, "global")
        shared = None if blob is None else _value_of(line, *blob, "shared_state")
        is_shared = shared is not None and line[shared[0] : shared[1]] != NULL
        return nulled >= len(self.streams) and (not is_shared or nulled < len(entries))

    def echo(self, record_count: int) -> bytes:
        """Return the line to send back, ending in a newline: as received, with `destinationStats.recordCount` (a double, as in `1000.0`).

        The totals are added too: those of the stream or of all streams, and for GLOBAL also those of each stream in its entry.
        """
        line = b"%b%d.0%b" % (self.before, record_count, self.after)
        return (line if self.totals is None else self._with_totals(line, self.totals)) + b"\n"

    def _with_totals(self, line: bytes, totals: Mapping[int, Totals]) -> bytes:
        def of(stream: int | None) -> Totals:
            return Totals() if stream is None else totals.get(stream, Totals())

        end = len(line) - self.tail
        if self.kind is StateKind.STREAM:
            own = of(self.stream)
        else:
            own = Totals(sum(one.records for one in totals.values()), sum(one.bytes for one in totals.values()))
        edits = _edits(line, self.start, end, split_object(line[self.start : end]), own)
        for start, stop, fields, stream in self._entries(line, end):
            edits += _edits(line, start, stop, fields, of(self.streams.get(stream)))
        parts, position = [], 0
        for start, stop, text in sorted(edits):
            parts += [line[position:start], text]
            position = stop
        return b"".join([*parts, line[position:]])

    def _entries(self, line: bytes, end: int) -> list[tuple[int, int, Mapping[str, bytes], StreamId]]:
        """Return the entries of a GLOBAL state: position in the line, members and stream. Malformed entries are left out."""
        blob = _value_of(line, self.start, end, "global") if self.kind is StateKind.GLOBAL else None
        states = None if blob is None else _value_of(line, *blob, "stream_states")
        if states is None or line[states[0] : states[0] + 1] != b"[":
            return []
        found: list[tuple[int, int, Mapping[str, bytes], StreamId]] = []
        for start, stop in elements(line, *states):
            with suppress(ValueError):
                fields = split_object(line[start:stop])
                found.append((start, stop, fields, _described(fields)))
        return found


def parse_state(line: bytes, state: bytes, streams: Mapping[StreamId, int]) -> StateMessage:
    """Parse the STATE message in `line`, where `state` is the text of its member `state`. Raises ValueError unless it is a usable STATE."""
    fields = split_object(state)
    kind = _kind(fields)
    blob = fields.get(_BLOB_FIELD[kind], NULL)
    stream = streams.get(_described(split_object(blob))) if kind is StateKind.STREAM else None
    start, end = _position(line, 0, len(line), "state", state)
    if "destinationStats" in fields:
        before, after = _around_known_stats(line, start, end)
    else:
        before, after = _around_new_member(line, end, b'"destinationStats":{"recordCount":', b"}", is_first=not fields)
    return StateMessage(kind, stream, hashlib.sha256(blob).hexdigest(), before, after, start, len(line) - end, streams)


def _kind(fields: Mapping[str, bytes]) -> StateKind:
    """Return the declared type. Without a known one, the message's content decides."""
    declared = fields.get("type", NULL)
    for kind in StateKind:
        if declared == b'"%b"' % kind.value.encode():
            return kind
    for kind in (StateKind.GLOBAL, StateKind.STREAM):
        if fields.get(_BLOB_FIELD[kind], NULL) != NULL:
            return kind
    return StateKind.LEGACY


def _described(fields: Mapping[str, bytes]) -> StreamId:
    descriptor = split_object(fields.get("stream_descriptor", NULL))
    namespace = descriptor.get("namespace", NULL)
    return StreamId.of(None if namespace == NULL else string_value(namespace), string_value(descriptor.get("name", NULL)))


def _around_known_stats(line: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """Return the bytes around the number in the existing `destinationStats` of the state at line[start:end]. Other statistics are kept."""
    stats = next(member for member in reversed(members(line, start, end)) if member.key == "destinationStats")
    if line[stats.start : stats.start + 1] != b"{":
        return line[: stats.start] + b'{"recordCount":', b"}" + line[stats.end :]
    known = members(line, stats.start, stats.end)
    for member in reversed(known):
        if member.key == "recordCount":
            return line[: member.start], line[member.end :]
    return _around_new_member(line, stats.end, b'"recordCount":', b"", is_first=not known)


def _around_new_member(line: bytes, end: int, opening: bytes, closing: bytes, *, is_first: bool) -> tuple[bytes, bytes]:
    """Return the bytes around the number in a new last member of the object that ends at `end`."""
    comma = b"" if is_first else b","
    return line[: end - 1] + comma + opening, closing + line[end - 1 :]


def _value_of(text: bytes, start: int, end: int, key: str) -> tuple[int, int] | None:
    """Return the position of the value of the object's last member with this name; None without one or if the text is no object."""
    if text[start : start + 1] != b"{":
        return None
    value = split_object(text[start:end]).get(key)
    if value is None:
        return None
    return _position(text, start, end, key, value)


def _position(text: bytes, start: int, end: int, key: str, value: bytes) -> tuple[int, int]:
    """Return the position of this value, which is that of the object's last member with this name."""
    first = text.find(value, start, end)
    if first == text.rfind(value, start, end):
        return first, first + len(value)
    return next((member.start, member.end) for member in reversed(members(text, start, end)) if member.key == key)


def _edits(line: bytes, start: int, end: int, fields: Mapping[str, bytes], totals: Totals) -> list[tuple[int, int, bytes]]:
    """Return the edits (start, end, new text) that put the totals among the members of the object at line[start:end].

    `fields` are the object's current members.
    """
    written = dict(zip(_TOTALS, (totals.records, totals.bytes), strict=True))
    if fields.keys().isdisjoint(_TOTALS):
        text = b",".join(b'"%b":%d' % (name.encode(), number) for name, number in written.items())
        return [(end - 1, end - 1, b"," + text if fields else text)]
    known = {member.key: member for member in members(line, start, end)}
    edits = [(known[name].start, known[name].end, b"%d" % written[name]) for name in _TOTALS if name in known]
    return edits + [(end - 1, end - 1, b',"%b":%d' % (name.encode(), written[name])) for name in _TOTALS if name not in known]
