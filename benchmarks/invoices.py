"""The input of the merge benchmarks: invoices with keys of one's choice, made column by column, faster than they are read.

An invoice has 12 fields: a 64-bit key, the time of its last change as cursor, texts, numbers, booleans and timestamps; about 260 bytes
of JSON, 370 a line. The same seed, version and keys make the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NAMESPACE = "shop"
STREAM = "invoices"
CHUNK_ROWS = 10_000
NOTE_LETTERS = 32
LINE_BYTES = 368
"""What a record line takes on average, newline included; longer keys make longer lines."""

_FIRST_MS = 1_767_225_600_000
_DAY_MS = 86_400_000
_STATUSES = pa.array(["draft", "open", "paid", "overdue", "void"])
_COUNTRIES = pa.array(["AT", "BR", "CH", "DE", "FR", "IN", "JP", "KE", "NO", "US"])
_BOOLEANS = pa.array(["false", "true"])
_TEXT = {"type": ["null", "string"]}
_TIME = {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
_PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "updated": _TIME,
    "created": _TIME,
    "customer_id": {"type": ["null", "integer"]},
    "status": _TEXT,
    "country": _TEXT,
    "email": _TEXT,
    "note": _TEXT,
    "quantity": {"type": ["null", "integer"]},
    "price": {"type": ["null", "number"]},
    "paid": {"type": ["null", "boolean"]},
    "gift": {"type": ["null", "boolean"]},
}

_CDC_PROPERTIES: dict[str, Any] = {
    "_ab_cdc_lsn": {"type": ["null", "integer"]},
    "_ab_cdc_updated_at": _TEXT,
    "_ab_cdc_deleted_at": _TEXT,
}

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Invoices:
    """The invoices with these keys, as they were changed in one version: a later version has later times of change.

    With `cdc` they come as a source reads them from a database's log, every hundredth as a deletion of a later version than 0.
    """

    keys: Integers
    version: int = 0
    seed: int = 7
    cdc: bool = False

    def chunks(self) -> Iterator[memoryview]:
        """Whole record lines, so many rows at a time, in the order of the keys given."""
        for number, start in enumerate(range(0, len(self.keys), CHUNK_ROWS)):
            random = np.random.default_rng([self.seed, self.version, number])
            yield _lines(self.keys[start : start + CHUNK_ROWS], self.version, random, self._first_lsn + start if self.cdc else None)

    @property
    def _first_lsn(self) -> int:
        return self.version * 10**9


def ending(number: int) -> bytes:
    """The STATE with this number and the COMPLETE that follow the last record."""
    stream = {"name": STREAM, "namespace": NAMESPACE}
    state = {"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": stream, "stream_state": {"sync": number}}}}
    status = {"stream_descriptor": stream, "status": "COMPLETE"}
    trace = {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": _FIRST_MS, "stream_status": status}}
    return b"".join(json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in (state, trace))


def catalog(mode: str, sync: int, *, cdc: bool = False) -> dict[str, Any]:
    """The configured catalog of the stream in a destination sync mode, for the sync of this number."""
    schema = {"type": "object", "properties": _PROPERTIES | (_CDC_PROPERTIES if cdc else {})}
    stream = {"name": STREAM, "namespace": NAMESPACE, "json_schema": schema, "supported_sync_modes": ["incremental"]}
    configured = {
        "stream": stream,
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "cursor_field": ["_ab_cdc_lsn" if cdc else "updated"],
        "generation_id": 1,
        "minimum_generation_id": 0,
        "sync_id": sync,
    }
    return {"streams": [configured]}


def _lines(keys: Integers, version: int, random: np.random.Generator, lsn: int | None) -> memoryview:
    rows = len(keys)
    changed = _FIRST_MS + version * _DAY_MS + random.integers(0, _DAY_MS, rows)
    customers = pc.cast(pa.array(random.integers(0, 1_000_000, rows)), pa.string())
    price = pc.divide(pa.array(random.integers(100, 100_000, rows)).cast(pa.float64()), 100.0)
    parts: list[Any] = [
        f'{{"type":"RECORD","record":{{"namespace":"{NAMESPACE}","stream":"{STREAM}","emitted_at":',
        pc.cast(pa.array(changed), pa.string()),
        ',"data":{"id":', pc.cast(pa.array(keys), pa.string()),
        ',"updated":"', _times(changed),
        'Z","created":"', _times(_FIRST_MS - keys * 1_000),
        'Z","customer_id":', customers,
        ',"status":"', _STATUSES.take(pa.array(random.integers(0, len(_STATUSES), rows))),
        '","country":"', _COUNTRIES.take(pa.array(random.integers(0, len(_COUNTRIES), rows))),
        '","email":"c', customers,
        '@example.com","note":"', _letters(rows, random),
        '","quantity":', pc.cast(pa.array(random.integers(1, 100, rows)), pa.string()),
        ',"price":', pc.cast(price, pa.string()),
        ',"paid":', _BOOLEANS.take(pa.array(random.integers(0, 2, rows))),
        ',"gift":', _BOOLEANS.take(pa.array(random.integers(0, 2, rows))),
        *([] if lsn is None else _cdc(changed, version, lsn)),
        "}}}\n",
    ]  # fmt: skip
    lines: pa.StringArray = pc.binary_join_element_wise(*parts, "")
    _, ends, text = lines.buffers()
    return memoryview(text)[: np.frombuffer(ends, np.int32)[rows]]


def _cdc(changed: Integers, version: int, lsn: int) -> list[Any]:
    """The fields of a source that reads a database's log."""
    rows = np.arange(len(changed))
    times = _times(changed)
    quoted = pc.binary_join_element_wise('"', times, 'Z"', "")
    deleted = pc.if_else(pa.array((rows % 100 == 0) & (version > 0)), quoted, "null")
    return [
        ',"_ab_cdc_lsn":', pc.cast(pa.array(lsn + rows), pa.string()),
        ',"_ab_cdc_updated_at":"', times,
        'Z","_ab_cdc_deleted_at":', deleted,
    ]  # fmt: skip


def _times(milliseconds: Integers) -> pa.StringArray:
    """ISO 8601."""
    spaced = pc.cast(pa.array(milliseconds.astype("datetime64[ms]")), pa.string())
    return pc.binary_replace_slice(spaced, len("2026-01-01"), len("2026-01-01 "), "T")


def _letters(rows: int, random: np.random.Generator) -> pa.StringArray:
    """Text that compresses like an identifier, not at all like prose."""
    letters = random.integers(ord("a"), ord("z") + 1, rows * NOTE_LETTERS, np.uint8)
    ends = np.arange(rows + 1, dtype=np.int32) * NOTE_LETTERS
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters))
