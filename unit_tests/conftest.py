"""Fixtures every group may use: moto as a real S3 endpoint, a bucket of its own for each test, and a proxy that scripts faults."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings

REGION = "us-east-1"


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The URL of an S3 server of this test session. It accepts any credentials."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(moto_endpoint: str) -> str:
    """The name of an empty bucket that no other test uses."""
    name = f"test-{uuid4().hex}"
    admin = S3Settings("", REGION, moto_endpoint, AccessKey("test-key", "test-secret"))
    s3_client(admin, ClientLimits()).create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_settings(moto_endpoint: str, bucket: str) -> S3Settings:
    """Settings of the test's bucket."""
    return S3Settings(bucket, REGION, moto_endpoint, AccessKey("test-key", "test-secret"))


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def error(cls, status: int, code: str, **headers: str) -> Reply:
        """An error as S3 spells it."""
        return cls(status, f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode(), headers)


@dataclass(slots=True)
class Call:
    """One request on its way to the server."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    server: str

    @property
    def operation(self) -> str:
        """S3's name of the call."""
        query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        if "partNumber" in query:
            return "UploadPartCopy" if "x-amz-copy-source" in self.headers else "UploadPart"
        if "uploads" in query:
            return {"POST": "CreateMultipartUpload", "GET": "ListMultipartUploads"}[self.method]
        if "uploadId" in query:
            return {"POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}[self.method]
        if "list-type" in query:
            return "ListObjectsV2"
        if "delete" in query:
            return "DeleteObjects"
        return {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "POST": "STS", "DELETE": "DeleteObject"}[self.method]

    def forward(self) -> Reply:
        """The server's own answer."""
        connection = http.client.HTTPConnection(self.server, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name not in {"expect", "connection", "accept-encoding"}}
        connection.request(self.method, self.target, self.body, headers)
        answer = connection.getresponse()
        body = answer.read()
        kept = {
            name: value for name, value in answer.getheaders() if name.lower() not in {"connection", "transfer-encoding", "date", "server"}
        }
        connection.close()
        return Reply(answer.status, body, kept)


class S3Proxy:
    """Passes calls on to the S3 server unless `script` answers: it returns a Reply, or None for a connection that breaks."""

    def __init__(self, server: str) -> None:
        self.calls: list[Call] = []
        self.script: Callable[[Call], Reply | None] = Call.forward
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                call = Call(self.command, self.path, headers, body, server)
                proxy.calls.append(call)
                reply = proxy.script(call)
                if reply is None:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in ({"Content-Length": str(len(reply.body))} | reply.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def operations(self) -> list[str]:
        """The names of the calls so far."""
        return [call.operation for call in self.calls]

    def fail(self, operation: str, *replies: Reply | None, times: int | None = None) -> None:
        """Answer calls of one operation with the replies in turn, the last one again and again, or `times` in all; pass on the rest."""
        rest = list(replies) * (times or 1)

        def script(call: Call) -> Reply | None:
            if call.operation != operation or not rest:
                return call.forward()
            return rest.pop(0) if len(rest) > 1 or times is not None else rest[0]

        self.script = script

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="session")
def _shared_proxy(moto_endpoint: str) -> Iterator[S3Proxy]:
    proxy = S3Proxy(urlsplit(moto_endpoint).netloc)
    yield proxy
    proxy.close()


@pytest.fixture
def s3_proxy(_shared_proxy: S3Proxy) -> S3Proxy:
    """A proxy in front of the S3 server; use it with `replace(s3_settings, endpoint=s3_proxy.endpoint)`."""
    _shared_proxy.calls, _shared_proxy.script = [], Call.forward
    return _shared_proxy


@pytest.fixture
def s3_error() -> Callable[..., Reply]:
    """`s3_error(status, code, **headers)`: an error answer for the proxy."""
    return Reply.error
