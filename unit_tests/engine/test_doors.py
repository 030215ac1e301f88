"""Doors of a session: who may talk to the driver, and to whom it hands the tokens of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings
from destination_s3_spark.errors import SyncError
from unit_tests.http_server import serving

pytestmark = pytest.mark.slow


def test_a_program_without_the_secret_is_refused_on_the_drivers_port(tmp_path: Path) -> None:
    assert "HeartbeatReceiver" in _reached(tmp_path / "open", {"spark.authenticate": "false"}), "the probe reaches an open driver"
    assert "received something else (maybe your client does not have SASL enabled?)" in _reached(tmp_path / "ours", {})


def _reached(directory: Path, conf: dict[str, str]) -> str:
    """Ask the driver of a session for one of its endpoints, as a program without its secret. Return the endpoint, or the refusal."""
    engine = Engine(SparkSettings(1, 512, directory, conf))
    try:
        assert engine.run(abs, [[-4]]) == [[4]]
        context = SparkContext._active_spark_context
        assert context is not None
        jvm: Any = context._jvm
        theirs = jvm.org.apache.spark.SparkConf(False)
        for key in ("spark.rpc.lookupTimeout", "spark.network.timeout", "spark.rpc.askTimeout"):
            theirs.set(key, "10s")
        manager = jvm.org.apache.spark.SecurityManager
        nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        security = manager(theirs, nothing, getattr(manager, "$lessinit$greater$default$3")())
        probe = jvm.org.apache.spark.rpc.RpcEnv.create("probe", "127.0.0.1", 0, theirs, security, True)
        address = jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", int(str(context.getConf().get("spark.driver.port"))))
        return str(probe.setupEndpointRef(address, "HeartbeatReceiver").toString())
    except Py4JJavaError as refused:
        return str(refused)  # while there is a JVM to ask
    finally:
        engine.stop()


@pytest.fixture
def api_server() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A Kubernetes API server that would make pods and makes none. What it was sent: programs, and their Authorization headers."""
    sent: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            sent.append((self.headers.get("User-Agent", ""), self.headers.get("Authorization")))
            refused = self.command == "POST" and "dryRun" not in self.path and "reviews" not in self.path
            answer = {"kind": "Status", "status": "Failure", "code": 403, "message": "no"} if refused else {"kind": "PodList", "items": []}
            body = json.dumps({"apiVersion": "v1", **answer}).encode()
            self.send_response(403 if refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as endpoint:
        yield endpoint, sent


def test_the_token_of_a_kubeconfig_is_not_sent_to_a_master(
    api_server: tuple[str, list[tuple[str, str | None]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, sent = api_server
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "mine",
        "contexts": [{"name": "mine", "context": {"cluster": "mine", "user": "me"}}],
        "clusters": [{"name": "mine", "cluster": {"server": "https://mine.example:6443"}}],
        "users": [{"name": "me", "user": {"token": "KUBECONFIG-TOKEN"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    conf = {"spark.kubernetes.container.image": "image", "spark.kubernetes.namespace": "n", "spark.driver.host": "127.0.0.1"}
    engine = Engine(SparkSettings(0, 512, tmp_path / "spark", conf, Cluster(f"k8s://{address}", "python3", 90)))
    try:
        with pytest.raises(SyncError):
            engine.run(abs, [[-4]])
    finally:
        engine.stop()

    assert any(program.startswith("fabric8") for program, _ in sent), "Spark asked the master"
    assert {token for _, token in sent} == {None}
