"""A real control plane of Kubernetes for tests: etcd, and an API server with RBAC and Pod Security, built from control_plane/main.go."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import threading
import time
import urllib.error
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from integration_tests.kubernetes.api_server import ACCOUNT, NAMES, NAMESPACE, ApiServer, Json
from integration_tests.servers import free_port
from integration_tests.tls_front import authority

NODE = "node"
START_TIMEOUT_S = 180
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACE_PATH = f"/api/v1/namespaces/{NAMESPACE}"
AUDITED = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}


@contextmanager
def real_api_server(program: Path, directory: Path, address: str) -> Iterator[ApiServer]:
    """A server at port 443 of this address, as pods know it, whose namespace admits only pods that Pod Security calls restricted."""
    directory.mkdir(parents=True)
    ours, admin = authority(directory, "cluster", address, *NAMES), secrets.token_hex(16)
    with ExitStack() as stack:
        etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        stack.enter_context(_running([str(program), "etcd", str(directory / "etcd"), etcd, peer], directory / "etcd.log"))
        command = [str(program), "apiserver", *_options(directory, address, etcd, admin, ours.issued)]
        running = stack.enter_context(_running(command, directory / "apiserver.log"))
        rights = _Rights()
        server = ApiServer(f"https://{address}", ours.pem, admin, lambda _, wanted: rights.granted(server, wanted), merges=True)
        server.refused = lambda: list(_refused(directory / "audit.log"))
        server.bind = lambda pod: _bind(server, pod)
        _wait(server, running, directory / "apiserver.log")
        port = stack.enter_context(_kubelet(server, address, ours.issued))
        _fill(server, address, port)
        yield server


def _options(directory: Path, address: str, etcd: str, admin: str, issued: Path) -> Iterator[str]:
    (directory / "tokens.csv").write_text(f"{admin},admin,1,system:masters\n")
    (directory / "policy.json").write_text(json.dumps(AUDITED))
    signing = directory / "accounts.pem"
    private = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    signing.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(serialization.Encoding.PEM, *private))
    options = {
        "etcd-servers": etcd, "bind-address": address, "advertise-address": address, "secure-port": 443, "cert-dir": directory / "own",
        "tls-cert-file": issued, "tls-private-key-file": issued, "token-auth-file": directory / "tokens.csv", "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc", "service-account-key-file": signing,
        "service-account-signing-key-file": signing, "service-cluster-ip-range": "198.19.255.0/24", "endpoint-reconciler-type": "none",
        "audit-policy-file": directory / "policy.json", "audit-log-path": directory / "audit.log",
    }  # fmt: skip
    yield from (f"--{name}={value}" for name, value in options.items())


@contextmanager
def _running(command: Sequence[str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    with said.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _wait(server: ApiServer, running: subprocess.Popen[bytes], said: Path) -> None:
    """Wait until the server has made its own objects."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with suppress(OSError, ValueError):
            server("GET", f"{RBAC}/clusterrolebindings/system:basic-user")
            server("GET", "/api/v1/namespaces/default")
            return
        assert running.poll() is None, said.read_text()[-3000:]
        assert time.monotonic() < deadline, said.read_text()[-3000:]
        time.sleep(0.5)


def _fill(server: ApiServer, address: str, port: int) -> None:
    """Make the node, the namespace and its accounts. A cluster's controllers would make the default account."""
    place = {"addresses": [{"type": "InternalIP", "address": address}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    server("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "status": place})
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    server("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
    for name in ("default", ACCOUNT):
        server("POST", f"{NAMESPACE_PATH}/serviceaccounts", {"metadata": {"name": name}})


class _Rights:
    """Accounts, each with a role of its own."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def granted(self, server: ApiServer, rights: frozenset[str]) -> str:
        """Return a token of a new account with these rights."""
        name = f"{ACCOUNT}-{next(self._numbers)}"
        rules = [{"apiGroups": ["*"], "resources": [right.split()[1]], "verbs": [right.split()[0]]} for right in sorted(rights)]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        server("POST", f"{NAMESPACE_PATH}/serviceaccounts", {"metadata": {"name": name}})
        server("POST", f"{RBAC}/namespaces/{NAMESPACE}/roles", {"metadata": {"name": name}, "rules": rules})
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        server("POST", f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", binding)
        token: str = server("POST", f"{NAMESPACE_PATH}/serviceaccounts/{name}/token", {"spec": {}})["status"]["token"]
        return token


def _bind(server: ApiServer, pod: str) -> None:
    """Put a pod on the node, as a scheduler does."""
    with suppress(urllib.error.HTTPError):  # it is gone, or there already
        server("POST", f"{NAMESPACE_PATH}/pods/{pod}/binding", {"metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE}})


def _refused(log: Path) -> Iterator[str]:
    """Yield what accounts were not allowed, from the audit log."""
    for line in log.read_text().splitlines():
        said: Json = json.loads(line)
        if said.get("responseStatus", {}).get("code") == 403 and said["user"]["username"].startswith("system:serviceaccount:"):
            asked = said.get("objectRef", {})
            yield f"{said['verb']} {'/'.join(filter(None, (asked.get('resource'), asked.get('subresource'))))}"


@contextmanager
def _kubelet(server: ApiServer, address: str, issued: Path) -> Iterator[int]:
    """What an API server asks a node for: what containers said."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod = self.path.partition("?")[0].split("/")[3]
            said = server.logs.get(pod, lambda: b"")()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    node = ThreadingHTTPServer((address, free_port()), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued)
    node.socket = context.wrap_socket(node.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=node.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield node.server_port
    finally:
        node.shutdown()
        node.server_close()
