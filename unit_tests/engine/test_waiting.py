"""How long a session waits for executors, and what it says when none will come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.manager import Manager, no_executors
from destination_s3_spark.engine.waiting import ended_without_hope, give_up_without_executors
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from unit_tests.cases import each


def test_a_cluster_without_executors_is_transient_and_names_what_to_look_at() -> None:
    error = no_executors(Manager(Cluster("spark://host:7077", "python3", 120), {"spark.driver.host": "10.0.0.1"}, Path("unused")))

    assert isinstance(error, TransientError)
    assert "within 120 seconds" in error.message
    assert "the driver at 10.0.0.1 (spark.driver.host, spark.driver.port, spark.driver.blockManager.port)" in error.message


class Session:
    """A session whose executors, and the driver, are as many as `members` says, one look after the other; then as the last."""

    def __init__(self, *members: int) -> None:
        self._members = list(members)
        self.looks = threading.Semaphore(0)
        self.cancelled = threading.Event()
        status = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=self._look))
        self._jsc = SimpleNamespace(sc=lambda: status)

    def _look(self) -> int:
        self.looks.release()
        if not self._members:
            raise ConnectionError("the JVM has gone")
        return self._members.pop(0) if len(self._members) > 1 else self._members[0]

    def cancelAllJobs(self) -> None:  # noqa: N802 (Spark's name)
        self.cancelled.set()


class Hopeless(Manager):
    """A manager that knows at once that no executor will come."""

    def failure(self) -> SyncError | None:
        return ConfigError("There is no such image.")


def of_spark(limit_s: float, kind: type[Manager] = Manager) -> Manager:
    return kind(Cluster("spark://host:7077", "python3", limit_s), {}, Path("unused"))


def failing_job(session: Any, manager: Manager, said: str, until: Callable[[], bool]) -> None:
    with give_up_without_executors(session, manager, look_every_s=0.001):
        assert until()
        raise RuntimeError(said)


def test_a_job_without_executors_is_given_up() -> None:
    session = Session(3, 1)

    with pytest.raises(TransientError, match=r"No executor of the Spark cluster spark://host:7077"):
        failing_job(session, of_spark(0.01), "Job 0 cancelled", lambda: session.cancelled.wait(10))


@each("members", [(1, 1, 3), ()])
def test_other_ends_of_a_job_are_its_own(members: tuple[int, ...]) -> None:
    session = Session(*members)

    with pytest.raises(RuntimeError, match="Job 0 failed"):
        failing_job(session, of_spark(3600), "Job 0 failed", lambda: all(session.looks.acquire(timeout=10) for _ in members or (1,)))
    assert not session.cancelled.is_set()


def test_a_start_without_hope_is_ended_and_the_managers_words_count() -> None:
    ended = threading.Event()

    def start(manager: Manager, until: Callable[[], bool]) -> None:
        with ended_without_hope(manager, ended.set, look_every_s=0.001):
            assert until()
            raise RuntimeError("the JVM ended")

    with pytest.raises(ConfigError, match="no such image"):
        start(of_spark(3600, Hopeless), lambda: ended.wait(10))
    with pytest.raises(ConfigError, match="no such image"):
        start(of_spark(3600, Hopeless), lambda: True)
    with pytest.raises(RuntimeError, match="the JVM ended"):
        start(of_spark(3600), lambda: True)
