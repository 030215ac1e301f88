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


_STATS = "destinationStats"
_Edit = tuple[int, int, bytes]
"""The start and the end of a part of the line, and the text in its place."""
_BLOB_FIELD = {StateKind.STREAM: "stream", StateKind.GLOBAL: "global", StateKind.LEGACY: "data"}


@dataclass(frozen=True, slots=True)
class Totals:
    """Amount that a sync has committed of a stream so far: records, and the bytes of their lines."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateMessage:
    """A received STATE. `stream` is the catalog index, None for GLOBAL, LEGACY and streams that are not in the catalog.

    `state_hash` is the sha256 (hex) of the blob's bytes: the value of `stream`, `global` or `data`, without ids and statistics. The value
    of the member `state` is at bytes `start` to `end` of the `line`. `streams` maps the catalog's streams to their indexes. `totals` maps
    catalog indexes to the amounts that the sync has committed up to this STATE, once known.
    """

    kind: StateKind
    stream: int | None
    state_hash: str
    line: bytes
    start: int = 0
    end: int = 0
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
        if self.kind is StateKind.GLOBAL:
            entries = ((fields, self.streams.get(described)) for _, _, fields, described in self._entries())
            return next((fields.get("stream_state", NULL) for fields, index in entries if index == stream), None)
        found = _value_of(self.line, self.start, self.end, _BLOB_FIELD[self.kind])
        if found is not None and self.kind is StateKind.STREAM:
            found = _value_of(self.line, *found, "stream_state")
        return NULL if found is None else self.line[found[0] : found[1]]

    def clears_all(self) -> bool:
        """Tell whether it is a GLOBAL state as of a Clear of all streams of the catalog, under other names than the catalog's.

        The platform changes namespaces and prefixes in catalogs, RECORDs and STREAM states, but not in GLOBAL states. A Clear nulls the
        shared state too, unless streams that are not in its catalog keep theirs.
        """
        entries = self._entries()
        if any(described in self.streams for _, _, _, described in entries):
            return False
        nulled = sum(fields.get("stream_state", NULL) == NULL for _, _, fields, _ in entries)
        blob = _value_of(self.line, self.start, self.end, "global")
        shared = None if blob is None else _value_of(self.line, *blob, "shared_state")
        is_shared = shared is not None and self.line[shared[0] : shared[1]] != NULL
        return nulled >= len(self.streams) and (not is_shared or nulled < len(entries))

    def echo(self, record_count: int) -> bytes:
        """Return the line to send back, ending in a newline: as received, with `destinationStats.recordCount` (a double, as in `1000.0`).

        The totals are added too: those of the stream or of all streams, and for GLOBAL also those of each stream in its entry.
        """
        line, fields = self.line, split_object(self.line[self.start : self.end])
        count, stats = b"%d.0" % record_count, fields.get(_STATS, NULL)
        edits, written = list[_Edit](), dict[str, bytes]()
        if stats.startswith(b"{"):  # other statistics are kept
            place = _position(line, self.start, self.end, _STATS, stats)
            edits = _edits(line, *place, split_object(stats), {"recordCount": count})
        else:
            written = {_STATS: b'{"recordCount":%b}' % count}
        if self.totals is not None:
            written |= _sent(self._own_totals(self.totals))
            for start, end, entry, stream in self._entries():
                edits += _edits(line, start, end, entry, _sent(self.totals.get(self.streams.get(stream, -1), Totals())))
        edits += _edits(line, self.start, self.end, fields, written)
        parts, position = list[bytes](), 0
        for start, end, text in sorted(edits):
            parts += [line[position:start], text]
            position = end
        return b"".join([*parts, line[position:], b"\n"])

    def _own_totals(self, totals: Mapping[int, Totals]) -> Totals:
        if self.kind is StateKind.STREAM:
            return Totals() if self.stream is None else totals.get(self.stream, Totals())
        return Totals(sum(one.records for one in totals.values()), sum(one.bytes for one in totals.values()))

    def _entries(self) -> list[tuple[int, int, Mapping[str, bytes], StreamId]]:
        """Return the entries of a GLOBAL state: position in the line, members and stream. Malformed entries are left out."""
        line = self.line
        blob = _value_of(line, self.start, self.end, "global") if self.kind is StateKind.GLOBAL else None
        states = None if blob is None else _value_of(line, *blob, "stream_states")
        if states is None or line[states[0] : states[0] + 1] != b"[":
            return []
        found: list[tuple[int, int, Mapping[str, bytes], StreamId]] = []
        for start, end in elements(line, *states):
            with suppress(ValueError):
                fields = split_object(line[start:end])
                found.append((start, end, fields, _described(fields)))
        return found


def parse_state(line: bytes, state: bytes, streams: Mapping[StreamId, int]) -> StateMessage:
    """Parse the STATE message in `line`, where `state` is the text of its member `state`. Raises ValueError unless it is a usable STATE."""
    fields = split_object(state)
    kind = _kind(fields)
    blob = fields.get(_BLOB_FIELD[kind], NULL)
    stream = streams.get(_described(split_object(blob))) if kind is StateKind.STREAM else None
    start, end = _position(line, 0, len(line), "state", state)
    return StateMessage(kind, stream, hashlib.sha256(blob).hexdigest(), line, start, end, streams)


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


def _sent(totals: Totals) -> dict[str, bytes]:
    """Return the totals as members. No record is ever rejected, so `rejectedRecordsCount` is not sent."""
    return {"committedRecordsCount": b"%d" % totals.records, "committedBytesCount": b"%d" % totals.bytes}


def _edits(line: bytes, start: int, end: int, fields: Mapping[str, bytes], written: Mapping[str, bytes]) -> list[_Edit]:
    """Return the edits that put these members into the object at line[start:end], in place of those among its `fields`."""
    places = {} if fields.keys().isdisjoint(written) else {member.key: member for member in members(line, start, end)}
    edits = [(places[name].start, places[name].end, value) for name, value in written.items() if name in places]
    new = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in written.items() if name not in places)
    return [*edits, (end - 1, end - 1, b"," + new if fields else new)] if new else edits
