"""Typing alone, on one core: record lines to Arrow rows of both tables, against `orjson.loads` per line in the same run.

The lines are the demo shop's, about 780 bytes and 20 fields each, one stream after the other in blocks as a Spark task gets them. Every
figure is the best of some rounds in which all cases take turns, so that a busy machine slows them alike. Run with --help for options.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson
import pyarrow as pa

from benchmarks.machine import describe_machine
from demo import shop
from demo.shop import Shop
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import RecordTyper
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED
from destination_s3_spark.protocol.catalog import Stream, parse_catalog
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.schema.json_schema import stream_fields

BLOCK_BYTES = 4 * 2**20
ORJSON = "orjson.loads per line"
WIDTHS = (1, 20, 1000)
_KINDS: tuple[tuple[dict[str, str], str], ...] = (
    ({"type": "integer"}, "{0}"),
    ({"type": "string"}, '"text of row {0}"'),
    ({"type": "number"}, "{0}.25"),
    ({"type": "boolean"}, "true"),
    ({"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}, '"2026-01-02T03:04:05.{0:06}Z"'),
)
"""Declarations of the columns of a table that is made by width, in turn, and their values in row {0}."""


@dataclass(frozen=True, slots=True)
class Case:
    """Blocks of lines of several streams, and what to do with a block of a stream."""

    name: str
    blocks: list[tuple[int, bytes]]
    work: list[Callable[[bytes], object]]

    @property
    def size_bytes(self) -> int:
        """All lines together."""
        return sum(len(lines) for _, lines in self.blocks)

    def seconds(self) -> float:
        """How much of a CPU one pass over all blocks takes."""
        started = time.process_time()
        for stream, lines in self.blocks:
            self.work[stream](lines)
        return time.process_time() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=24, help="record lines per case")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    print(describe_machine())
    print(f"Lines are typed {HOW_LINES_ARE_TYPED}.")
    cases = list(_cases(options.seed, options.megabytes))
    best = dict.fromkeys((case.name for case in cases), float("inf"))
    for _ in range(options.rounds):
        for case in cases:
            best[case.name] = min(best[case.name], case.seconds())
    speeds = {case.name: case.size_bytes / 1e6 / best[case.name] for case in cases}
    print(f"{'case':32} {'MB/s':>6} {'s/GB':>6} {'x orjson':>9} {'x clean time':>13}")
    for case in cases:
        slower = speeds["clean"] / speeds[case.name]
        speed = speeds[case.name]
        print(f"{case.name:32} {speed:6.0f} {1000 / speed:6.2f} {speed / speeds[ORJSON]:9.2f} {slower:13.2f}")


def _cases(seed: int, megabytes: int) -> Iterator[Case]:
    streams = parse_catalog(json.dumps(Shop(seed, 0.0).catalog(dict.fromkeys(shop.MIX, "append"))).encode()).streams
    clean = _blocks(Shop(seed, 0.0, None), streams, megabytes)
    yield Case(ORJSON, clean, [_parse_lines] * len(streams))
    yield Case("clean, in Python", clean, [RecordTyper(_plan(stream)).type_block for stream in streams])
    variants = {
        "clean": clean,
        "1 % of rows with a bad value": _blocks(Shop(seed, 0.01, None), streams, megabytes),
        "10 % of rows with a bad value": _blocks(Shop(seed, 0.1, None), streams, megabytes),
        "integer column: all texts": _replaced(clean, rb'"data":\{"id":\d+', rb'"data":{"id":"n/a"'),
        "text column: all numbers": _replaced(clean, rb'"note":(?:null|"[^"]*")', rb'"note":12.50'),
        "timestamp column: all unreadable": _replaced(clean, rb'"updated_at":"[^"]*"', rb'"updated_at":"yesterday"'),
        "timestamp column: all lenient": _replaced(clean, rb'"updated_at":"[^"]*"', rb'"updated_at":"2026/01/02 03:04:05 PST"'),
        "number column: all NaN": _replaced(clean, rb'"(credit_limit|weight_kg|tax)":[^,}]+', rb'"\1":NaN'),
        "NaN in every row, not declared": _replaced(clean, rb'"data":\{"id"', rb'"data":{"x":NaN,"id"'),
        "NaN in a container of every row": _replaced(clean, rb'"(lat|length_cm|unit_price)":[^,}]+', rb'"\1":NaN'),
    }
    for name, blocks in variants.items():
        yield Case(name, blocks, [record_typer(_plan(stream)).type_block for stream in streams])
    for width in WIDTHS:
        stream, blocks = _of_width(width, megabytes)
        yield Case(f"{width} columns, in Python", blocks, [RecordTyper(_plan(stream)).type_block])
        yield Case(f"{width} columns", blocks, [record_typer(_plan(stream)).type_block])


def _of_width(columns: int, megabytes: int) -> tuple[Stream, list[tuple[int, bytes]]]:
    """A stream with this many columns of all kinds of scalars, and its records."""
    kinds = [_KINDS[at % len(_KINDS)] for at in range(columns)]
    schema = {"type": "object", "properties": {f"column_{at}": declared for at, (declared, _) in enumerate(kinds)}}
    shown = {"name": "wide", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append", "generation_id": 1, "minimum_generation_id": 0, "sync_id": 1}
    stream = parse_catalog(json.dumps({"streams": [{"stream": shown, **modes}]}).encode()).streams[0]
    lines: list[bytes] = []
    size = 0
    while size < megabytes * 10**6:
        row = len(lines)
        data = ",".join(f'"column_{at}":{value.format(row)}' for at, (_, value) in enumerate(kinds))
        lines.append(f'{{"type":"RECORD","record":{{"stream":"wide","data":{{{data}}},"emitted_at":1700000000000}}}}\n'.encode())
        size += len(lines[-1])
    return stream, [(0, block) for block in _cut(lines)]


def _blocks(source: Shop, streams: tuple[Stream, ...], megabytes: int) -> list[tuple[int, bytes]]:
    """The records in blocks of one stream each."""
    lines: list[list[bytes]] = [[] for _ in streams]
    prefixes = [
        f'{{"type":"RECORD","record":{{"namespace":"{stream.id.namespace}","stream":"{stream.id.name}"'.encode() for stream in streams
    ]
    for chunk in source.read(shop.records_for(megabytes * 10**6)):
        for line in chunk.lines.splitlines(keepends=True):
            for of_stream, prefix in zip(lines, prefixes, strict=True):
                if line.startswith(prefix):
                    of_stream.append(line)
    return [(number, block) for number, of_stream in enumerate(lines) for block in _cut(of_stream)]


def _cut(lines: list[bytes]) -> Iterator[bytes]:
    rows = BLOCK_BYTES // (sum(map(len, lines)) // len(lines))
    for first in range(0, len(lines), rows):
        yield b"".join(lines[first : first + rows])


def _replaced(blocks: list[tuple[int, bytes]], pattern: bytes, replacement: bytes) -> list[tuple[int, bytes]]:
    return [(stream, re.sub(pattern, replacement, lines)) for stream, lines in blocks]


def _plan(stream: Stream) -> RowPlan:
    fields = tuple(stream_fields(stream.json_schema, stream.id).fields)
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, fields, pa.schema([*META_FIELDS, *map(arrow_field, fields)]))


def _parse_lines(lines: bytes) -> None:
    for line in lines.splitlines():
        orjson.loads(line)


if __name__ == "__main__":
    main()
