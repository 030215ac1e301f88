"""Iceberg catalogs and metadata that name code to be run: no command runs it, and data is synced all the same."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unit_tests.lake.buckets import Bucket
from unit_tests.lake.hostile_catalog import HostileCatalog, served
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, state, stream, users

CODE = "canary.sing"
CODE_PROPERTIES = {
    "py-io-impl": CODE,
    "write.py-location-provider.impl": CODE,
    "py-catalog-impl": CODE,
    "s3.retry-strategy-impl": CODE,
}
CANARY = """
import os, pathlib
pathlib.Path(os.environ["CANARY"]).write_text("imported")
def sing(*arguments, **options):
    pathlib.Path(os.environ["CANARY"]).write_text("called")
"""
COMMANDS = [
    ("doctor",),
    ("inspect",),
    ("inspect", "shop.users"),
    ("verify",),
    ("repair",),
    ("optimize",),
    ("rebuild", "shop.users"),
    ("report", "--out", "page.html"),
]


class Aviary:
    """A lake whose connector would find a module that leaves a file behind as soon as it is imported."""

    def __init__(self, lake: Lake, sign: Path) -> None:
        self.lake = lake
        self.sign = sign

    def connector(self, iceberg: dict[str, Any]) -> InlineConnector:
        return self.lake.connector(publish={"iceberg": iceberg})

    def run_every_command(self, connector: InlineConnector) -> dict[str, Outcome]:
        """Run check, a sync and all commands of operators. No code may have run after any of them."""
        outcomes = {"check": connector.check()}
        assert not self.sign.exists(), "check"
        outcomes["write"] = connector.write(catalog(stream()), [*users([7, 8]), state(9), complete()]).expect_success()
        assert not self.sign.exists(), "write"
        for command, *arguments in COMMANDS:
            outcomes[command] = connector.run(command, *arguments)
            assert not self.sign.exists(), command
            assert "Traceback" not in outcomes[command].stderr, outcomes[command].describe()
        return outcomes


@pytest.fixture
def aviary(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aviary]:
    code, sign = tmp_path / "code", tmp_path / "canary.txt"
    code.mkdir()
    (code / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(code)
    monkeypatch.setenv("CANARY", str(sign))
    monkeypatch.chdir(tmp_path)  # where `report` leaves its page
    yield Aviary(lake, sign)
    sys.modules.pop("canary", None)


@pytest.fixture
def server() -> Iterator[HostileCatalog]:
    with served(HostileCatalog()) as running:
        yield running


def test_the_canary_sings(aviary: Aviary) -> None:
    """The connector's Python finds the module: what the other tests miss is not just a wrong path."""
    importlib.import_module("canary")
    assert aviary.sign.exists()


def test_no_command_runs_code_that_a_rest_catalog_names(aviary: Aviary, server: HostileCatalog) -> None:
    connector = aviary.connector({"type": "rest", "uri": server.uri, "token": "tok"})
    connector.write(catalog(stream()), [*users(range(3)), state(1), complete()]).expect_success()
    told = {**CODE_PROPERTIES, "auth": {"type": "custom", "impl": CODE, "custom": {}}, "header.X-Told": "yes", "uri": "http://127.0.0.1:9"}
    server.defaults, server.overrides = {"builtins": "x", **CODE_PROPERTIES}, told
    server.properties, server.config = CODE_PROPERTIES, CODE_PROPERTIES
    server.location = "open('/dev/null')"
    server.requests.clear()

    outcomes = aviary.run_every_command(connector)

    assert "has other properties than this connector gave it: py-catalog-impl, py-io-impl" in outcomes["write"].warnings
    assert server.requests, "its own address is asked, whatever it says"
    assert not any("X-Told" in headers for _, _, headers in server.requests)
    assert sorted(aviary.lake.ids()) == [0, 1, 2, 7, 8]
    aviary.lake.verify_at_rest()


def test_no_command_runs_code_that_metadata_in_the_bucket_names(aviary: Aviary, tmp_path: Path) -> None:
    connector = aviary.connector({"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db"})
    connector.write(catalog(stream()), [*users(range(3)), state(1), complete()]).expect_success()
    for key in _metadata(aviary.lake.bucket):
        _forge(aviary.lake.bucket, key)

    outcomes = aviary.run_every_command(connector)

    assert "has other properties than this connector gave it: py-catalog-impl, py-io-impl" in outcomes["write"].warnings
    assert sorted(aviary.lake.ids()) == [0, 1, 2, 7, 8]


def _metadata(bucket: Bucket) -> list[str]:
    found = [key for key in bucket.list_keys() if key.endswith(".metadata.json")]
    assert found
    return found


def _forge(bucket: Bucket, key: str) -> None:
    metadata = json.loads(bucket.read(key))
    metadata["properties"] |= CODE_PROPERTIES
    metadata["location"] = "open('/dev/null')"
    bucket.server.client().put_object(Bucket=bucket.name, Key=key, Body=json.dumps(metadata).encode())
