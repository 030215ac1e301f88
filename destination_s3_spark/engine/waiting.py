"""Limits of the wait for executors: Spark itself would wait indefinitely."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from destination_s3_spark.engine.manager import Manager, no_executors
from destination_s3_spark.errors import SyncError

if TYPE_CHECKING:
    from pyspark import SparkContext

EXECUTORS_EVERY_S = 10.0
START_EVERY_S = 3.0


@contextmanager
def repeated(look: Callable[[], bool], every_s: float, name: str) -> Iterator[None]:
    """Call `look` at intervals, on a thread of this name, until it returns False or the body ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s) and look():
            pass

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def ended_without_hope(manager: Manager, end: Callable[[], None], look_every_s: float = START_EVERY_S) -> Iterator[None]:
    """Run the start of a session inside. Call `end`, which makes it fail, when the manager says that no executor will come.

    If the start fails, raise what the manager says of it, if it says anything.
    """
    said = list[SyncError]()

    def look() -> bool:
        failure = manager.failure()
        if failure is not None:
            said.append(failure)
            end()
        return failure is None

    try:
        with repeated(look, look_every_s, "spark-manager"):
            yield
    except Exception as error:
        failure = said[0] if said else manager.failure()
        if failure is not None:
            raise failure from error
        raise


@contextmanager
def give_up_without_executors(context: SparkContext, manager: Manager, look_every_s: float = EXECUTORS_EVERY_S) -> Iterator[None]:
    """Run a job inside. Raises TransientError if the cluster has had no executor for its limit."""
    gone = list[SyncError]()
    since = time.monotonic()

    def look() -> bool:
        nonlocal since
        with suppress(Exception):  # the session has ended, and its job reports that
            if context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one of the holders of blocks
                since = time.monotonic()
                return True
            if time.monotonic() - since < manager.cluster.start_limit_s:
                return True
            try:
                gone.append(no_executors(manager))
            finally:  # or the job would wait for good
                context.cancelAllJobs()
        return False

    try:
        with repeated(look, look_every_s, "spark-executors"):
            yield
    except Exception as error:
        if gone:
            raise gone[0] from error
        raise
