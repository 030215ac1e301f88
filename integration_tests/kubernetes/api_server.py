"""An API server of Kubernetes for tests: the server in memory of Spark's own client library, and TLS, tokens and rights before it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from integration_tests.maven import jvm_with
from integration_tests.servers import free_port
from integration_tests.tls_front import authority

NAMESPACE = "airbyte"
ACCOUNT = "airbyte-admin"
AIRBYTE_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
AIRBYTE_RESOURCES = ("configmaps", "endpoints", "jobs", "pods", "pods/log", "pods/exec", "pods/attach", "secrets")
"""What Airbyte's chart grants its account: no collections are deleted by it, and volume claims and services are none of its."""
AIRBYTE = frozenset(f"{verb} {resource}" for verb in AIRBYTE_VERBS for resource in AIRBYTE_RESOURCES)
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "DELETE": "delete"}
COLLECTIONS = {"get": "list", "delete": "deletecollection"}
Json = dict[str, Any]


@dataclass
class ApiServer:
    """A running server as its administrator sees it.

    `granted` makes a token of an account with these rights, `refused` lists what accounts were not allowed, `bind` puts a pod on a node.
    `merges`: whether the server merges statuses as Kubernetes does. The server in memory would put lists together.
    """

    url: str
    authority: str
    admin: str
    granted: Callable[[str, frozenset[str]], str]
    logs: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    refused: Callable[[], list[str]] = list
    bind: Callable[[str], None] = field(default=lambda _: None)
    merges: bool = False

    def __call__(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Json:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.admin}", "Content-Type": content, "Accept": "application/json"},
        )
        trusting = ssl.create_default_context(cadata=self.authority)
        with urllib.request.urlopen(request, timeout=30, context=trusting) as answer:
            found: Json = json.load(answer)
        return found

    def pods(self) -> list[Json]:
        return list(self("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").get("items") or ())

    def patch_status(self, name: str, status: Json) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        if self.merges:
            self("PATCH", path, {"status": status}, "application/merge-patch+json")
        else:
            self("PATCH", path, [{"op": "add", "path": "/status", "value": status}], "application/json-patch+json")


@dataclass(frozen=True)
class Asked:
    """A request as the rules of an API server see it."""

    verb: str
    resource: str
    name: str

    @classmethod
    def of(cls, method: str, path: str) -> Asked:
        parts = urlsplit(path).path.strip("/").split("/")
        at = 3 if parts[0] == "apis" else 2
        if parts[at : at + 1] == ["namespaces"] and len(parts) > at + 2:
            at += 2
        resource, name, part = (*parts[at:], "", "", "")[:3]
        verb = METHODS[method]
        if "watch=true" in path:
            verb = "watch"
        elif not name:
            verb = COLLECTIONS.get(verb, verb)
        return cls(verb, f"{resource}/{part}" if part else resource, name)

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


@contextmanager
def api_server(directory: Path, address: str, jars: str) -> Iterator[ApiServer]:
    """A server at port 443 of this address, as pods know it."""
    directory.mkdir(parents=True)
    ours = authority(directory, "cluster", address, *NAMES)
    accounts: dict[str, tuple[str, frozenset[str]]] = {}

    def grant(account: str, rights: frozenset[str]) -> str:
        token = secrets.token_hex(16)
        accounts[token] = (account, rights)
        return token

    admin = grant("admin", frozenset({"*"}))
    with jvm_with(jars, directory / "log") as java:
        mock = java.io.fabric8.kubernetes.client.server.mock
        web = java.io.fabric8.mockwebserver
        kept = mock.KubernetesMockServer(
            web.Context(), web.MockWebServer(), java.java.util.HashMap(), mock.KubernetesCrudDispatcher(), False
        )
        kept.init(java.java.net.InetAddress.getByName("127.0.0.1"), free_port())
        refused: list[str] = []
        server = ApiServer(f"https://{address}", ours.pem, admin, grant, refused=lambda: refused)
        guard = _Guard((address, 443), kept.getPort(), server, accounts, refused)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(ours.issued)
        guard.socket = context.wrap_socket(guard.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=guard.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server
        finally:
            guard.shutdown()
            guard.server_close()


class _Guard(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, place: tuple[str, int], behind: int, server: ApiServer, accounts: Mapping[str, tuple[str, frozenset[str]]], refused: list[str]
    ) -> None:
        super().__init__(place, _Handler)
        self.behind, self.server, self.accounts, self.refused = behind, server, accounts, refused

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of a session that is over leave in the middle."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Guard

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked.of(self.command, self.path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        account, rights = self.server.accounts.get(token, ("system:anonymous", frozenset()))
        if asked.resource == "version" or urlsplit(self.path).path == "/version":
            return self._answer(200, {"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        if token and token not in self.server.accounts:
            return self._refuse(401, "Unauthorized")
        if asked.resource == "selfsubjectaccessreviews" and rights:
            wanted = json.loads(body)["spec"]["resourceAttributes"]
            return self._answer(201, {"status": {"allowed": f"{wanted['verb']} {wanted['resource']}" in rights}})
        if str(asked) not in rights and "*" not in rights:
            self.server.refused.append(str(asked))
            named = f'{asked.resource} "{asked.name}"' if asked.name else asked.resource
            return self._refuse(
                403,
                f'{named} is forbidden: User "{account}" cannot {asked.verb} resource "{asked.resource}" in API group "" in the '
                f'namespace "{NAMESPACE}"',
            )
        if parse_qs(urlsplit(self.path).query).get("dryRun") == ["All"]:
            return self._answer(201, json.loads(body))
        if str(asked) == "create pods":
            body = json.dumps({**json.loads(body), "status": {"phase": "Pending"}}).encode()
        if asked.resource == "pods/log":
            return self._send(200, "text/plain", self.server.server.logs.get(asked.name, lambda: b"")())
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self._tunnel()
        return self._forward(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _forward(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection", "content-length")}
        connection.request(self.command, self.path, body or None, headers)
        answer = connection.getresponse()
        self._send(answer.status, answer.headers.get("Content-Type", "application/json"), answer.read())
        connection.close()

    def _tunnel(self) -> None:
        self.close_connection = True
        with socket.create_connection(("127.0.0.1", self.server.behind)) as behind:
            head = [f"{self.command} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
            behind.sendall("\r\n".join(head).encode())
            back = threading.Thread(target=_copy, args=(behind, self.connection), daemon=True)
            back.start()
            _copy(self.connection, behind)
            back.join()

    def _refuse(self, code: int, message: str) -> None:
        self._answer(code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})

    def _answer(self, code: int, body: Json) -> None:
        self._send(code, "application/json", json.dumps(body).encode())

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
