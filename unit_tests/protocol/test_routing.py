from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.errors import Bug
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.routing import LineRouter, NativeLineRouter, PythonLineRouter
from unit_tests.cases import each

ROUTERS = [PythonLineRouter, *([NativeLineRouter] if KERNEL is not None else [])]
USERS, ORDERS = b'{"stream":"users","data":', b'{"stream":"orders","data":'
Taken = list[tuple[int, bytes, int, list[int]]]


@pytest.fixture(params=ROUTERS, ids=lambda router: router.__name__)
def router(request: pytest.FixtureRequest) -> LineRouter:
    """For three streams, of which 0 and 1 are known by their prefixes."""
    made: LineRouter = request.param(3)
    return learnt(made)


def learnt(router: LineRouter) -> LineRouter:
    router.learn(USERS, 0)
    router.learn(ORDERS, 1)
    return router


def taken(router: LineRouter) -> Taken:
    return [(found.stream, found.lines, found.records, found.runs.tolist()) for found in router.taken()]


def test_lines_of_known_prefixes_are_sorted_by_stream_and_placed_in_the_input(router: LineRouter) -> None:
    one, two, other = USERS + b"1}\n", ORDERS + b"2}\n", b'{"type":"STATE"}\n'
    text = b"..." + one + one + two + one + other + two + b"unfinished"
    end = len(text) - len(b"unfinished")
    stop = router.route(text, 3, end, 1000)
    assert text[stop:].startswith(other)
    behind = stop + len(other)
    assert router.route(text, behind, end, 1000 + behind - 3) == end
    first = 2 * len(one) + len(two)
    assert taken(router) == [
        (0, one * 3, 3, [1000, 2, 1000 + first, 1]),
        (1, two * 2, 2, [1000 + 2 * len(one), 1, 1000 + behind - 3, 1]),
    ]
    assert taken(router) == []


def test_lines_that_follow_each_other_in_the_input_are_one_run(router: LineRouter) -> None:
    line = USERS + b"1}\n"
    router.add(line, 0, len(line), 50, 0)
    assert router.route(line * 2, 0, 2 * len(line), 50 + len(line)) == 2 * len(line)
    router.add(line, 0, len(line), 50 + 3 * len(line), 2)
    assert taken(router) == [(0, line * 3, 3, [50, 3]), (2, line, 1, [50 + 3 * len(line), 1])]


def test_lines_of_a_forgotten_stream_are_unknown(router: LineRouter) -> None:
    text = ORDERS + b"1}\n" + USERS + b"1}\n"
    router.forget(0)
    assert text[router.route(text, 0, len(text), 0) :].startswith(USERS)


@each("of", ROUTERS)
@each("line", [b"\n", b" \n", USERS[:-1] + b"\n", b'{"data":1}\n', b"\xff" + USERS + b"1}\n", b"x" * 100_000 + b"\n"])
def test_any_other_line_is_unknown(of: Callable[[int], LineRouter], line: bytes) -> None:
    router = learnt(of(3))
    text = line + USERS + b"1}\n"
    assert router.route(text, 0, len(text), 0) == 0
    assert taken(router) == []


class Watched(bytes):
    """A text that remembers how far it was searched."""

    searched: int

    def find(self, what: bytes, start: int, end: int | None = None) -> int:  # type: ignore[override]
        found = super().find(what, start, len(self) if end is None else end)
        self.searched += (found if found >= 0 else len(self) if end is None else end) - start
        return found


def test_other_lines_are_not_searched_beyond_their_ends() -> None:
    text = Watched(b'{"type":"LOG"}\n' * 1000)
    text.searched = 0
    router = PythonLineRouter(1)
    for start in range(0, len(text), len(text) // 1000):
        assert router.route(text, start, len(text), start) == start
    assert text.searched < 3 * len(text)


PIECES = [USERS + b"1}\n", ORDERS + b'"x\xff"}\n', USERS, ORDERS, b"\n", b'"data":', b'{"stream":', b"\x00", b"\r\n"]


@pytest.mark.skipif(KERNEL is None, reason="without the native kernel")
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=12), st.integers(0, 2**40))
def test_both_routers_route_the_same(pieces: list[bytes], offset: int) -> None:
    text = b"".join(pieces)
    end = text.rfind(b"\n") + 1
    routers = [learnt(PythonLineRouter(3)), learnt(NativeLineRouter(3))]
    at = 0
    while at < end:
        stops = [router.route(text, at, end, offset + at) for router in routers]
        assert len(set(stops)) == 1
        at = stops[0]
        if at < end:
            behind = text.index(b"\n", at) + 1
            for router in routers:
                router.add(text, at, behind, offset + at, 2)
            at = behind
    assert taken(routers[0]) == taken(routers[1])


@pytest.mark.skipif(KERNEL is None, reason="without the native kernel")
def test_places_and_streams_that_there_are_not_are_refused() -> None:
    router = NativeLineRouter(1)
    with pytest.raises(IndexError):
        router.learn(USERS, 1)
    with pytest.raises(IndexError):
        router.add(b"x\n", 0, 2, 0, 1)
    for start, end in ((0, 3), (2, 1)):
        with pytest.raises(ValueError, match="no such place"):
            router.route(b"x\n", start, end, 0)
        with pytest.raises(ValueError, match="no such place"):
            router.add(b"x\n", start, end, 0, 0)


class Broken:
    """A kernel with a fault."""

    learn = forget = add = taken = None

    def route(self, *_: object) -> int:
        raise RuntimeError("the router failed")


@pytest.mark.skipif(KERNEL is None, reason="without the native kernel")
def test_a_fault_of_the_kernel_is_said_to_be_one() -> None:
    router = NativeLineRouter(1)
    router._router = Broken()
    with pytest.raises(Bug, match="native kernel"):
        router.route(b"x\n", 0, 2, 0)
