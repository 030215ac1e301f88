from __future__ import annotations

import json
import logging
import random
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.errors import DataError
from destination_s3_spark.protocol.messages import Idle, Records, Status, StreamStatus
from destination_s3_spark.protocol.reader import ProtocolReader
from destination_s3_spark.protocol.routing import PREFIXES_PER_STREAM
from destination_s3_spark.protocol.state import StateMessage
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.protocol.source_lines import MARKER, CatalogOf, Tell, error_of, in_blocks, lines, record, state, status
from unit_tests.sampling import examples


def test_records_of_all_streams_before_a_state_come_before_it_and_no_others(catalog_of: CatalogOf, story: Tell) -> None:
    catalog = catalog_of("users", "orders")
    first, second, third = record(), record("orders"), record("users", '{"id":2}')
    text = lines(first, second, first, state(1), third, state(2, "orders"), second)
    reader = ProtocolReader(catalog)
    told = story(reader.events([text]))
    assert [(event[0], event[1]) for event in told] == [
        (0, first + b"\n"),
        (1, second + b"\n"),
        (0, first + b"\n"),
        ("state", told[3][1]),
        (0, third + b"\n"),
        ("state", told[5][1]),
        (1, second + b"\n"),
    ]
    assert json.loads(bytes(told[3][1]))["state"]["stream"]["stream_state"] == {"cursor": 1}  # type: ignore[call-overload]
    assert (reader.counts.states, reader.counts.bytes) == (2, len(text))


def test_interleaved_records_of_a_stream_are_one_event(catalog_of: CatalogOf) -> None:
    text = lines(*[record(stream) for _ in range(50) for stream in ("users", "orders")])
    events = list(ProtocolReader(catalog_of("users", "orders")).events([text]))
    assert [(event.stream, event.records) for event in events if isinstance(event, Records)] == [(0, 50), (1, 50)]


SPELLINGS = [
    '{{"type":"RECORD","record":{{"stream":"{s}","data":{d},"emitted_at":{e}}}}}',
    '{{"type":"RECORD","record":{{"namespace":{n},"stream":"{s}","data":{d},"emitted_at":{e}}}}}',
    '{{"type":"RECORD","record":{{"stream":"{s}","namespace":{n},"emitted_at":{e},"data":{d}}}}}',
    '{{"type":"RECORD","record":{{"stream":"{s}","emitted_at":{e},"data":{d},"namespace":{n}}}}}',
    '{{"type":"RECORD","record":{{"stream":"{s}","data":{d},"emitted_at":{e},"namespace":{n}}}}}',
    '{{"type":"RECORD","record":{{"emitted_at":{e},"namespace":{n},"stream":"{s}","data":{d}}}}}',
    '{{"record":{{"stream":"{s}","namespace":{n},"data":{d},"emitted_at":{e}}},"type":"RECORD"}}',
    '{{"type":"RECORD","record":{{"data":{d},"stream":"{s}","namespace":{n},"emitted_at":{e}}}}}',
    '{{"type": "RECORD", "record": {{"stream": "{s}", "namespace": {n}, "data": {d}, "emitted_at": {e}}}}}',
    '  {{"type":"RECORD","record":{{"meta":{{"changes":[],"data":{d}}},"stream":"{s}","namespace":{n},"data":{d}}}}} \r',
    '{{"type":"RECORD","record":{{"meta":{{"data":"{s}"}},"namespace":{n},"stream":"{s}","data":{d}}},"data":{d}}}',
    '{{"data":{d},"type":"RECORD","record":{{"stream":"{s}","namespace":{n},"data":{d}}}}}',
    '{{"type":"RECORD","record":{{"stream":"other","namespace":{n},"stream":"{s}","data":{d}}}}}',
    '{{"type":"LOG","type":"RECORD","record":{{"stream":"{s}","namespace":{n},"data" :{d}}}}}',
    '{{"type":"RECORD","\\u0072ecord":{{"stream":"{s}","names\\u0070ace":{n},"data":{d}}}}}',
]
LATE_NAMESPACE = [spelling for spelling in SPELLINGS if spelling.find("{n}") > spelling.find('"data"')]
NO_NAMESPACE = [spelling for spelling in SPELLINGS if "{n}" not in spelling]
CONSISTENT = [[spelling for spelling in SPELLINGS if spelling not in some] for some in (LATE_NAMESPACE, NO_NAMESPACE)]
"""No source leaves the namespace out and also writes one behind the data, for the same stream name."""
DATA = ['{"id":1}', '{"data":{"stream":"orders"}}', '{"n":NaN}', r'{"s":"\ud800"}', '{"n":1e400}', r'{"s":"\"data\":"}', "{}", '["stream"]']
NAMES = ["users", "orders", "data", "a b", "é", "nobody"]
NAMESPACES = ["null", '""', '"shop"', '"data"']


def records_spelt(spellings: list[str]) -> st.SearchStrategy[list[tuple[str, str, str, str, int]]]:
    return st.lists(st.tuples(*map(st.sampled_from, (spellings, DATA, NAMES, NAMESPACES)), st.integers(0, 10**13)), max_size=25)


@given(st.sampled_from(CONSISTENT).flatmap(records_spelt), st.integers(1, 400))
@examples(150)
def test_a_line_goes_where_a_full_parse_says_however_it_is_spelt_and_cut(
    catalog_of: CatalogOf, story: Tell, drawn: list[tuple[str, str, str, str, int]], block: int
) -> None:
    catalog = catalog_of("users", "orders", ("shop", "users"), ("data", "data"), "data", "a b", ("shop", "é"))
    indexes = {stream.id: index for index, stream in enumerate(catalog.streams)}
    written = [spelling.format(d=data, s=name, n=namespace, e=emitted_at) for spelling, data, name, namespace, emitted_at in drawn]
    expected, unknown, offset = [], 0, 0
    for line in written:
        parsed = json.loads(line)["record"]
        index = indexes.get(StreamId.of(parsed.get("namespace"), parsed["stream"]))
        unknown += index is None
        if index is not None:
            expected.append((index, line.encode() + b"\n", offset))
        offset += len(line.encode()) + 1
    text = lines(*[line.encode() for line in written])
    reader = ProtocolReader(catalog)
    assert story(reader.events(in_blocks(text, block))) == expected
    assert (reader.counts.unknown_streams.total(), reader.counts.bytes) == (unknown, len(text))


def test_any_block_size_gives_the_same_story(catalog_of: CatalogOf, story: Tell) -> None:
    chosen = random.Random(5)
    parts = [
        record(),
        record("orders"),
        record("orders", '{"n":NaN}'),
        state(1),
        b"",
        b"log noise",
        b'{"type":"LOG","log":{}}',
        status("RUNNING"),
    ]
    text = lines(*chosen.choices(parts, k=60), status("COMPLETE"), record("orders"))[:-1]
    catalog = catalog_of("users", "orders")
    whole = story(ProtocolReader(catalog).events([text]))
    assert len(whole) > 20
    for size in (1, 2, 3, 7, 64, 100, 1000):
        reader = ProtocolReader(catalog)
        assert story(reader.events(in_blocks(text, size))) == whole
        assert reader.counts.bytes == len(text)


def test_emitted_at_before_the_data_is_learnt_too(catalog_of: CatalogOf, caplog: pytest.LogCaptureFixture) -> None:
    spelling = '{{"type":"RECORD","record":{{"stream":"users","emitted_at":{e},"data":{d}}}}}'
    good = [spelling.format(e=emitted_at, d='{"id":1}').encode() for emitted_at in (5, 17, 1700000000000)]
    broken = spelling.format(e=6, d='{"id":').encode()
    reader = ProtocolReader(catalog_of("users"))
    events = [event for event in reader.events([lines(*good, broken)]) if isinstance(event, Records)]
    assert [event.records for event in events] == [4], "a line whose prefix is known is not parsed here; whoever types it will refuse it"


def test_a_namespace_behind_the_data_is_read_each_time(catalog_of: CatalogOf, story: Tell) -> None:
    reader = ProtocolReader(catalog_of("users"))
    nowhere, elsewhere = record(tail=',"namespace":null'), record(tail=',"namespace":"shop"')
    assert [event[2] for event in story(reader.events([lines(nowhere, elsewhere, nowhere)]))] == [0, len(nowhere + elsewhere) + 2]
    assert reader.counts.unknown_streams == {StreamId("shop", "users"): 1}


def test_a_namespace_that_may_follow_the_data_keeps_the_prefix_unlearnt(catalog_of: CatalogOf, story: Tell) -> None:
    reader = ProtocolReader(catalog_of("users", ("shop", "users")))
    told = story(reader.events([lines(record(), record(tail=',"namespace":"shop"'), record())]))
    assert [event[0] for event in told] == [0, 1, 0]


def test_a_stream_without_a_name_does_not_take_the_records_of_others(catalog_of: CatalogOf, story: Tell) -> None:
    data_first = [f'{{"type":"RECORD","record":{{"data":{{}},"stream":"{name}"}}}}'.encode() for name in ("", "users", "")]
    assert [event[0] for event in story(ProtocolReader(catalog_of("", "users")).events([lines(*data_first)]))] == [0, 1, 0]


def test_envelopes_that_never_repeat_are_not_hoarded(catalog_of: CatalogOf, story: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    spelling = '{{"type":"RECORD","record":{{"stream":"users","nonce":"{number}","data":{{}}}}}}'
    written = [spelling.format(number=number).encode() for number in range(1000)]
    reader = ProtocolReader(catalog_of("users"))
    learnt: list[bytes] = []
    monkeypatch.setattr(reader._router, "learn", lambda prefix, _stream: learnt.append(prefix))
    assert len(story(reader.events([lines(*written)]))) == 1000
    assert len(learnt) == PREFIXES_PER_STREAM


def test_an_unknown_stream_is_counted_and_named_once(catalog_of: CatalogOf, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    reader = ProtocolReader(catalog_of("users"))
    text = lines(record("nobody", f'"{MARKER}"'), record(), record("nobody"), record("users", namespace="x"), status("COMPLETE", "nobody"))
    assert sum(event.records for event in reader.events([text]) if isinstance(event, Records)) == 1
    assert reader.counts.unknown_streams == {StreamId(None, "nobody"): 2, StreamId("x", "users"): 1}
    assert [line.getMessage() for line in caplog.records] == [
        "Records of stream 'nobody' are ignored: it is not in the catalog of this sync.",
        "Records of stream 'x.users' are ignored: it is not in the catalog of this sync.",
    ]


@each("first", [record(), state(1), b"noise"])
def test_a_byte_order_mark_is_skipped_and_counts_in_the_offsets(catalog_of: CatalogOf, story: Tell, first: bytes) -> None:
    text = b"\xef\xbb\xbf" + lines(first, record())
    for size in (1, 1000):
        told = story(ProtocolReader(catalog_of("users")).events(in_blocks(text, size)))
        assert told[-1] == (0, record() + b"\n", len(first) + 4)
        assert len(told) == (1 if first == b"noise" else 2)


@each(
    ("line", "named"),
    [
        (record()[:-1], "not one complete JSON object"),
        (record()[:-30], "not one complete JSON object"),
        (record() + record(), "not one complete JSON object"),
        (record() + b" x", "not one complete JSON object"),
        (b"{", "not one complete JSON object"),
        (b'{"type":"LOG",}', "not one complete JSON object"),
        (b'  {"type":"RECORD"', "not one complete JSON object"),
        (b'{"type":"RECORD"}', "a RECORD without its record"),
        (b'{"type":"RECORD","record":null}', "a RECORD without its record"),
        (b'{"type":"RECORD","record":{"data":{}}}', "a RECORD without a stream"),
        (b'{"type":"RECORD","record":{"stream":"users"}}', "a RECORD without data"),
        (b'{"type":"RECORD","record":{"stream":5,"data":{}}}', "readable text"),
        (b'{"type":"RECORD","record":{"stream":"\xff","data":{}}}', "readable text"),
        (b'{"type":"RECORD","record":{"stream":"users","namespace":5,"data":{}}}', "readable text"),
        (b'{"record":{"stream":"users","data":{}}}', "without a type"),
        (b'{"state":{}}', "without a type"),
        (b'{"type":5,"record":{"stream":"users","data":{}}}', "without a type"),
        (b'{"type":"STATE","state":{"type":"STREAM"}}', "not one complete JSON object"),
        (b'{"type":"RECORD","record":{"stream":"users","data":"' + MARKER.encode(), "not one complete JSON object"),
        (b'{"type":"RECORD","record":{"stream":"users","data":{"a":\x01}}}', "not one complete JSON object"),
        (b'{"type":"RECORD","record":{"stream":"users","data":' + b"[" * 100_000, "not one complete JSON object"),
    ],
    ids=lambda value: ascii(value[:60]),
)
def test_a_message_that_cannot_be_read_is_an_error_with_its_place_and_never_its_content(
    catalog_of: CatalogOf, line: bytes, named: str
) -> None:
    before = lines(state(1), b"noise")
    error = error_of(catalog_of("users"), before + lines(line, state(2)))
    assert f"at byte {len(before)} " in error.message
    assert named in error.message


def test_the_error_names_the_stream_where_the_line_tells_it(catalog_of: CatalogOf) -> None:
    catalog = catalog_of(("shop", "users"), "orders")
    error = error_of(catalog, lines(record("users", f'{{"{MARKER}":', "shop")))
    assert "'shop.users'" in error.message
    assert error.stream == StreamId("shop", "users")
    assert error_of(catalog, lines(record(MARKER, "{"))).stream is None
    assert error_of(catalog, lines(b'{"x":[1,')).stream is None


@each(
    "value",
    ["NaN", "-Infinity", "1e400", "9" * 5000, r'"\ud800"', r'"\u0000"', "[" * 100_000 + "]" * 100_000],
    ids=lambda value: value[:20],
)
def test_what_only_strict_parsers_refuse_is_a_record(catalog_of: CatalogOf, story: Tell, value: str) -> None:
    line = record("users", f'{{"a":{value}}}')
    assert story(ProtocolReader(catalog_of("users")).events([lines(line)])) == [(0, line + b"\n", 0)]


def test_bytes_that_are_no_utf_8_stay_as_they_are(catalog_of: CatalogOf, story: Tell) -> None:
    written = [record().replace(b"1}", b'1,"x":"' + bytes([byte]) + b'"}') for byte in range(128, 256)]
    told = story(ProtocolReader(catalog_of("users")).events([lines(*written)]))
    assert [event[1] for event in told] == [line + b"\n" for line in written]


def test_the_last_line_needs_no_newline(catalog_of: CatalogOf, story: Tell) -> None:
    reader = ProtocolReader(catalog_of("users"))
    assert story(reader.events([lines(record()) + record()])) == [(0, record() + b"\n", 0), (0, record() + b"\n", len(record()) + 1)]
    assert reader.counts.bytes == 2 * len(record()) + 1
    assert [event.kind.value for event in ProtocolReader(catalog_of("users")).events([state(1)]) if isinstance(event, StateMessage)] == [
        "STREAM"
    ]


def test_a_state_comes_back_without_the_blanks_around_it(catalog_of: CatalogOf) -> None:
    events = ProtocolReader(catalog_of("users")).events([b"\t" + state(1) + b" \r\n", state(1)])
    first, second = [event for event in events if isinstance(event, StateMessage)]
    assert first == second


def test_complete_comes_once_and_incomplete_as_often_as_told(catalog_of: CatalogOf) -> None:
    text = lines(record(), status("STARTED"), status("INCOMPLETE"), record(), status("COMPLETE"), status("COMPLETE"), status("INCOMPLETE"))
    told = [event for event in ProtocolReader(catalog_of("users")).events([text]) if not isinstance(event, Records)]
    assert told == [StreamStatus(0, Status.INCOMPLETE), StreamStatus(0, Status.COMPLETE)]


def test_a_record_after_complete_is_an_error_though_its_prefix_is_known(catalog_of: CatalogOf) -> None:
    text = lines(record(), record("orders"), status("COMPLETE"), record("orders"), state(1))
    error = error_of(catalog_of("users", "orders"), text + lines(record("users", f'"{MARKER}"')))
    assert f"'users' came at input byte {len(text)}" in error.message
    assert "COMPLETE" in error.message
    assert error.stream == StreamId(None, "users")


def test_an_empty_block_and_one_without_an_event_are_idle(catalog_of: CatalogOf) -> None:
    events = list(ProtocolReader(catalog_of("users")).events([b"", record()[:9], record()[9:], b"", b"\n", b"\n", b""]))
    assert [type(event) for event in events] == [Idle, Idle, Idle, Idle, Records, Idle, Idle]


def test_a_line_of_many_blocks_is_held_twice_at_most(catalog_of: CatalogOf) -> None:
    line = record("users", '"' + "x" * 32 * 2**20 + '"')
    events = ProtocolReader(catalog_of("users")).events(in_blocks(lines(line), 2**16))
    tracemalloc.start()
    sizes = [len(event.lines) for event in events if isinstance(event, Records)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes == [len(line) + 1]
    assert peak < 2.5 * len(line), "first as its blocks and the joined line, then as the line and its chunk"


def test_a_thousand_streams_keep_their_records_apart(catalog_of: CatalogOf, story: Tell) -> None:
    catalog = catalog_of(*[("ns", f"s{number}") for number in range(1000)])
    text = lines(*[record(f"s{number}", f'{{"id":{number}}}', "ns") for _ in range(3) for number in range(1000)])
    told = story(ProtocolReader(catalog).events(in_blocks(text, 50_000)))
    assert [event[0] for event in told] == list(range(1000)) * 3
    assert b"".join(bytes(event[1]) for event in told) == text  # type: ignore[call-overload]


@given(st.data())
@examples(200)
def test_no_byte_is_lost_silently_when_the_input_is_damaged(catalog_of: CatalogOf, data: st.DataObject) -> None:
    good = [
        record(),
        record("orders", '{"a":[1,"x"]}', tail=',"meta":{"changes":[]}'),
        state(3),
        status("COMPLETE", "orders"),
        b"noise",
        record("users"),
    ]
    text = bytearray(lines(*good))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b"\n", b'"', b"{", b"}", b"\\"])
        )
    reader = ProtocolReader(catalog_of("users", "orders"))
    try:
        events = list(reader.events(in_blocks(bytes(text), data.draw(st.integers(1, 200)))))
    except DataError:
        return
    spooled = b"".join(event.lines for event in events if isinstance(event, Records))
    found = bytes(text).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    filled = [line for line in found if line.strip(b" \t\r")]
    counts = reader.counts
    assert counts.blank == len(found) - len(filled) - (found[-1] == b"")
    records = sum(event.records for event in events if isinstance(event, Records))
    statuses = sum(isinstance(event, StreamStatus) for event in events)
    assert len(filled) == records + counts.states + statuses + counts.noise + counts.ignored.total() + counts.unknown_streams.total()
    assert Counter(spooled.split(b"\n")[:-1]) <= Counter(filled)
