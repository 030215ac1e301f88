from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.protocol.reader import read_envelope
from destination_s3_spark.protocol.state import StateKind, StateMessage, Totals, parse_state
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

STREAMS = {StreamId("shop", "users"): 0, StreamId(None, "users"): 1}
DESCRIPTOR = b'"stream_descriptor":{"name":"users","namespace":"shop"}'
STATS = re.compile(rb',"destinationStats":\{"recordCount":1000\.0\}')


def parsed(line: bytes) -> StateMessage:
    return parse_state(line, read_envelope(line).body, STREAMS)


def stream_state(blob: bytes, more: bytes = b"") -> bytes:
    return b'{"type":"STATE","state":{"type":"STREAM","stream":{' + DESCRIPTOR + b',"stream_state":' + blob + b"}" + more + b"}}"


BLOBS = [
    b"{}",
    b"null",
    b'{"cursor":"2024-01-01T00:00:00Z"}',
    b'{"n":123456789012345678901234567890}',
    b'{"n":-9223372036854775809}',
    b'{"n":1.0}',
    b'{"n":1.10,"m":1e400,"z":-0.0}',
    b'{"n":0.1000000000000000055511151231257827}',
    b'{"n":1E+2}',
    rb'{"s":"\u00e9\u0041\/"}',
    rb'{"s":"\ud83d\ude00"}',
    rb'{"s":"\ud800"}',
    rb'{"\u0061":1}',
    '{"s":"é😀"}'.encode(),
    b'{"s":"\xff"}',
    b'{"n":NaN,"i":-Infinity}',
    b'{"a":1,"a":2}',
    b'{"b":{"b":1,"b":{"b":2}}}',
    b'[1,[2,[3,{"x":[]}]]]',
    b'{"state":{"type":"GLOBAL"},"destinationStats":{"recordCount":5.0}}',
    b'{ "spaced" : [ 1 ,\t2 ] }',
    b"[" * 3000 + b"]" * 3000,
    b'"text"',
    b"12345678901234567890",
    b"true",
]
EXTRAS = [
    b',"id":7',
    b',"id":123456789012345678901234567890',
    b',"id":7,"partition_id":"0a1b","new":{"nested":[1.0,{"x":null}]}',
    b',"sourceStats":{"recordCount":1000.0}',
    b',"sourceStats":{"recordCount":1000.0,"filteredOutRecordCount":3.0,"x":[1]}',
    b',"global":null,"data":null',
    b',"id":1,"id":2',
    rb',"\u0069d":9',
    b" ",
]


@each(
    "line",
    [stream_state(blob) for blob in BLOBS] + [stream_state(b'{"c":1}', more) for more in EXTRAS],
    ids=lambda line: ascii(line[100:160]),
)
def test_a_stream_state_comes_back_byte_for_byte_with_the_count_added(line: bytes) -> None:
    message = parsed(line)
    echoed = message.echo(1000)
    assert (message.kind, message.stream) == (StateKind.STREAM, 0)
    assert len(STATS.findall(echoed)) == 1
    assert STATS.sub(b"", echoed) == line + b"\n"


WHOLE_LINES = [
    (b'{"state":{"type":"STREAM","stream":{' + DESCRIPTOR + b',"stream_state":{}}},"type":"STATE"}', StateKind.STREAM, 0),
    (b'{"x":{"y":1.0},"type":"STATE","state":{"stream":{' + DESCRIPTOR + b'},"type":"STREAM"},"z":"\\u00e9"}', StateKind.STREAM, 0),
    (b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"users"}}}}', StateKind.STREAM, 1),
    (b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"users","namespace":""}}}}', StateKind.STREAM, 1),
    (b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"users","namespace":null}}}}', StateKind.STREAM, 1),
    (b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"other"}}}}', StateKind.STREAM, None),
    (b'{"type":"STATE","state":{"stream":{' + DESCRIPTOR + b"}}}", StateKind.STREAM, 0),
    (b'{"type":"STATE","state":{"stream":null,"global":{"stream_states":[]}}}', StateKind.GLOBAL, None),
    (
        b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":{"lsn":1.0},"stream_states":[{' + DESCRIPTOR + b"}]}}}",
        StateKind.GLOBAL,
        None,
    ),
    (b'{"type":"STATE","state":{"type":"GLOBAL","global":{"stream_states":[]},"id":4}}', StateKind.GLOBAL, None),
    (b'{"type":"STATE","state":{"type":"GLOBAL"}}', StateKind.GLOBAL, None),
    (b'{"type":"STATE","state":{"type":"LEGACY","data":{"a":1.0}}}', StateKind.LEGACY, None),
    (b'{"type":"STATE","state":{"data":{"stream":1,"global":2}}}', StateKind.LEGACY, None),
    (b'{"type":"STATE","state":{"type":"NEWER","data":{}}}', StateKind.LEGACY, None),
    (b'{ "type" : "STATE" , "state" : { "type" : "LEGACY" , "data" : [ 1 ] } }', StateKind.LEGACY, None),
    (b'{"type":"STATE","state":{"data":1},"state":{"type":"LEGACY","data":2}}', StateKind.LEGACY, None),
    (b'{"echo":{"data":2},"type":"STATE","state":{"data":2},"again":{"data":2}}', StateKind.LEGACY, None),
    (b'{"type":"STATE","n":NaN,"state":{"data":{"data":3}}}', StateKind.LEGACY, None),
]


@each(("line", "kind", "stream"), WHOLE_LINES)
def test_every_shape_of_state_comes_back_byte_for_byte(line: bytes, kind: StateKind, stream: int | None) -> None:
    message = parsed(line)
    assert (message.kind, message.stream) == (kind, stream)
    echoed = message.echo(1000)
    assert STATS.sub(b"", echoed, count=1) == line + b"\n"
    last_state = dict(json.loads(echoed))["state"]
    assert last_state["destinationStats"] == {"recordCount": 1000}


def test_an_empty_state_gets_the_count_without_a_comma() -> None:
    assert parsed(b'{"type":"STATE","state":{}}').echo(0) == b'{"type":"STATE","state":{"destinationStats":{"recordCount":0.0}}}\n'


@each(
    ("stats", "expected"),
    [
        (b"null", b'{"recordCount":12.0}'),
        (b'"?"', b'{"recordCount":12.0}'),
        (b"{}", b'{"recordCount":12.0}'),
        (b"{ }", b'{ "recordCount":12.0}'),
        (b'{"recordCount":3}', b'{"recordCount":12.0}'),
        (b'{"recordCount" : 3.5e1 ,"x":1.0}', b'{"recordCount" : 12.0 ,"x":1.0}'),
        (
            b'{"rejectedRecordCount":1.0,"additionalStats":{"b":1e400}}',
            b'{"rejectedRecordCount":1.0,"additionalStats":{"b":1e400},"recordCount":12.0}',
        ),
        (b'{"recordCount":1.0,"recordCount":2.0}', b'{"recordCount":1.0,"recordCount":12.0}'),
        (b'{"recordCount":null,"n":NaN}', b'{"recordCount":12.0,"n":NaN}'),
        (rb'{"record\u0043ount":1}', rb'{"record\u0043ount":12.0}'),
    ],
)
@each("key", [b'"destinationStats"', rb'"destination\u0053tats"'])
def test_statistics_that_are_there_are_kept_and_only_the_count_is_ours(stats: bytes, expected: bytes, key: bytes) -> None:
    line = stream_state(b'{"destinationStats":{"recordCount":1}}', b"," + key + b":%b" % stats + b',"id":3')
    assert parsed(line).echo(12) == line.replace(key + b":" + stats, key + b":" + expected) + b"\n"


@each(("count", "written"), [(0, b"0.0"), (1, b"1.0"), (1000, b"1000.0"), (10**17, b"100000000000000000.0")])
def test_the_count_is_a_double_and_never_in_exponent_form(count: int, written: bytes) -> None:
    assert b'"recordCount":' + written + b"}" in parsed(stream_state(b"{}")).echo(count)


def test_the_hash_is_of_the_blob_alone() -> None:
    plain = parsed(stream_state(b'{"c":1}'))
    assert plain.state_hash == hashlib.sha256(b"{" + DESCRIPTOR + b',"stream_state":{"c":1}}').hexdigest()
    assert (
        parsed(stream_state(b'{"c":1}', b',"id":9,"sourceStats":{"recordCount":4.0},"destinationStats":{}')).state_hash == plain.state_hash
    )
    assert parsed(stream_state(b'{"c":2}')).state_hash != plain.state_hash
    legacy = parsed(b'{"type":"STATE","state":{"type":"LEGACY","data":{"a":1.0}}}')
    assert legacy.state_hash == hashlib.sha256(b'{"a":1.0}').hexdigest()


@each(
    "line",
    [
        b'{"type":"STATE"}',
        b'{"type":"STATE","state":null}',
        b'{"type":"STATE","state":[]}',
        b'{"type":"STATE","state":{"type":"STREAM"}}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":{}}}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":5}}}}',
        b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"a","namespace":5}}}}',
    ],
)
def test_a_state_that_cannot_be_routed_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"not one complete|without its|readable text"):
        parsed(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["state", "stream", "destinationStats", "id", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values, st.dictionaries(st.sampled_from(["id", "x", "sourceStats"]), json_values), st.booleans())
def test_any_blob_and_any_extra_fields_survive(blob: Any, extra: dict[str, Any], spaced: bool) -> None:
    state = {"type": "LEGACY", "data": blob, **extra}
    line = json.dumps({"type": "STATE", "state": state}, indent=None, separators=(" , ", " : ") if spaced else (",", ":")).encode()
    echoed = parsed(line).echo(1000)
    assert echoed.replace(b',"destinationStats":{"recordCount":1000.0}', b"") == line + b"\n"
    expected = json.loads(line)
    expected["state"]["destinationStats"] = {"recordCount": 1000.0}
    assert repr(json.loads(echoed)) == repr(expected)


TOTALS = {0: Totals(5, 500), 1: Totals(20, 3000)}
OWN = rb',"committedRecordsCount":5,"committedBytesCount":500'
ALL = rb',"committedRecordsCount":25,"committedBytesCount":3500'


def counted(line: bytes) -> StateMessage:
    return replace(parsed(line), totals=TOTALS)


@each("more", EXTRAS)
@each("blob", BLOBS, ids=lambda blob: ascii(blob[:40]))
def test_a_stream_state_carries_the_totals_of_its_stream(blob: bytes, more: bytes) -> None:
    line = stream_state(blob, more)
    echoed = counted(line).echo(1000)

    assert STATS.sub(b"", echoed.replace(OWN, b"", 1)) == line + b"\n"
    assert counted(line).echo(1000).endswith(b',"destinationStats":{"recordCount":1000.0}' + OWN + b"}}\n")


def test_totals_of_a_stream_that_is_not_in_the_catalog_are_zero() -> None:
    line = b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"other"}}}}'
    assert b'"committedRecordsCount":0,"committedBytesCount":0}}' in counted(line).echo(0)


def test_a_legacy_state_carries_the_totals_of_all_streams() -> None:
    line = b'{"type":"STATE","state":{"type":"LEGACY","data":{"committedRecordsCount":1}}}'
    assert counted(line).echo(1000).endswith(b'"recordCount":1000.0}' + ALL + b"}}\n")


@each("odd", [b"", b',"n":NaN', rb',"s":"\ud800"', b',"stream_states":[]'])
def test_each_entry_of_a_global_state_carries_the_totals_of_its_stream(odd: bytes) -> None:
    entries = [
        b"{" + DESCRIPTOR + b',"stream_state":{"a":[1, {"b":2}]}%b}' % odd,
        b'{"stream_descriptor" : {"name":"users"} }',
        b'{"stream_descriptor":{"name":"other"}}',
    ]
    shared = b'"shared_state":{"stream_states":[%b]}' % entries[0]
    line = b'{"type":"STATE","state":{"type":"GLOBAL","global":{%b,"stream_states":[ %b ,\n%b,%b]},"id":4}}' % (shared, *entries)
    expected = [
        entries[0][:-1] + OWN + b"}",
        entries[1][:-1] + b',"committedRecordsCount":20,"committedBytesCount":3000}',
        entries[2][:-1] + b',"committedRecordsCount":0,"committedBytesCount":0}',
    ]
    wanted = b'{"type":"STATE","state":{"type":"GLOBAL","global":{%b,"stream_states":[ %b ,\n%b,%b]},"id":4' % (shared, *expected)

    assert counted(line).echo(1000) == wanted + b',"destinationStats":{"recordCount":1000.0}' + ALL + b"}}\n"
    assert parsed(line).state_hash == parsed(line.replace(b'"id":4', b'"id":5')).state_hash


NO_ENTRIES = [b"null", b"{}", b"[]", b"[ ]", b'"text"', b'[1,null,{},[],{"stream_descriptor":{}},{"stream_descriptor":{"name":7}}]']


@each("blob", [b"null", b'"text"', b"[1]", b'{"shared_state":1}', *(b'{"stream_states":%b}' % states for states in NO_ENTRIES)])
def test_a_global_state_without_entries_of_streams_is_left_alone(blob: bytes) -> None:
    line = b'{"type":"STATE","state":{"type":"GLOBAL","global":%b}}' % blob
    assert STATS.sub(b"", counted(line).echo(1000).replace(ALL, b"")) == line + b"\n"


def test_totals_that_are_there_already_are_replaced() -> None:
    """A source may send back what it found in its last state."""
    old = b',"committedBytesCount":7,"committedRecordsCount":null,"rejectedRecordsCount":1'
    new = b',"committedBytesCount":500,"committedRecordsCount":5,"rejectedRecordsCount":1'
    line = stream_state(b"{}", old)
    assert counted(line).echo(1000) == line.replace(old, new + b',"destinationStats":{"recordCount":1000.0}') + b"\n"

    entry = b"{" + DESCRIPTOR + old + b"}"
    whole = b'{"type":"STATE","state":{"type":"GLOBAL","global":{"stream_states":[%b]}}}'
    assert counted(whole % entry).echo(1000).startswith((whole % entry.replace(old, new))[:-2])
