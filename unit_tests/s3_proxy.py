"""An HTTP proxy in front of an S3 server, for tests about requests: it keeps what was sent, and a script decides what is answered.

Requests are passed on byte for byte with their `Host` header, so signatures stay valid.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"})
FORWARD_TIMEOUT_S = 120
_NAMED_KEY = re.compile(rb"<Key>(.*?)</Key>")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def error(cls, status: int, code: str, message: str = "scripted", **headers: str) -> Reply:
        """An error as S3 spells it."""
        text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
        return cls(status, text.encode(), {"Content-Type": "application/xml", **headers})


@dataclass(slots=True)
class Call:
    """One request on its way to the server. `status`: what was answered, 0 for nothing; `peer`: the address it came from."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    server: str
    peer: str = ""
    status: int = 0

    @property
    def action(self) -> str:
        """S3's name of the call."""
        return s3_action(self.method, self.target, self.headers)[0]

    @property
    def key(self) -> str:
        """Its key or prefix, and the first key of a request that deletes several."""
        action, key = s3_action(self.method, self.target, self.headers)
        named = _NAMED_KEY.search(self.body) if action == "DeleteObjects" else None
        return key if named is None else unescape(named[1].decode())

    def forward(self) -> Reply:
        """The server's own answer."""
        connection = _OPEN.__dict__.get(self.server)
        if connection is not None:
            try:
                return self._asked(connection)
            except ConnectionError:  # the server closed it in the meantime
                connection.close()
        connection = _OPEN.__dict__[self.server] = http.client.HTTPConnection(self.server, timeout=FORWARD_TIMEOUT_S)
        return self._asked(connection)

    def _asked(self, connection: http.client.HTTPConnection) -> Reply:
        passed = {name: value for name, value in self.headers.items() if name not in HOP_BY_HOP}
        try:
            connection.putrequest(self.method, self.target, skip_host="host" in passed, skip_accept_encoding=True)
            for name, value in (passed | {"content-length": str(len(self.body))}).items():
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders(self.body)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # else it would wait for this answer
            raise
        return Reply(answer.status, body, {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP})


_OPEN = threading.local()
"""This thread's connections to servers."""


def s3_action(method: str, target: str, headers: dict[str, str]) -> tuple[str, str]:
    """Return the S3 action and the key of a path-style request; actions without a key have the empty one."""
    parts = urlsplit(target)
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
        return "ListObjectsV2" if "list-type" in query else "ListObjects"
    return {"GET": "GetBucket" + next(iter(query), "").title(), "HEAD": "HeadBucket", "PUT": "CreateBucket"}.get(method, method)


class S3Proxy:
    """Passes calls on to a server (host and port) unless `script` answers: it returns a Reply, or None for a connection that breaks."""

    def __init__(self, server: str, address: str = "127.0.0.1") -> None:
        self.calls: list[Call] = []
        self.script: Callable[[Call], Reply | None] = Call.forward
        proxy = self

        class Handler(_Handler):
            def do(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                call = Call(self.command, self.path, headers, self.body(headers), server, self.client_address[0])
                proxy.calls.append(call)
                reply = proxy.script(call)
                call.status = 0 if reply is None else reply.status
                self.answer(reply)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815

        self._server = _Server((address, 0), Handler)
        self.endpoint = f"http://{address}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def actions(self) -> list[str]:
        """The names of the calls so far."""
        return [call.action for call in self.calls]

    def counts(self) -> Counter[str]:
        return Counter(self.actions())

    def fail(self, action: str, *replies: Reply | None, times: int | None = None) -> None:
        """Answer calls of one action with the replies in turn, the last one again and again, or `times` in all; pass on the rest."""
        rest = list(replies) * (times or 1)

        def script(call: Call) -> Reply | None:
            if call.action != action or not rest:
                return call.forward()
            return rest.pop(0) if len(rest) > 1 or times is not None else rest[0]

        self.script = script

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that is killed, or that we drop, breaks its connection on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", "0")))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, reply: Reply | None) -> None:
        if reply is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(reply.status)
        given = {name.lower() for name in reply.headers}
        own = {"Date": self.date_time_string(), "Content-Length": str(len(reply.body))}
        for name, value in (*reply.headers.items(), *((name, value) for name, value in own.items() if name.lower() not in given)):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def finish(self) -> None:
        super().finish()
        while _OPEN.__dict__:
            _OPEN.__dict__.popitem()[1].close()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
