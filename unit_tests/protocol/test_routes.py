from __future__ import annotations

from destination_s3_spark.protocol.routing import PythonLineRouter, Routes
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

USERS, SHOP_ORDERS = StreamId(None, "users"), StreamId("shop", "orders")
STREAMS = (USERS, SHOP_ORDERS)


def learnt(line: bytes, stream: StreamId, *, names_namespace: bool = False) -> tuple[Routes, dict[bytes, int]]:
    """The routes, and the prefixes that the router got."""
    router = PythonLineRouter(len(STREAMS))
    routes = Routes(STREAMS, router)
    routes.learn(line, stream, names_namespace=names_namespace, index=STREAMS.index(stream))
    return routes, router.by_prefix


def test_the_prefix_up_to_the_data_is_learnt_and_nothing_of_the_data() -> None:
    _, by_prefix = learnt(b'{"type":"RECORD","record":{"stream":"users","data":{"id":1}}}', USERS)
    assert by_prefix == {b'{"type":"RECORD","record":{"stream":"users","data":': 0}


def test_digits_of_emitted_at_do_not_matter_and_what_surrounds_them_does() -> None:
    routes, by_prefix = learnt(b'{"type":"RECORD","record":{"emitted_at": 17,"stream":"users","data":1}}', USERS)
    assert not by_prefix
    for line, found in [
        (b'{"type":"RECORD","record":{"emitted_at": 4,"stream":"users","data":NaN}}', True),
        (b'{"type":"RECORD","record":{"emitted_at":4,"stream":"users","data":1}}', False),
        (b'{"type":"RECORD","record":{"emitted_at": 4,"stream":"other","data":1}}', False),
        (b'{"type":"RECORD","record":{"emitted_at": 4.5,"stream":"users","data":1}}', False),
        (b'{"type":"RECORD","record":{"emitted_at": 4,"stream":"users"}}', False),
    ]:
        assert (routes.find(line) is not None) == found, line


@each(
    "line",
    [
        b'{"record":{"stream":"users","data":1},"type":"RECORD"}',
        b'{"type":"LOG","record":{"stream":"users","data":1},"type":"RECORD"}',
        b'{"type":"RECORD","record":{"data":1,"stream":"users"}}',
        b'{"type":"RECORD","record":{"stream":"users","meta":{"data":1},"data":1}}',
        rb'{"type":"RECORD","record":{"stream":"users","x":"\"data":","data":1}}',
        rb'{"type":"RECORD","record":{"stream":"users","\u0064ata":1},"x":{"data":1}}',
        b'{"data":1,"type":"RECORD","record":{"stream":"users","data":1}}',
        b'{"type":"RECORD","record":{"stream":"other","data":1,"stream":"users"}}',
        b'{"type":"RECORD","record":{"stream":"users","namespace":"x","data":1,"namespace":null}}',
        b'{"type":"RECORD","record":{"stream":"users","n":NaN,"data":1}}',
        b'{"type":"RECORD","record":[{"stream":"users","data":1}]}',
        b'{"type":"RECORD","record":{"stream":"users","data" :1}}',
    ],
)
def test_a_prefix_that_does_not_prove_the_stream_is_not_learnt(line: bytes) -> None:
    routes, by_prefix = learnt(line, USERS)
    assert not by_prefix
    assert routes.find(line) is None


def test_no_namespace_in_the_prefix_proves_nothing_where_one_may_follow() -> None:
    line = b'{"type":"RECORD","record":{"stream":"users","data":1,"namespace":null}}'
    assert learnt(line, USERS, names_namespace=True)[1] == {}
    late = b'{"type":"RECORD","record":{"stream":"orders","data":1,"namespace":"shop"}}'
    assert learnt(late, SHOP_ORDERS, names_namespace=True)[1] == {}


def test_a_forgotten_stream_is_not_learnt_again() -> None:
    router = PythonLineRouter(len(STREAMS))
    routes = Routes(STREAMS, router)
    line = b'{"type":"RECORD","record":{"stream":"users","data":1}}'
    timed = b'{"type":"RECORD","record":{"stream":"users","emitted_at":1,"data":1}}'
    other = b'{"type":"RECORD","record":{"stream":"orders","namespace":"shop","data":1}}'
    for _ in range(2):
        routes.learn(line, USERS, names_namespace=False, index=0)
        routes.learn(timed, USERS, names_namespace=False, index=0)
        routes.learn(other, SHOP_ORDERS, names_namespace=True, index=1)
        routes.forget(0)
        assert list(router.by_prefix.values()) == [1]
        assert routes.find(timed) is None
