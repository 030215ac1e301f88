"""Trino, which scripts/install-trino unpacks: one process on a free port, and a client that speaks its HTTP protocol."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.servers import free_port, wait_for_http
from unit_tests.lake.buckets import REGION, Bucket

INSTALLED = Path(__file__).parents[2] / ".cache" / "trino"
START_TIMEOUT_S = 300
QUERY_TIMEOUT_S = 120


class TrinoError(Exception):
    """A statement that Trino did not carry out."""


@dataclass(frozen=True)
class Trino:
    """A server that answers SQL in UTC."""

    address: str

    def rows(self, sql: str) -> list[list[Any]]:
        """The rows of a query, in the form of Trino's JSON. Raises TrinoError."""
        headers = {"X-Trino-User": "test", "X-Trino-Time-Zone": "UTC"}
        page = _answer(urllib.request.Request(f"{self.address}/v1/statement", sql.encode(), headers))
        found: list[list[Any]] = []
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while True:
            found += page.get("data", [])
            if "error" in page:
                raise TrinoError(f"{page['error']['errorName']}: {page['error']['message']}")
            if "nextUri" not in page:
                return found
            assert time.monotonic() < deadline, sql
            page = _answer(urllib.request.Request(page["nextUri"], headers=headers))

    def run(self, statements: str) -> None:
        """Carry out statements that end in a semicolon each."""
        for statement in statements.split(";\n"):
            lines = [line for line in statement.splitlines() if not line.startswith("--")]
            if any(lines):
                self.rows("\n".join(lines))


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    with urllib.request.urlopen(request, timeout=QUERY_TIMEOUT_S) as response:
        page: dict[str, Any] = json.load(response)
        return page


@contextmanager
def trino_server(directory: Path, bucket: Bucket, rest_catalog: str) -> Iterator[Trino]:
    """Trino with the catalogs `iceberg`, `delta`, `hive` (metastores in the bucket), and `deltaglue` and `hiveglue` (the server's Glue)."""
    port, log = free_port(), directory / "trino.log"
    for name, options in _catalogs(bucket, rest_catalog).items():
        _write(directory / "catalogs" / f"{name}.properties", options)
    # The address is one of this machine alone, and plugins that no catalog uses take a minute to load.
    options = {
        "node.environment": "test",
        "node.internal-address": "127.0.0.1",
        "node.bind-ip": "127.0.0.1",
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": port,
        "discovery.uri": f"http://127.0.0.1:{port}",
        "catalog.config-dir": directory / "catalogs",
        "plugin.dir": INSTALLED / "server" / "plugin",
    }
    _write(directory / "config.properties", options)
    java = (INSTALLED / "java").read_text().strip()
    command: list[str] = [
        java, "-Xmx2g", "-Djdk.attach.allowAttachSelf=true", "--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow",
        f"-Dconfig={directory / 'config.properties'}", "-cp", f"{INSTALLED / 'server' / 'lib'}/*", "io.trino.server.TrinoServer",
    ]  # fmt: skip
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=directory, env=bare)
    try:
        server = Trino(f"http://127.0.0.1:{port}")
        wait_for_http(f"{server.address}/v1/info", process, log, START_TIMEOUT_S)
        _wait_for_queries(server, process, log)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_queries(server: Trino, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.rows("SELECT 1")
        except (TrinoError, OSError):
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"Trino did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def _catalogs(bucket: Bucket, rest_catalog: str) -> Mapping[str, Mapping[str, object]]:
    server = bucket.server
    s3 = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": server.endpoint,
        "s3.region": REGION,
        "s3.path-style-access": "true",
        "s3.aws-access-key": server.access_key,
        "s3.aws-secret-key": server.secret_key,
    }
    in_bucket = {**s3, "hive.metastore": "file", "hive.metastore.catalog.dir": f"s3://{bucket.name}/metastore"}
    glue = {
        **s3,
        "hive.metastore": "glue",
        "hive.metastore.glue.region": REGION,
        "hive.metastore.glue.endpoint-url": server.endpoint,
        "hive.metastore.glue.aws-access-key": server.access_key,
        "hive.metastore.glue.aws-secret-key": server.secret_key,
    }
    delta = {"connector.name": "delta_lake", "delta.register-table-procedure.enabled": "true"}
    hive = {"connector.name": "hive", "hive.timestamp-precision": "MICROSECONDS", "hive.recursive-directories": "true"}
    rest = {"connector.name": "iceberg", "iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": rest_catalog}
    return {
        "iceberg": rest | s3,
        "delta": delta | in_bucket,
        "deltaglue": delta | glue,
        "hive": hive | in_bucket,
        "hiveglue": hive | glue,
    }


def _write(path: Path, options: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
