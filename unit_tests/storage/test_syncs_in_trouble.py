"""Whole syncs on a store that fails for a while, which is waited for, or for good, which ends them as transient."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import AT_ONCE, Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

CATALOG = catalog(stream())
IMPATIENT = ClientLimits(patience_s=5, connect_timeout_s=2, read_timeout_s=2)
"""How long a store in trouble is waited for here. As long as usual would be minutes."""
WRITING_ACTIONS = ["PutObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "DeleteObjects"]
READING_ACTIONS = ["GetObject", "ListObjectsV2", "ListMultipartUploads", "HeadObject"]


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    """The bucket as nobody disturbs it."""
    return Lake(s3_settings, tmp_path)


@pytest.fixture
def troubled(lake: Lake, s3_proxy: Any) -> Lake:
    """The bucket as reached through the proxy, by clients of its own: trouble of other tests is none of its business."""
    keys = AccessKey(uuid4().hex, "any-secret")
    return Lake(replace(lake.settings, endpoint=s3_proxy.endpoint, credentials=keys, limits=IMPATIENT), lake.directory / "troubled")


@pytest.mark.slow
def test_appends_merges_and_refreshes_survive_what_a_store_does_to_them(
    lake: Lake, troubled: Lake, s3_proxy: Any, s3_error: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request fails twice, an old table cannot be seen at first, and then the first answer to each write is lost."""
    monkeypatch.setattr("destination_s3_spark.storage.patience.LONGEST_WAIT_S", 0.1)
    troubled.settings = replace(troubled.settings, limits=ClientLimits())
    refused, written = Counter[str](), set[tuple[str, str]]()

    def sync(number: int) -> None:
        appended, refreshed = f"appended_{number}", ("shop", "refreshed")
        streams = catalog(
            stream(mode="append_dedup", primary_key=[["id"]], sync_id=number),
            stream("refreshed", generation=number, minimum_generation=number, sync_id=number),
            stream(appended, sync_id=number),
        )
        messages = [*users([1, 2, number]), state(number), *users([1, number], "refreshed"), state(number, "refreshed"),
                    *users([1, 2], appended), state(number, appended), complete(), complete("refreshed"), complete(appended)]  # fmt: skip
        troubled.states.clear()
        troubled.sync(streams, messages)
        assert troubled.cursors() == [number] * 3
        assert (lake.ids(USERS), lake.ids(refreshed)) == ([1, 2, *range(3, number + 1)], sorted([1, number]))
        assert lake.ids(("shop", appended)) == [1, 2]
        lake.verify_at_rest()

    def fail_twice(call: Any) -> Any:
        refused[call.action] += 1
        if call.action not in (*WRITING_ACTIONS, *READING_ACTIONS) or refused[call.action] > 2:
            return call.forward()
        return s3_error(503, "SlowDown") if refused[call.action] == 1 else s3_error(500, "InternalError")

    def hide_hints_too(call: Any) -> Any:
        is_hint = call.action == "GetObject" and "hint.json" in call.target
        refused["hint"] += is_hint
        return s3_error(404, "NoSuchKey") if is_hint and refused["hint"] <= 2 else fail_twice(call)

    def lose_first_answers(call: Any) -> Any:
        answer, write = call.forward(), (call.action, call.target)
        if call.action not in WRITING_ACTIONS or write in written:
            return answer
        written.add(write)
        return None

    s3_proxy.script = fail_twice
    sync(3)
    refused.clear()
    s3_proxy.script = hide_hints_too
    sync(4)
    assert {"UploadPartCopy", "DeleteObjects"} <= refused.keys()
    assert refused["hint"] >= 2
    s3_proxy.script = lose_first_answers
    sync(5)


def test_a_store_that_refuses_connections_is_a_transient_failure(lake: Lake, tmp_path: Path) -> None:
    with socket.socket() as taken:  # nobody listens at it
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        refusing = Lake(replace(lake.settings, endpoint=endpoint, limits=IMPATIENT), tmp_path / "refusing")
        with pytest.raises(TransientError, match=endpoint):
            refusing.sync(CATALOG, [*users([1]), state(1), complete()])
    assert refusing.states == []


@pytest.fixture
def hold() -> Iterator[threading.Event]:
    """What calls that hang wait for: the end of the test."""
    released = threading.Event()
    yield released
    released.set()


@pytest.mark.slow
@pytest.mark.parametrize("outage", ["no part is taken", "no answer at all", "it hangs", "puts hang, gets are answered"])
def test_a_store_that_stays_down_in_mid_sync_gets_no_further_state(
    lake: Lake, troubled: Lake, s3_proxy: Any, s3_error: Callable[..., Any], hold: threading.Event, outage: str
) -> None:
    def down(call: Any) -> Any:
        match outage, call.action:
            case "no part is taken", "UploadPart":
                return s3_error(503, "SlowDown")
            case ("it hangs", _) | ("puts hang, gets are answered", "PutObject"):
                hold.wait(60)
            case (("no part is taken" | "puts hang, gets are answered"), _):
                return call.forward()
        return None

    def blocks() -> Iterator[bytes]:
        yield from [*users([1]), state(1)]
        yield from troubled.silence(1)
        s3_proxy.script = down
        yield from [*users([2]), state(2), complete()]

    troubled.limits = AT_ONCE
    with pytest.raises(TransientError):
        troubled.sync(CATALOG, blocks())
    assert troubled.cursors() == [1]
    lake.verify()
    assert lake.ids() == [1]
    lake.sync(CATALOG, [*users([2]), state(2), complete()])
    lake.verify_at_rest()
    assert lake.ids() == [1, 2]


def test_a_permission_lost_in_mid_sync_is_a_config_error_that_names_it(troubled: Lake, s3_proxy: Any, s3_error: Callable[..., Any]) -> None:
    s3_proxy.fail("CreateMultipartUpload", s3_error(403, "AccessDenied"))
    with pytest.raises(ConfigError, match="s3:PutObject"):
        troubled.sync(CATALOG, [*users([1]), state(1), complete()])
    assert troubled.states == []
