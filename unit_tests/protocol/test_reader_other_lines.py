"""Lines that are neither records nor STATEs: which are counted, and which stop the sync."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import zstandard

from destination_s3_spark.errors import DataError
from destination_s3_spark.protocol.messages import Event, Idle, Records
from destination_s3_spark.protocol.reader import MIB, MOST_UNKNOWN_NAMED, ProtocolReader
from unit_tests.cases import each
from unit_tests.protocol.source_lines import CatalogOf, Tell, in_blocks, lines, record, state, status

IGNORED = [
    (b'{"type":"LOG","log":{"level":"INFO","message":"x"}}', "LOG"),
    (b'{"type":"CONTROL","control":{}}', "CONTROL"),
    (b'{"type":"CATALOG"}', "CATALOG"),
    (b'{"type":"BRAND_NEW","record":{"stream":"users"}}', "unknown type"),
    (b'{"level":"info","n":NaN}', "unknown type"),
    (b'{"type":5}', "unknown type"),
    (b"{}", "unknown type"),
    (b'{"type":"TRACE"}', "TRACE"),
    (b'{"type":"TRACE","trace":[1]}', "TRACE"),
    (b'{"type":"TRACE","trace":{"type":"ESTIMATE","estimate":{"name":"users"}}}', "TRACE"),
    (b'{"type":"TRACE","trace":{"type":"BRAND_NEW","stream_status":{"status":"COMPLETE","stream_descriptor":{"name":"users"}}}}', "TRACE"),
    (b'{"type":"TRACE","trace":{"type":"STREAM_STATUS"}}', "TRACE"),
    (
        b'{"type":"TRACE","trace":{"type":"STREAM_STATUS","stream_status":{"status":"COMPLETE","stream_descriptor":{"name":["users"]}}}}',
        "TRACE",
    ),
    (status("STARTED"), "TRACE"),
    (status("RUNNING"), "TRACE"),
    (status("BRAND_NEW"), "TRACE"),
]


@each(("line", "counted"), IGNORED)
def test_what_says_nothing_to_a_destination_is_counted_and_ignored(catalog_of: CatalogOf, line: bytes, counted: str) -> None:
    reader = ProtocolReader(catalog_of("users"))
    assert list(reader.events([lines(line)])) == [Idle()]
    assert reader.counts.ignored == Counter({counted: 1})


@each("line", [b"plain log text", b"[1]", b"5", b'"{"', b"\xff\xfe", b"\x00", b"2024-01-01 INFO {not json}"])
def test_lines_that_are_no_objects_are_noise(catalog_of: CatalogOf, line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    reader = ProtocolReader(catalog_of("users"))
    assert list(reader.events([lines(line, b"", b" \t\r", line)])) == [Idle()]
    assert (reader.counts.noise, reader.counts.blank, reader.counts.first_without_message) == (2, 2, 0)
    assert not caplog.records


def test_the_first_line_without_a_message_is_known_by_its_byte(catalog_of: CatalogOf) -> None:
    for empty in (b"", b"noise"):
        reader = ProtocolReader(catalog_of("users"))
        list(reader.events(in_blocks(lines(record(), record(), empty, record(), b"noise"), 100)))
        assert reader.counts.first_without_message == 2 * len(lines(record()))


def test_without_such_lines_there_is_no_first_one(catalog_of: CatalogOf) -> None:
    reader = ProtocolReader(catalog_of("users"))
    list(reader.events([lines(record(), b" " + record())]))
    assert (reader.counts.noise, reader.counts.blank, reader.counts.first_without_message) == (0, 0, None)


@each("message", [record(), state(1), b'{"type": "RECORD"', b'"type" :"STATE", "state":{}}'])
@each("before", [b"printed without a line end", b"\xef\xbb\xbf", b"\x00", b"["])
def test_a_message_behind_something_else_stops_the_sync(catalog_of: CatalogOf, before: bytes, message: bytes) -> None:
    first = lines(record())
    with pytest.raises(DataError, match=f"at byte {len(first)} cannot be read: there is other text before the message"):
        list(ProtocolReader(catalog_of("users")).events([first + lines(before + message)]))


def test_noise_between_records_keeps_offsets_exact(catalog_of: CatalogOf, story: Tell) -> None:
    text = lines(record(), b"noise", record(), b"", record(), record())
    told = story(ProtocolReader(catalog_of("users")).events([text]))
    size = len(record()) + 1
    assert [event[2] for event in told] == [0, size + 6, 2 * size + 7, 3 * size + 7]


@each("filler", [b"x", b" ", b"{"])
@each("block_bytes", [1000, MIB])
def test_a_line_without_an_end_is_refused_once_it_is_too_long(catalog_of: CatalogOf, filler: bytes, block_bytes: int) -> None:
    before = lines(record(), record())
    taken, read = 0, list[Event]()

    def endless() -> Iterator[bytes]:
        nonlocal taken
        yield before + b'{"type":"RECORD","record":{"stream":"users","data":{"text":"'
        for _ in range(10 * MIB // block_bytes):
            taken += block_bytes
            yield filler * block_bytes

    reader = ProtocolReader(catalog_of("users"), 3 * MIB)
    with pytest.raises(DataError, match=rf"of stream 'users' at byte {len(before)} .* longer than the 3 MB that batching\.max_line_mb"):
        read.extend(reader.events(endless()))
    assert taken <= 4 * MIB
    assert sum(event.records for event in read if isinstance(event, Records)) == 2


def test_the_longest_line_is_read(catalog_of: CatalogOf, story: Tell) -> None:
    long = lines(record(data='{"text":"' + "x" * (3 * MIB - 200) + '"}'))
    assert 3 * MIB - 200 < len(long) <= 3 * MIB
    told = story(ProtocolReader(catalog_of("users"), 3 * MIB).events(in_blocks(long + long, 1000)))
    assert [line for _, line, _ in told] == [long, long]


def test_only_the_first_unknown_streams_are_named(catalog_of: CatalogOf, caplog: pytest.LogCaptureFixture) -> None:
    reader = ProtocolReader(catalog_of("users"))
    names = [f"unknown {at % 250}" for at in range(1000)]
    list(reader.events([lines(*(record(name) for name in names))]))
    assert len(caplog.records) == MOST_UNKNOWN_NAMED + 1
    assert f"more than {MOST_UNKNOWN_NAMED} streams" in caplog.text
    assert (len(reader.counts.unknown_streams), reader.counts.unknown_streams.total()) == (MOST_UNKNOWN_NAMED + 1, 1000)


@each("pack", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress])
@each("block_bytes", [5, 10_000])
def test_a_compressed_input_is_said_to_be_one(catalog_of: CatalogOf, pack: Callable[[bytes], bytes], block_bytes: int) -> None:
    packed = pack(lines(*(record(data=f'{{"n":{number}}}') for number in range(1000))))
    with pytest.raises(DataError, match="no messages but a file compressed by"):
        list(ProtocolReader(catalog_of("users")).events(in_blocks(packed, block_bytes)))
