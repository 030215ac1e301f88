"""The story of a sync as it goes on: phases by a clock of the test, the heartbeat, and the summary however the sync ends."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.protocol.messages import InputCounts
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.story import story as story_module
from destination_s3_spark.sync.story.lines import SUMMARY_PREFIX, Ending
from destination_s3_spark.sync.story.phases import Phase, Phases
from destination_s3_spark.sync.story.story import Heartbeat, Story

ORDERS = StreamId(None, "orders")
STREAMS = {"streams": [{"stream": {"name": "orders", "json_schema": {}}, "sync_mode": "incremental", "destination_sync_mode": "append"}]}
CONFIG = Config.parse({"s3_bucket_name": "lake", "s3_bucket_path": "x", "s3_bucket_region": "", "format": {"format_type": "Parquet"}})


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="airbyte"):
        yield caplog


def story_of(clock: Clock) -> Story:
    return Story(parse_catalog(json.dumps(STREAMS).encode()), InputCounts(), Phases(clock), clock)


def test_phases_overlap_and_each_counts_its_own_time(clock: Clock) -> None:
    phases = Phases(clock)
    with phases.during(Phase.READING):
        clock.now += 1
        with phases.during(Phase.LANDING, [ORDERS], 5):
            clock.now += 2
            assert [(active.phase, active.streams, active.bytes) for active in phases.active] == [
                (Phase.READING, (), 0),
                (Phase.LANDING, (ORDERS,), 5),
            ]
    with phases.during(Phase.LANDING):
        clock.now += 4
    assert (phases.active, phases.seconds) == ((), {Phase.READING: 3.0, Phase.LANDING: 6.0})


def test_a_phase_that_fails_counts_as_well(clock: Clock) -> None:
    phases = Phases(clock)

    def merge() -> None:
        with phases.during(Phase.MERGING, [ORDERS]):
            phases.progress(3, 8)
            assert [(active.parts_done, active.parts) for active in phases.active] == [(3, 8)]
            clock.now += 2
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        merge()
    assert (phases.active, phases.seconds) == ((), {Phase.MERGING: 2.0})


def test_a_source_is_silent_since_its_first_silence(clock: Clock) -> None:
    phases = Phases(clock)
    phases.silent()
    clock.now += 5
    phases.silent()
    assert phases.silent_since == 100.0


def test_rates_are_those_since_the_pulse_before(clock: Clock) -> None:
    story, read = story_of(clock), [0, 0]
    spool: Any = SimpleNamespace(totals=lambda: tuple(read))
    engine: Any = SimpleNamespace(session=SimpleNamespace(starting=False))
    story.watch({}, spool, engine)
    clock.now, read = 110.0, [1_000, 50_000]
    assert (story.pulse().records_per_s, story.pulse().seconds) == (100.0, 10.0)
    clock.now, read = 115.0, [1_100, 60_000]
    pulse = story.pulse()
    assert (pulse.records_read, pulse.records_per_s, pulse.bytes_per_s) == (1_100, 20.0, 2_000.0)


def test_a_heartbeat_beats_until_its_end_and_not_after(log: pytest.LogCaptureFixture) -> None:
    third, numbers = threading.Event(), count(1)

    def beat() -> str:
        number = next(numbers)
        if number == 4:  # the third one is in the log
            third.set()
        return f"beat {number}"

    with Heartbeat(beat, every_s=0.001):
        assert third.wait(60)
    assert log.messages[:3] == ["beat 1", "beat 2", "beat 3"]
    assert [thread.name for thread in threading.enumerate() if thread.name == "heartbeat"] == []


def test_a_heartbeat_that_fails_ends_alone(log: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def beat() -> str:
        failed.set()
        raise ZeroDivisionError

    with Heartbeat(beat, every_s=0.001) as broken:
        assert failed.wait(60)
        broken._thread.join(60)
        assert not broken._thread.is_alive()
    assert log.messages == []


def test_a_thread_that_cannot_be_started_does_not_end_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Heartbeat(lambda: "", every_s=0.001):
        pass


@pytest.mark.parametrize(
    ("error", "ending"), [(None, Ending.SUCCEEDED), (ValueError("broken"), Ending.FAILED), (KeyboardInterrupt(), Ending.STOPPED)]
)
def test_the_summary_comes_however_the_sync_ends(
    error: BaseException | None, ending: Ending, clock: Clock, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story_module, "EVERY_S", 0.001)
    beaten = threading.Event()
    story = story_of(clock)
    pulse = story.pulse

    def noticed() -> Any:
        beaten.set()
        return pulse()

    monkeypatch.setattr(story, "pulse", noticed)

    def sync() -> None:
        with story.logged(CONFIG, "s3://lake/x/"):
            clock.now += 3
            assert beaten.wait(60)
            if error is not None:
                raise error

    if error is None:
        sync()
    else:
        with pytest.raises(type(error)):
            sync()
    messages = log.messages
    assert "syncs 1 stream to s3://lake/x/: orders (incremental, append)" in messages[0]
    assert messages[-1].startswith(SUMMARY_PREFIX)
    assert (json.loads(messages[-1].removeprefix(SUMMARY_PREFIX))["ending"], messages[-2]) == (
        ending.value,
        f"sync {ending.value} after 3.0 s: 0 records, 0 B read, 0 committed, 0 of 0 states acknowledged",
    )


def test_a_summary_that_fails_hides_no_error(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    story = story_of(clock)
    nothing: Any = SimpleNamespace()
    story.watch({0: nothing}, nothing, nothing)

    def sync() -> None:
        with story.logged(CONFIG, "s3://lake/x/"):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        sync()
    assert "the sync cannot be summed up (AttributeError)" in caplog.text
