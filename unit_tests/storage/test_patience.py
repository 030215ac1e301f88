from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.object_store import ObjectNotFound, OutcomeUnknown
from destination_s3_spark.storage.patience import ATTEMPTS_AT_500, CALM_S, OutOfPatience, Patience
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from unit_tests.http_server import serving

IMPATIENT = ClientLimits(patience_s=5, connect_timeout_s=2, read_timeout_s=2)
RESTART_S = 45

HANGS = ReadTimeoutError(endpoint_url="http://store")
REFUSES = EndpointConnectionError(endpoint_url="http://store")
SWALLOWS = ConnectTimeoutError(endpoint_url="http://store")
SLOW_DOWN = (SimpleNamespace(status_code=503, headers={}), {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {}})
INTERNAL_ERROR = (SimpleNamespace(status_code=500, headers={}), {"Error": {"Code": "InternalError"}, "ResponseMetadata": {}})
ANSWER = (SimpleNamespace(status_code=404, headers={}), {"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {}})


class Requests:
    """Calls of a client as botocore makes them, in a time of their own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sent = 0
        events = SimpleNamespace(register_first=self._register, register_last=self._register)
        meta = SimpleNamespace(service_model=SimpleNamespace(service_id=SimpleNamespace(hyphenize=lambda: "s3")), events=events)
        self._handlers: dict[str, Callable[..., Any]] = {}
        Patience(ClientLimits(), lambda: self.now).install(SimpleNamespace(meta=meta))

    def call(self, outcome: Any, seconds: float, operation: str = "PutObject", key: str = "k", attempts: int = 1000) -> None:
        """A call whose every attempt takes so long and has this outcome, an exception or an answer. Raises OutOfPatience.

        Whoever made it stops after so many attempts.
        """
        model = SimpleNamespace(name=operation, error_shapes=[], service_model=SimpleNamespace(service_name="s3"))
        request = {"context": {}, "url_path": f"/b/{key}"}
        self._handlers["before-call.s3"](model=model, params=request)
        for attempt in range(1, attempts + 1):
            self.sent += 1
            self.now += seconds
            failed = isinstance(outcome, Exception)
            wait = self._handlers["needs-retry.s3"](
                request_dict=request, operation=model, attempts=attempt,
                response=None if failed else outcome, caught_exception=outcome if failed else None,
            )  # fmt: skip
            if wait is None:
                return
            self.now += wait

    def _register(self, event: str, handler: Callable[..., Any]) -> None:
        self._handlers[event] = handler


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.mark.parametrize(("outcome", "seconds"), [(HANGS, 60), (SWALLOWS, 10), (REFUSES, 0), (SLOW_DOWN, 0.1), (SLOW_DOWN, 30)])
def test_trouble_is_waited_out_longer_than_a_restart_takes_and_not_for_ever(requests: Requests, outcome: Any, seconds: float) -> None:
    began = requests.now
    requests.call(outcome, seconds)
    assert 2 * RESTART_S < requests.now - began <= ClientLimits().patience_s


def test_a_request_that_is_always_answered_with_500_is_soon_given_up(requests: Requests) -> None:
    for sent in (ATTEMPTS_AT_500, 2 * ATTEMPTS_AT_500):
        requests.call(INTERNAL_ERROR, 0.1)
        assert requests.sent == sent


def test_who_calls_again_finds_the_budget_used_up(requests: Requests) -> None:
    requests.call(HANGS, 60)
    began, sent = requests.now, requests.sent
    for key in ("k", "another", "k"):
        with pytest.raises(OutOfPatience):
            requests.call(HANGS, 60, key=key)
    assert (requests.now, requests.sent) == (began, sent)


def test_another_kind_of_request_has_one_attempt(requests: Requests) -> None:
    requests.call(HANGS, 60)
    sent = requests.sent
    requests.call(HANGS, 60, "GetObject")
    with pytest.raises(OutOfPatience):
        requests.call(HANGS, 60, "GetObject")
    assert requests.sent == sent + 1


def test_answers_to_others_do_not_lengthen_the_wait_for_an_object_that_always_fails(requests: Requests) -> None:
    began, given_up = requests.now, False
    while not given_up:
        try:
            requests.call(HANGS, 10, key="poisoned", attempts=1)
        except OutOfPatience:
            given_up = True
        else:
            requests.call(ANSWER, 0.1, key="fine")
    assert requests.now - began <= ClientLimits().patience_s


def test_an_answer_ends_the_trouble(requests: Requests) -> None:
    for _ in range(20):
        requests.call(HANGS, 60, attempts=2)
        requests.call(ANSWER, 0.1)
    sent = requests.sent
    requests.call(HANGS, 60)
    assert requests.sent > sent + 1


def test_trouble_that_is_long_over_does_not_count(requests: Requests) -> None:
    requests.call(HANGS, 60)
    sent = requests.sent
    requests.now += CALM_S
    requests.call(HANGS, 60)
    assert requests.sent == 2 * sent


@pytest.fixture
def impatient(s3_settings: S3Settings, s3_proxy: Any) -> S3Store:
    """A store with so little patience, and a client of its own: trouble of other tests is none of its business."""
    return S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, region=uuid4().hex, limits=IMPATIENT))


@pytest.fixture
def hang(s3_proxy: Any) -> Iterator[Callable[..., None]]:
    """`hang("PutObject")`: such calls get no answer until the test ends; without a name none does."""
    released = threading.Event()

    def begin(*operations: str) -> None:
        def script(call: Any) -> Any:
            if operations and call.action not in operations:
                return call.forward()
            released.wait(30)
            return None

        s3_proxy.script = script

    yield begin
    released.set()


def test_one_budget_holds_for_all_calls_to_a_store_that_never_answers(impatient: S3Store, s3_proxy: Any, hang: Callable[..., None]) -> None:
    hang()
    for _ in range(8):  # as layers do that repeat a call
        with pytest.raises(OutcomeUnknown):
            impatient.create("block", b"x")
        with pytest.raises(TransientError, match="did not answer"):
            impatient.get("block")
    assert s3_proxy.actions().count("PutObject") <= 3
    assert s3_proxy.actions().count("GetObject") == 1


def test_puts_that_hang_are_given_up_though_gets_are_answered(impatient: S3Store, s3_proxy: Any, hang: Callable[..., None]) -> None:
    hang("PutObject")
    for _ in range(8):
        with pytest.raises(OutcomeUnknown):
            impatient.create("block", b"x")
        with pytest.raises(ObjectNotFound):
            impatient.get("block")
    assert s3_proxy.actions().count("PutObject") <= 3


def test_a_body_that_never_comes_is_given_up_with_the_same_patience(s3_settings: S3Settings) -> None:
    asked: list[str] = []
    hold = threading.Event()

    class Promising(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            hold.wait(30)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Promising) as endpoint:
        with pytest.raises(TransientError, match="did not answer"):
            S3Store(replace(s3_settings, endpoint=endpoint, limits=IMPATIENT)).get("k")
        hold.set()
    assert len(asked) <= 4


def test_a_store_that_comes_back_is_found(s3_settings: S3Settings) -> None:
    """botocore itself gives up connections that are refused within seconds; here they are, until the server is up again."""

    class Storing(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("ETag", '"e"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = S3Store(replace(s3_settings, endpoint=f"http://127.0.0.1:{port}", limits=ClientLimits(read_timeout_s=5)))
    refused = threading.Event()
    store.client.meta.events.register_first("needs-retry.s3", lambda attempts, **_: refused.set() if attempts > 5 else None)
    written = threading.Thread(target=store.put, args=("k", b"x"))
    written.start()
    assert refused.wait(30)
    with serving(Storing, port):
        written.join(60)
        assert not written.is_alive()
