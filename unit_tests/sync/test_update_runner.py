"""Updates of many tables, one step after the other, on an engine that runs tasks where it is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.update_runner import UpdateRunner
from destination_s3_spark.tables.commit.batch import CommitResult
from destination_s3_spark.tables.updates.steps import Update, Work


class Engine:
    """Runs tasks here, and says so to `progress` as Spark would."""

    cores = 2

    def __init__(self) -> None:
        self.jobs: list[list[Any]] = []

    def run(
        self, function: Callable[[Any], Any], groups: Sequence[Sequence[Any]], progress: Callable[[int, int], None] | None = None
    ) -> list[list[Any]]:
        self.jobs.append(sorted(task for group in groups for task in group))
        if progress is not None:
            progress(1, len(groups))
        return [[function(task) for task in group] for group in groups]


def doubled(task: int) -> int:
    return 2 * task


def negated(task: int) -> int:
    if task == 13:
        raise ConfigError("thirteen does not fit")
    return -task


def update(*tasks: int, done: list[int]) -> Update:
    twice = yield from Work(doubled, tasks, lambda task: task).results()
    done += yield from Work(negated, twice, lambda task: task).results()
    return CommitResult(7, 1, 1, 1, 0)


def one_step(*tasks: int, done: list[int]) -> Update:
    done += yield from Work(negated, tasks, lambda task: task).results()
    return None


def broken() -> Update:
    raise TransientError("the store is away")
    yield Work(doubled, (), lambda task: task)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def run(
    engine: Any,
    pool: ThreadPoolExecutor,
    *updates: Update,
    clock: Callable[[], float] = lambda: 0.0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    UpdateRunner(engine, pool, clock, progress).run([(StreamId(None, f"table {number}"), one) for number, one in enumerate(updates)])


def test_the_tasks_of_a_step_are_one_job_and_results_come_back_in_their_order(engine: Engine, pool: ThreadPoolExecutor) -> None:
    first: list[int] = []
    second: list[int] = []
    run(engine, pool, update(3, 1, 2, done=first), update(5, done=second))
    assert engine.jobs == [[1, 2, 3, 5], [2, 4, 6, 10]]
    assert (first, second) == ([-6, -2, -4], [-10])


def test_tables_at_different_work_go_on_side_by_side(engine: Engine, pool: ThreadPoolExecutor) -> None:
    long: list[int] = []
    short: list[int] = []
    run(engine, pool, update(1, done=long), one_step(4, done=short))
    assert (long, short) == ([-2], [-4])


def test_a_table_that_fails_does_not_keep_the_others_from_their_turn(engine: Engine, pool: ThreadPoolExecutor) -> None:
    done: list[int] = []
    with pytest.raises(ConfigError, match="thirteen"):
        run(engine, pool, one_step(13, done=[]), one_step(2, 3, done=done))
    assert done == [-2, -3]


def test_a_table_that_fails_before_its_work_does_not_either(engine: Engine, pool: ThreadPoolExecutor) -> None:
    done: list[int] = []
    with pytest.raises(TransientError, match="away"):
        run(engine, pool, broken(), one_step(2, done=done))
    assert done == [-2]


def retried(done: list[int]) -> Update:
    try:
        yield from Work(negated, (13,), lambda task: task).results()
    except ConfigError:
        done += yield from Work(negated, (1,), lambda task: task).results()
    return None


def test_an_update_is_told_what_failed_and_may_go_another_way(engine: Engine, pool: ThreadPoolExecutor) -> None:
    done: list[int] = []
    run(engine, pool, retried(done), one_step(2, done=[]))
    assert done == [-1]


def test_nothing_to_update_starts_no_job(engine: Engine, pool: ThreadPoolExecutor) -> None:
    run(engine, pool)
    assert engine.jobs == []


def test_progress_is_told_and_half_of_the_time_limit_is_warned_of_once(
    engine: Engine, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    parts: list[tuple[int, int]] = []
    times = iter([0.0, 10.0, 3601.0, 3700.0, 3800.0])
    with caplog.at_level(logging.INFO, logger="airbyte"):
        run(engine, pool, update(1, done=[]), clock=lambda: next(times, 4000.0), progress=lambda *counts: parts.append(counts))
        run(engine, pool, clock=lambda: 0.0)
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [message for level, message in levels if level == "WARNING"] == [
        message for _, message in levels if "Half of the 2 hours" in message
    ]
    assert sum(level == "WARNING" for level, _ in levels) == 1
    assert parts == [(0, 1), (1, 1), (0, 1), (1, 1)]
    assert "table 0: wrote 1 row (1 file, 1 B, block 7, " in caplog.text


def test_a_command_has_no_limit_to_be_warned_of(engine: Any, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 90_000.0])
    UpdateRunner(engine, pool, lambda: next(times, 90_000.0), limit_s=inf).run([(StreamId(None, "table"), update(1, done=[]))])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
