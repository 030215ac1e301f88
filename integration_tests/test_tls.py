"""Stores and catalogs behind TLS with an authority of their own, which the configuration or the environment names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import SSLError

from destination_s3_spark import tables
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.credentials import for_executors
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.catalogs import connected
from integration_tests.lake import ProcessLake
from integration_tests.tls_front import Authority, Front, authority, tls_front
from unit_tests.cases import each
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

CATALOG = catalog(stream(mode="append_dedup", primary_key=[["id"]]))
ROLE = "arn:aws:iam::111122223333:role/lake"

ON_AN_EXECUTOR = """
import pickle, sys
from destination_s3_spark.storage.s3 import S3Store
settings = pickle.load(sys.stdin.buffer)
print(sorted(found.key for found in S3Store(settings).list("lake/shop/"))[0])
"""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("another"), "another")


@pytest.fixture
def front(moto: S3Server, ours: Authority) -> Iterator[Front]:
    with tls_front(ours.issued, moto.endpoint) as running:
        yield running


@pytest.fixture
def lake(moto: S3Server, tmp_path: Path) -> Lake:
    """An empty bucket on the server behind the front, for commands that run in this process."""
    return Lake(new_bucket(moto).settings, tmp_path)


def messages() -> list[bytes]:
    return [*users(range(10)), state(1), complete()]


def test_a_certificate_of_the_configuration_holds_for_the_store_the_role_and_the_catalog(
    moto_lake: ProcessLake, front: Front, ours: Authority
) -> None:
    server = moto_lake.bucket.server
    environment = {
        "AWS_ENDPOINT_URL_STS": front.url,
        "AWS_ENDPOINT_URL_GLUE": front.url,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_ASSUME_ROLE_EXTERNAL_ID": "workspace",
    }
    connector = moto_lake.connector(
        front.url,
        environment,
        access_key_id=None,
        secret_access_key=None,
        role_arn=ROLE,
        s3={"ca_certificate": ours.pem},
        publish={"glue": {"database": "tls"}},
    )
    assert connector.check().connection_status == {"status": "SUCCEEDED"}
    outcome = connector.write(CATALOG, messages()).expect_success()
    assert "glue" not in outcome.warnings
    assert moto_lake.ids() == list(range(10))
    moto_lake.verify_at_rest()


def test_a_file_that_the_environment_names_does_as_well(moto_lake: ProcessLake, front: Front, ours: Authority) -> None:
    bundle = moto_lake.directory / "authorities.pem"
    bundle.write_text(ours.pem)
    connector = moto_lake.connector(front.url, {"AWS_CA_BUNDLE": str(bundle)})
    connector.write(CATALOG, messages()).expect_success()
    assert moto_lake.ids() == list(range(10))


@each("given", ["nothing", "another"])
def test_without_it_nothing_is_sent_and_the_error_names_the_option(lake: Lake, front: Front, another: Authority, given: str) -> None:
    options: dict[str, Any] = {"s3": {"ca_certificate": another.pem}} if given == "another" else {}
    status = lake.through(replace(lake.settings, endpoint=front.url)).connector().check(**options).connection_status
    assert status["status"] == "FAILED"
    assert "is not trusted. Set s3.ca_certificate" in status["message"]
    assert front.connections == []


def test_executors_trust_whom_the_driver_trusts_and_readers_in_python_too(
    lake: Lake, front: Front, ours: Authority, another: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.connector().write(CATALOG, messages()).expect_success()
    options = lake.through(replace(lake.settings, endpoint=front.url)).raw_config(s3={"ca_certificate": ours.pem})
    bundle = lake.directory / "authorities.pem"
    for option, environment in ((ours.pem, None), (None, ours.pem), (another.pem, ours.pem)):
        if environment is None:
            monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
        else:
            bundle.write_text(environment)
            monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        config = {**options, "s3": {"ca_certificate": option}}
        settings = for_executors(s3_settings(Config.parse(config)), forward=True)
        assert on_an_executor(settings).startswith("lake/shop/users/")
        table = tables.read(json.loads(json.dumps(config)), "users", namespace="shop")
        assert sorted(table.to_table()["id"].to_pylist()) == list(range(10))


class _Catalog(BaseHTTPRequestHandler):
    """The first answer of a REST catalog."""

    def do_GET(self) -> None:
        body = b'{"defaults": {}, "overrides": {}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_iceberg_catalog_is_trusted_by_the_same_rule(ours: Authority, another: Authority) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Catalog)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    with tls_front(ours.issued, f"http://127.0.0.1:{server.server_port}") as behind_tls:
        options = IcebergRest(type="rest", uri=behind_tls.url, warehouse="lake")
        for certificate in (None, another.pem):
            with pytest.raises(SSLError):
                connected(options, S3Settings("lake", ca_certificate=certificate))
        assert behind_tls.connections == []
        assert connected(options, S3Settings("lake", ca_certificate=ours.pem)).name == "airbyte"
    server.shutdown()
    server.server_close()


def on_an_executor(settings: Any) -> str:
    """The first key that another process sees with these settings, without this one's environment."""
    import pickle  # noqa: PLC0415

    environment = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    program = [sys.executable, "-c", ON_AN_EXECUTOR]
    ended = subprocess.run(program, input=pickle.dumps(settings), env=environment, capture_output=True, check=False, cwd=Path.cwd())
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()
