"""A small HTTP proxy between the connector and an S3 server: it counts calls by S3 action, and makes scripted calls fail.

Requests are passed on byte for byte with their `Host` header, so signatures stay valid.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"})
FORWARD_TIMEOUT_S = 120
_NAMED_KEY = re.compile(rb"<Key>(.*?)</Key>")


@dataclass(frozen=True, slots=True)
class S3Call:
    """One request the connector made. `key` is the first one of a request that deletes several, `form` the decoded body of an STS call,
    `status` what the connector got, 0 for a lost answer, and `peer` the address it came from."""

    action: str
    key: str
    headers: dict[str, str]
    form: str = ""
    status: int = 0
    peer: str = ""


class When(Enum):
    """Whether the server sees the request that fails."""

    BEFORE = "before the server acts"
    AFTER = "after the server acted"


@dataclass(slots=True)
class Fault:
    """What to do to `times` matching calls after the first `skip`: run `effect`, and answer `status`.

    Status 0 drops the connection without an answer, and None gives the server's own answer.
    """

    action: str | None = None
    key_contains: str = ""
    only: Callable[[S3Call], bool] = lambda _: True
    status: int | None = 503
    code: str = "SlowDown"
    when: When = When.BEFORE
    times: float = float("inf")
    skip: int = 0
    effect: Callable[[S3Call], object] | None = None
    message: Callable[[S3Call], str] = lambda _: "scripted by the test"
    seen: int = field(default=0, init=False)

    @property
    def lets_through(self) -> bool:
        """Whether the server sees the request at all."""
        return self.when is When.AFTER or self.status is None

    def takes(self, call: S3Call) -> bool:
        """Whether this call is one of those to fail. Counts it."""
        if (self.action not in (None, call.action)) or self.key_contains not in call.key or not self.only(call):
            return False
        self.seen += 1
        return self.skip < self.seen <= self.skip + self.times


class S3Proxy:
    """The running proxy: `calls` so far, and the faults to inject."""

    def __init__(self, target: str, endpoint: str) -> None:
        self.target = urlsplit(target)
        self.endpoint = endpoint
        self.hidden_headers: frozenset[str] = frozenset()
        self._calls: list[S3Call] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def calls(self) -> list[S3Call]:
        with self._lock:
            return list(self._calls)

    def counts(self) -> Counter[str]:
        """Calls by S3 action."""
        return Counter(call.action for call in self.calls)

    def inject(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def hide_headers(self, *names: str) -> None:
        """Drop these request headers, as a server that does not know them would. Breaks signatures that cover them."""
        self.hidden_headers = frozenset(name.lower() for name in names)

    def forget(self) -> None:
        """Start anew: no calls, no faults."""
        with self._lock:
            self._calls.clear()
            self._faults.clear()

    def record(self, call: S3Call) -> None:
        with self._lock:
            self._calls.append(call)

    def fault_for(self, call: S3Call) -> Fault | None:
        with self._lock:
            return next((fault for fault in self._faults if fault.takes(call)), None)


def s3_action(method: str, path: str, headers: dict[str, str]) -> tuple[str, str]:
    """(S3 action, key) of a path-style request; actions without a key have the empty one."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    copied = "x-amz-copy-source" in headers
    if not bucket:
        return ("STS" if method == "POST" else "ListBuckets"), ""
    if "uploadId" in query:
        upload_actions = {"PUT": "UploadPartCopy" if copied else "UploadPart", "POST": "CompleteMultipartUpload"}
        return {**upload_actions, "DELETE": "AbortMultipartUpload", "GET": "ListParts"}[method], key
    if "uploads" in query:
        return ("CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"), key or query.get("prefix", [""])[0]
    if "delete" in query:
        return "DeleteObjects", ""
    if not key:
        return _bucket_action(method, query), query.get("prefix", [""])[0]
    return {"PUT": "CopyObject" if copied else "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}[method], key


def _bucket_action(method: str, query: dict[str, list[str]]) -> str:
    if "versions" in query:
        return "ListObjectVersions"
    if method == "GET" and not ({"location", "versioning"} & query.keys()):
        return "ListObjects"
    return {"GET": "GetBucket" + next(iter(query), "").title(), "HEAD": "HeadBucket", "PUT": "CreateBucket"}.get(method, method)


@contextmanager
def s3_proxy(target: str, address: str = "127.0.0.1") -> Iterator[S3Proxy]:
    """Serve a proxy for the endpoint `target` on a free port of an address of this machine."""
    server = _Server((address, 0), _Handler)
    server.proxy = S3Proxy(target, f"http://{address}:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    proxy: S3Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that is killed, or that we drop, breaks its connection on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_request(self) -> None:
        proxy = cast("_Server", self.server).proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        action, key = s3_action(self.command, self.path, headers)
        body = self._body(headers)
        if action == "DeleteObjects" and (named := _NAMED_KEY.search(body)):
            key = unescape(named[1].decode())
        call = S3Call(action, key, headers, unquote(body.decode()) if action == "STS" else "", peer=self.client_address[0])
        fault = proxy.fault_for(call)
        if fault and fault.effect and fault.when is When.BEFORE:
            fault.effect(call)
        answer = self._forward(proxy, headers, body) if fault is None or fault.lets_through else None
        if fault and fault.effect and fault.when is When.AFTER:
            fault.effect(call)
        if fault and fault.status is not None:
            answer = _error(fault, call) if fault.status else None
        proxy.record(replace(call, status=answer[0] if answer else 0))
        self._answer(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_request  # noqa: N815 (the names http.server looks for)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(headers.get("content-length", "0")))

    def _forward(self, proxy: S3Proxy, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(str(proxy.target.hostname), proxy.target.port, timeout=FORWARD_TIMEOUT_S)
        try:
            passed = {name: value for name, value in headers.items() if name not in HOP_BY_HOP and name not in proxy.hidden_headers}
            passed["content-length"] = str(len(body))
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in passed.items():
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, answer: tuple[int, list[tuple[str, str]], bytes] | None) -> None:
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, body = answer
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _error(fault: Fault, call: S3Call) -> tuple[int, list[tuple[str, str]], bytes]:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{fault.code}</Code><Message>{fault.message(call)}</Message></Error>'
    return int(fault.status or 0), [("Content-Type", "application/xml")], body.encode()
