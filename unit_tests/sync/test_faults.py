"""Whole syncs with a fault at each of their calls in turn: the answer is lost, or the sync stands still there while another one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.symlink import MANIFEST
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Fate, S3Call
from unit_tests.lake.messages import JsonObject, complete, state, stream, users
from unit_tests.lake.messages import catalog as catalog_of

ROOT = "lake/users/"
FEWER_FILES = {"tables": {"raw_tables": False}}


def catalog(mode: str, sync_id: int) -> JsonObject:
    """One stream; "refresh" is append whose new generation replaces the one before."""
    numbers: dict[str, Any] = {"generation": sync_id, "minimum_generation": sync_id if mode == "refresh" else 0, "sync_id": sync_id}
    return catalog_of(stream(mode="append_dedup" if mode == "append_dedup" else "append", key="id", **numbers))


def sync(lake: Lake, mode: str, number: int) -> None:
    """A sync with one record of its own, and one that all send."""
    lake.sync(catalog(mode, number), [*users([0, number]), state(number), complete()])


def expect_at_rest(lake: Lake) -> None:
    """Readers of the manifest and of the folder see the same, and no upload is left."""
    shown = lake.store.get(ROOT + MANIFEST).decode().split()
    there = [f"s3://{lake.settings.bucket}/{found.key}" for found in lake.store.list(ROOT) if found.key.endswith(".parquet")]
    assert shown == there
    assert lake.memory.uploads == {}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path / "first", options=FEWER_FILES)


def at_call(lake: Lake, number: int, effect: Callable[[S3Call], Fate | None]) -> None:
    """Let the call with this number, counted from now on, have an effect."""
    wanted = len(lake.memory.calls) + number
    lake.memory.hook = lambda call: effect(call) if call.number == wanted else None


def calls_of(lake: Lake, mode: str) -> int:
    """How many calls a sync of the table makes that is there by then."""
    for number in (1, 2):
        lake.memory.forget()
        sync(lake, mode, number)
    return len(lake.memory.calls)


@pytest.mark.parametrize("mode", ["append", "append_dedup", "refresh"])
def test_the_answer_to_any_call_may_be_lost(lake: Lake, mode: str) -> None:
    sent = [1, 2]
    for number in range(1, calls_of(lake, mode) + 1):
        sent.append(2 + number)
        at_call(lake, number, lambda _: Fate.REPEATED)
        sync(lake, mode, sent[-1])
        lake.memory.hook = None
        shared = [0] * (len(sent) if mode == "append" else 1)
        expected = [0, sent[-1]] if mode == "refresh" else [*shared, *sent]
        assert (number, lake.ids_in_folder()) == (number, expected)
        expect_at_rest(lake)
    assert [acknowledged["stream"]["stream_state"]["cursor"] for acknowledged in _states(lake)] == sent


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_sync_may_stand_still_at_any_call_while_another_one_runs(lake: Lake, tmp_path: Path, mode: str) -> None:
    other = Lake(lake.settings, tmp_path / "second", options=FEWER_FILES)
    fenced, upload_dropped = 0, list[str]()
    for at in range(1, calls_of(lake, mode) + 1):
        number, paused_at = 10 * at, list[str]()

        def others_sync(paused: S3Call, number: int = number, paused_at: list[str] = paused_at) -> None:
            paused_at.append(paused.action)
            sync(other, mode, number + 1)

        at_call(lake, at, others_sync)
        try:
            sync(lake, mode, number)
        except Fenced:
            fenced += 1
        except TransientError:
            upload_dropped += paused_at
        found = [row for row in lake.ids_in_folder() if row]
        acknowledged = [one["stream"]["stream_state"]["cursor"] for each in (lake, other) for one in _states(each)]
        assert len(set(found)) == len(found), f"call {at}: a row is there twice"
        assert set(acknowledged) <= set(found), f"call {at}: an acknowledged row is lost"
        expect_at_rest(lake)
    assert fenced
    assert set(upload_dropped) <= {"UploadPart"}, "the other one, which opened the table, drops the uploads it finds"


def _states(lake: Lake) -> list[dict[str, Any]]:
    return [sent["state"] for sent in lake.states]
