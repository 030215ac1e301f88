"""`catalog` as a person runs it: what it makes of a source's `discover` is synced by `write` as it stands."""

from __future__ import annotations

import io
import json
import sys

import pytest

from destination_s3_spark.cli import operator_command
from unit_tests.lake.lake import Lake
from unit_tests.lake.shop import complete, state, stream, users


def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_the_catalog_made_from_discover_is_synced(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    described = {**stream()["stream"], "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True}
    discovered = {"type": "CATALOG", "catalog": {"streams": [{**described, "source_defined_primary_key": [["id"]]}]}}
    log = {"type": "LOG", "log": {"level": "INFO", "message": "discovering"}}
    given(json.dumps(log) + "\n" + json.dumps(discovered) + "\n", monkeypatch)

    code, made = operator_command(["catalog"]), capsys.readouterr()

    assert code == 0, made.err
    assert made.err == "users: incremental, append_dedup, key id, cursor none\n1 stream\n"
    lake.connector().write(json.loads(made.out), [*users([1, 2, 1]), state(3), complete()]).expect_success()
    assert lake.ids() == [1, 2]


def test_an_unknown_stream_is_refused_and_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(json.dumps({"streams": [{"name": "users", "json_schema": {}}]}), monkeypatch)

    code, made = operator_command(["catalog", "--select", "user"]), capsys.readouterr()

    assert (code, made.out) == (1, "")
    assert "Did you mean users?" in made.err
