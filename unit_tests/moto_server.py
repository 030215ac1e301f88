"""moto behind an HTTP server that keeps connections open, in this process or as `python -m unit_tests.moto_server PORT`.

moto's own server makes a connection and a thread for each request, and lists its package's directory in each: half of what a call costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cached_property
from http.server import ThreadingHTTPServer
from io import BytesIO
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from werkzeug.exceptions import InternalServerError

HOST = "127.0.0.1"

_CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
_CONDITIONAL = Lock()
"""Held during conditional writes: moto checks the condition first and writes then, and of two threads both could find it met."""

_complete_upload = S3Backend.complete_multipart_upload


def _complete_known_upload(backend: S3Backend, bucket_name: str, multipart_id: str, body: Any) -> Any:
    """Answer like S3 if the upload is gone. moto has an error of its own, which clients retry for seconds."""
    if multipart_id not in backend.get_bucket(bucket_name).multiparts:
        raise NoSuchUpload(upload_id=multipart_id)
    return _complete_upload(backend, bucket_name, multipart_id, body)


S3Backend.complete_multipart_upload = _complete_known_upload  # type: ignore[assignment, method-assign]


class _Services(DomainDispatcherApplication):
    """The applications of moto's services, with a short way to that of S3."""

    def get_application(self, environ: dict[str, Any]) -> Any:
        if "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", "") and not environ["PATH_INFO"].startswith("/moto-api"):
            return self._s3
        return super().get_application(environ)

    @cached_property
    def _s3(self) -> Any:
        return super().get_application({"PATH_INFO": "/"})


class _Handler(MotoRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one write

    def run_wsgi(self) -> None:
        """Answer a request, and leave the connection where the next one begins."""
        environ = self.make_environ()
        if environ.pop("wsgi.input_terminated", False):
            body = environ["wsgi.input"].read()
            del environ["HTTP_TRANSFER_ENCODING"]
            environ["CONTENT_LENGTH"] = str(len(body))
        else:
            body = self.rfile.read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        try:
            self._answer(self.server.app, environ)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 (as werkzeug does)
            self.log_error("%r", error)
            self._answer(InternalServerError(), environ)

    def _answer(self, app: Any, environ: dict[str, Any]) -> None:
        said: list[Any] = []
        is_conditional = self.command != "GET" and not _CONDITIONS.isdisjoint(environ)
        with _CONDITIONAL if is_conditional else nullcontext():
            parts: Iterable[bytes] = app(environ, lambda *arguments: said.extend(arguments[:2]))
            content = b"".join(parts)
        if hasattr(parts, "close"):
            parts.close()
        status, headers = said
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        """Let the client send its body at once. boto waits a second for this."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def log_request(self, *_: object) -> None:
        """Say nothing."""


class MotoServer(ThreadingHTTPServer):
    """The server, on a free port unless one is given. `serve_forever` serves until `shutdown`."""

    daemon_threads = True
    request_queue_size = 128
    # What the handler asks of werkzeug's server.
    ssl_context, multithread, multiprocess, _server_version = None, True, False, "moto"

    def __init__(self, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.app = _Services(create_backend_app)
        self.endpoint = f"http://{HOST}:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that broke its connection."""

    def log(self, kind: str, message: str, *arguments: object) -> None:
        """Write an error to stderr."""
        if kind == "error":
            sys.stderr.write(f"{message % arguments}\n")


if __name__ == "__main__":
    MotoServer(int(sys.argv[1])).serve_forever()
