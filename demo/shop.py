"""Airbyte source of a made-up shop: customers, products and orders as protocol lines, identical for the same seed.

The records have nested objects, arrays, schemaless objects, dates, times, timestamps with and without a zone, decimals and nulls: about 20
fields and 780 bytes per line. A given share of the records has one value that does not fit its declared type. The benchmarks read
gigabytes of them, so a record is a template filled from columns of prepared JSON texts and never a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from demo import wares
from demo.wares import Season, Ware

NAMESPACE = "shop"
"""Namespace of all three streams."""

AVERAGE_LINE_BYTES = 780
"""Average size of a record line, including the newline. A test checks that the generator stays within two per cent of it."""

MIX = {"customers": 3, "products": 2, "orders": 5}
"""Records of each stream among ten in a row. Streams alternate record by record, the hardest order for a reader."""

CYCLE = sum(MIX.values())

CHUNK_RECORDS = 1_000
"""Records per chunk: enough to make the cost per chunk negligible, and few enough for smooth progress."""

_EMITTED_AT_MS = 1_767_225_600_000
_CHANGED_BY_SOURCE_SHARE = 0.002
_CHANGED_BY_SOURCE = ',"meta":{"changes":[{"field":"note","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}'


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole protocol lines, with the numbers of records and STATE messages among them."""

    lines: bytes
    records: int
    states: int


@dataclass(frozen=True, slots=True)
class Shop:
    """A source to read from.

    `dirty_share`: share of the records with a value that does not fit its type. `checkpoint_records`: records between two STATE messages, a
    multiple of ten. None sends STATEs only at the end.
    """

    seed: int = 7
    dirty_share: float = 0.01
    checkpoint_records: int | None = 5_000

    def catalog(self, modes: Mapping[str, str], sync_id: int = 1, season: Season = Season.FIRST) -> dict[str, Any]:
        """Return the configured catalog. `modes`: each stream's destination sync mode (`append`, `append_dedup`, `overwrite`)."""
        return {"streams": [_configured_stream(ware, modes[ware.name], sync_id) for ware in wares.stock(self.seed, 0.0, season)]}

    def read(self, records: int) -> Iterator[Chunk]:
        """Yield the messages of one sync with `records` records, rounded up to a full cycle of the mix. Every stream ends with COMPLETE."""
        return Sale(self).read(records, self.dirty_share)

    def until_checkpoint(self, sent: int) -> int:
        """Return the number of records until the next STATE, or those of a chunk if there are no STATEs in between."""
        if self.checkpoint_records is None:
            return CHUNK_RECORDS
        return self.checkpoint_records - sent % self.checkpoint_records


class Sale:
    """A shop's records over several syncs, each of which goes on where the one before it ended."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._writers = [_RecordWriter(ware, wares.seeded(shop.seed, ware.name, "records")) for ware in wares.stock(shop.seed, 0.0)]
        self._sent = 0
        self._states = 0

    def read(self, records: int, dirty_share: float, season: Season = Season.FIRST) -> Iterator[Chunk]:
        """Yield the messages of the next sync, as `Shop.read` does."""
        writers = self._writers
        for writer, ware in zip(writers, wares.stock(self._shop.seed, dirty_share, season), strict=True):
            writer.offer(ware)
        total = self._sent + -(-records // CYCLE) * CYCLE
        yield Chunk(b"".join(_status(writer.ware, status) for writer in writers for status in ("STARTED", "RUNNING")), 0, 0)
        while self._sent < total:
            sent = self._sent
            count = min(CHUNK_RECORDS - sent % CHUNK_RECORDS, total - sent, self._shop.until_checkpoint(sent))
            lines = _alternate(writers, sent, count)
            self._sent += count
            if self._shop.until_checkpoint(self._sent) == self._shop.checkpoint_records and self._sent < total:
                self._states += 1
                yield Chunk(lines + _state(writers[self._states % len(writers)], self._states), count, 1)
            else:
                yield Chunk(lines, count, 0)
        last = b"".join(_state(writer, self._states + 1 + index) for index, writer in enumerate(writers))
        self._states += len(writers)
        yield Chunk(last + b"".join(_status(writer.ware, "COMPLETE") for writer in writers), 0, len(writers))


def records_for(size_bytes: int) -> int:
    """Return the number of records for about `size_bytes` bytes of protocol lines."""
    return max(CYCLE, size_bytes // AVERAGE_LINE_BYTES // CYCLE * CYCLE)


def records_per_stream(records: int) -> dict[str, int]:
    """Return the number of records of each stream that `Shop.read(records)` sends."""
    cycles = -(-records // CYCLE)
    return {name: share * cycles for name, share in MIX.items()}


class _RecordWriter:
    """A writer that fills one stream's record template, a chunk at a time."""

    def __init__(self, ware: Ware, rng: Random) -> None:
        self.sent = 0
        self._rng = rng
        self._keys = 0
        self.offer(ware)

    def offer(self, ware: Ware) -> None:
        """Write records of this ware from now on."""
        self.ware = ware
        fields = ",".join(f'"{column.name}":{"%s" * len(column.parts)}' for column in ware.columns)
        self._template = (
            f'{{"type":"RECORD","record":{{"namespace":"{NAMESPACE}","stream":"{ware.name}",'
            f'"data":{{"id":%s,"updated_at":%s,{fields}}},"emitted_at":%s%s}}}}\n'
        )

    def write(self, count: int, sent: int) -> list[str]:
        """Return the next `count` record lines, after `sent` records of all streams. 1,000 records span a minute of the shop's time."""
        rng, columns = self._rng, self.ware.columns
        minute, place = divmod(sent, CHUNK_RECORDS)
        emitted = _EMITTED_AT_MS + minute * 60_000 + place * 60
        filled = zip(
            self._next_keys(count),
            wares.moments(minute, place, count),
            *(_drawn(rng, texts, count) for column in columns for texts in column.parts),
            range(emitted, emitted + count),
            self._changes(count),
            strict=True,
        )
        self.sent += count
        return list(map(self._template.__mod__, filled))

    def _next_keys(self, count: int) -> list[int]:
        """Return the next `count` keys: four new rows, then three newer versions of earlier rows, and so on (57 % distinct keys)."""
        keys = []
        random = self._rng.random
        for ordinal in range(self.sent, self.sent + count):
            if ordinal % 7 < 4:
                self._keys += 1
                keys.append(self._keys)
            else:
                keys.append(1 + int(random() * self._keys))
        return keys

    def _changes(self, count: int) -> list[str]:
        """Return the text after each record's `emitted_at`: empty, or a change that the source itself made."""
        changes = [""] * count
        if self._rng.random() < _CHANGED_BY_SOURCE_SHARE * count:
            changes[self._rng.randrange(count)] = _CHANGED_BY_SOURCE
        return changes


def _drawn(rng: Random, texts: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return `count` texts from a random position in the pool. Each column starts at a different position, so that rows do not repeat."""
    first = int(rng.random() * (len(texts) - count))
    return texts[first : first + count]


def _alternate(writers: list[_RecordWriter], sent: int, count: int) -> bytes:
    """Return the next `count` record lines (a multiple of the cycle), alternating between the streams."""
    lines = [""] * count
    first = 0
    for writer in writers:
        share = MIX[writer.ware.name]
        written = writer.write(count // CYCLE * share, sent)
        for place in range(share):
            lines[first + place :: CYCLE] = written[place::share]
        first += share
    return "".join(lines).encode()


def _configured_stream(ware: Ware, mode: str, sync_id: int) -> dict[str, Any]:
    shared = {"id": wares.INTEGER, "updated_at": wares.TIMESTAMP_WITH_TIMEZONE}
    properties = shared | {column.name: column.schema for column in ware.columns}
    generation = 1
    return {
        "stream": {
            "name": ware.name,
            "namespace": NAMESPACE,
            "json_schema": {"type": "object", "properties": properties},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["updated_at"],
            "source_defined_primary_key": [["id"]],
        },
        "sync_mode": "incremental",
        "cursor_field": ["updated_at"],
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "generation_id": generation,
        "minimum_generation_id": generation if mode == "overwrite" else 0,
        "sync_id": sync_id,
    }


def _state(writer: _RecordWriter, number: int) -> bytes:
    state = {
        "type": "STREAM",
        "stream": {
            "stream_descriptor": {"name": writer.ware.name, "namespace": NAMESPACE},
            "stream_state": {"cursor_field": ["updated_at"], "records_sent": writer.sent},
        },
        "id": number,
        "sourceStats": {"recordCount": float(writer.sent)},
    }
    return _line({"type": "STATE", "state": state})


def _status(ware: Ware, status: str) -> bytes:
    stream_status = {"stream_descriptor": {"name": ware.name, "namespace": NAMESPACE}, "status": status}
    return _line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": float(_EMITTED_AT_MS), "stream_status": stream_status}})


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
