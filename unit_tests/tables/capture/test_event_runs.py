from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from destination_s3_spark.errors import DataError, TransientError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.capture.event_runs import RUNS_SHARE, WINDOWS_SHARE, EventRun, piece_bytes, read_events, write_run
from destination_s3_spark.tables.capture.events import POSITION
from destination_s3_spark.tables.updates.resources import TaskResources
from unit_tests.cases import each

SCHEMA = pa.schema([(POSITION, pa.int64()), ("number", pa.int64()), ("value", pa.struct([("text", pa.string())]))])
AMPLE = 2**30
FIRST = 1_000
Event = tuple[int, int]
"""Position, and which of the events at that position it is."""


SMALL_PIECES = 200
"""Of a few events."""


SMALL_BUDGET = 10 * SMALL_PIECES * WINDOWS_SHARE
"""For windows of some small pieces."""


@pytest.fixture(params=["bucket", "disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The local folder for runs, if there is one."""
    return None if request.param == "bucket" else tmp_path / "events"


def batch(events: list[Event]) -> pa.RecordBatch:
    rows = [{POSITION: position, "number": number, "value": {"text": f"{position}/{number}"}} for position, number in events]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def events_at(positions: range, seed: int) -> list[Event]:
    """Most positions have no event, a few have many: more than a piece holds."""
    chance = random.Random(seed)
    return [(position, number) for position in positions for number in range(chance.choice((0, 0, 0, 1, 1, 30)))]


def some_runs(settings: S3Settings, events: list[Event], count: int, folder: Path | None = None) -> list[EventRun]:
    """The events in runs that overlap, each of several batches. Positions are in no order, and each is in one of the runs."""
    chance = random.Random(7)
    positions = list(dict.fromkeys(position for position, _ in events))
    chance.shuffle(positions)
    runs = []
    for number in range(count):
        own = [event for position in positions[number::count] for event in events if event[0] == position]
        batches = [batch(own[start : start + 40]) for start in range(0, len(own), 40)]
        runs.append(write_run(batches, f"scratch/{number}", folder and folder / str(number), SMALL_PIECES, settings))
    return pickle.loads(pickle.dumps(runs))


def read(runs: list[EventRun], low: int, high: int, settings: S3Settings, budget_bytes: int = AMPLE) -> Iterator[list[Event]]:
    for rows in read_events(runs, low, high, SCHEMA, TaskResources(settings, budget_bytes)):
        found = list(zip(rows[POSITION].to_pylist(), rows["number"].to_pylist(), strict=True))
        assert [value["text"] for value in rows["value"].to_pylist()] == [f"{position}/{number}" for position, number in found]
        yield found


@pytest.mark.parametrize("count", [1, 5])
def test_events_of_many_runs_come_in_the_order_of_the_log(s3_settings: S3Settings, folder: Path | None, count: int) -> None:
    events = events_at(range(FIRST, FIRST + 300), seed=count)
    runs = some_runs(s3_settings, events, count, folder)
    windows = list(read(runs, FIRST, FIRST + 300, s3_settings, SMALL_BUDGET))
    assert len(windows) > 10, "all of it was in memory at once"
    assert [event for window in windows for event in window] == sorted(events)


def test_ranges_side_by_side_have_every_event_once(s3_settings: S3Settings, folder: Path | None) -> None:
    events = events_at(range(FIRST, FIRST + 200), seed=3)
    runs = some_runs(s3_settings, events, 4, folder)
    bounds = [FIRST, FIRST + 1, FIRST + 90, FIRST + 91, FIRST + 200]
    found = [list(read(runs, low, high, s3_settings, SMALL_BUDGET)) for low, high in pairwise(bounds)]
    assert [event for windows in found for window in windows for event in window] == sorted(events)


def test_events_of_one_position_come_in_one_table(s3_settings: S3Settings) -> None:
    runs = [write_run([batch([(FIRST, number) for number in range(500)])], "scratch/0", None, SMALL_PIECES, s3_settings)]
    [window] = read(runs, FIRST, FIRST + 1, s3_settings)
    assert window == [(FIRST, number) for number in range(500)]


def test_events_of_one_position_come_in_the_order_of_their_runs(s3_settings: S3Settings) -> None:
    parts = [(FIRST, number) for number in range(100)], [(FIRST, number) for number in range(100, 200)]
    runs = [write_run([batch(part)], f"scratch/{number}", None, SMALL_PIECES, s3_settings) for number, part in enumerate(parts)]
    [window] = read(runs, FIRST, FIRST + 1, s3_settings)
    assert window == [*parts[0], *parts[1]]


def test_a_range_without_events_has_no_table(s3_settings: S3Settings) -> None:
    runs = some_runs(s3_settings, [(FIRST, 0), (FIRST + 9, 0)], 2)
    assert not list(read(runs, FIRST + 1, FIRST + 9, s3_settings))


def test_a_run_that_is_gone_is_named(s3_settings: S3Settings) -> None:
    runs = some_runs(s3_settings, [(FIRST, 0)], 1)
    S3Store(s3_settings).delete(["scratch/0"])
    with pytest.raises(DataError, match="scratch/0"):
        list(read(runs, FIRST, FIRST + 1, s3_settings))


@pytest.mark.parametrize("folder", ["file", "full"])
def test_what_the_disk_does_not_take_goes_into_the_bucket(s3_settings: S3Settings, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "0").symlink_to("/dev/full")
    runs = some_runs(s3_settings, [(FIRST, 0)], 1, tmp_path / folder)
    assert [run.place for run in runs] == ["scratch/0"]
    assert list(read(runs, FIRST, FIRST + 1, s3_settings)) == [[(FIRST, 0)]]
    assert not (tmp_path / folder / "0").exists()


def test_a_file_that_is_gone_from_the_disk_is_named(s3_settings: S3Settings, tmp_path: Path) -> None:
    runs = some_runs(s3_settings, [(FIRST, 0)], 1, tmp_path)
    (tmp_path / "0").unlink()
    with pytest.raises(TransientError, match=rf"'{tmp_path}'.* No such file"):
        list(read(runs, FIRST, FIRST + 1, s3_settings))


@each("event_bytes", [0, 2**30, 2**36])
@each("budget", [2**26, 2**29])
def test_a_piece_of_each_run_fits_into_a_window(budget: int, event_bytes: int) -> None:
    runs = -(-event_bytes // (budget // RUNS_SHARE))
    assert piece_bytes(event_bytes, 300, budget) * runs <= budget // WINDOWS_SHARE


def test_runs_that_end_before_a_window_are_not_read_for_it(s3_settings: S3Settings) -> None:
    [run] = some_runs(s3_settings, [(FIRST, 0), (FIRST + 5, 0)], 1)
    S3Store(s3_settings).delete(["scratch/0"])
    assert not list(read([run], FIRST + 6, FIRST + 9, s3_settings))
