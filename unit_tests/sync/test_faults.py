"""Whole syncs with a fault at each of their requests in turn: the answer is lost, or the sync stands still there while another one runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.symlink import MANIFEST
from unit_tests.examples import quick_first
from unit_tests.rotation import taken
from unit_tests.sync.inline_lake import InlineLake, records, state, status

ROOT = "lake/users/"
EVERY = 3
"""Of so many requests, a run takes one."""
FEWER_FILES = {"tables": {"raw_tables": False}}


def catalog(mode: str, sync_id: int) -> Catalog:
    """One stream; "refresh" is append whose new generation replaces the one before."""
    described = {
        "name": "users",
        "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "supported_sync_modes": ["incremental"],
    }
    entry = {
        "stream": described,
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup" if mode == "append_dedup" else "append",
        "primary_key": [["id"]],
        "cursor_field": [],
        "generation_id": sync_id,
        "minimum_generation_id": sync_id if mode == "refresh" else 0,
        "sync_id": sync_id,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def sync(lake: InlineLake, mode: str, number: int) -> None:
    """A sync with one record of its own, and one that all send."""
    lake.sync(catalog(mode, number), [records([0, number]), state(number), status("COMPLETE")])


def expect_at_rest(settings: S3Settings) -> None:
    """Readers of the manifest and of the folder see the same, and no upload is left."""
    store = S3Store(settings)
    shown = store.get(ROOT + MANIFEST).decode().split()
    there = [f"s3://{settings.bucket}/{found.key}" for found in store.list(ROOT) if found.key.endswith(".parquet")]
    assert shown == there
    assert list(store.list_uploads("")) == []


@pytest.fixture
def behind_proxy(s3_settings: S3Settings, s3_proxy: Any, tmp_path: Path) -> InlineLake:
    return InlineLake(replace(s3_settings, endpoint=s3_proxy.endpoint), tmp_path / "first", options=FEWER_FILES)


def at_call(number: int, effect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A script for the proxy: the call with this number goes through `effect`."""
    seen: list[str] = []

    def script(call: Any) -> Any:
        seen.append(call.operation)
        return effect(call) if len(seen) == number else call.forward()

    return script


def calls_of(lake: InlineLake, s3_proxy: Any, mode: str) -> int:
    """How many calls a sync of the table makes that is there by then."""
    for number in (1, 2):
        s3_proxy.calls.clear()
        sync(lake, mode, number)
    return len(s3_proxy.calls)


@pytest.mark.parametrize("mode", quick_first(["append", "append_dedup", "refresh"]))
def test_the_answer_to_any_request_may_be_lost(behind_proxy: InlineLake, s3_settings: S3Settings, s3_proxy: Any, mode: str) -> None:
    calls = calls_of(behind_proxy, s3_proxy, mode)
    sent = [1, 2]
    for call in taken(range(1, calls + 1), EVERY):
        sent.append(2 + call)
        s3_proxy.script = at_call(call, lambda lost: lost.forward() and None)
        sync(behind_proxy, mode, sent[-1])
        shared = [0] * (len(sent) if mode == "append" else 1)
        expected = [0, sent[-1]] if mode == "refresh" else [*shared, *sent]
        assert (call, behind_proxy.ids()) == (call, expected)
        expect_at_rest(s3_settings)
    assert [acknowledged["stream"]["stream_state"]["cursor"] for acknowledged in _states(behind_proxy)] == sent


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_sync_may_stand_still_at_any_request_while_another_one_runs(
    behind_proxy: InlineLake, s3_settings: S3Settings, s3_proxy: Any, tmp_path: Path, mode: str
) -> None:
    other = InlineLake(s3_settings, tmp_path / "second", options=FEWER_FILES)
    calls, fenced, upload_dropped = taken(range(1, calls_of(behind_proxy, s3_proxy, mode) + 1), EVERY), 0, list[str]()
    for call in calls:
        number, paused_at = 10 * call, list[str]()

        def others_sync(paused: Any, number: int = number, paused_at: list[str] = paused_at) -> Any:
            paused_at.append(paused.operation)
            sync(other, mode, number + 1)
            return paused.forward()

        s3_proxy.script = at_call(call, others_sync)
        try:
            sync(behind_proxy, mode, number)
        except Fenced:
            fenced += 1
        except TransientError:
            upload_dropped += paused_at
        found = [row for row in behind_proxy.ids() if row]
        acknowledged = [one["stream"]["stream_state"]["cursor"] for lake in (behind_proxy, other) for one in _states(lake)]
        assert len(set(found)) == len(found), f"call {call}: a row is there twice"
        assert set(acknowledged) <= set(found), f"call {call}: an acknowledged row is lost"
        expect_at_rest(s3_settings)
    assert fenced
    assert set(upload_dropped) <= {"UploadPart"}, "the other one, which opened the table, drops the uploads it finds"


def _states(lake: InlineLake) -> list[dict[str, Any]]:
    return [sent["state"] for sent in lake.states]
