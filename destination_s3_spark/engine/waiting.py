"""Looks at what Spark waits for while a job or a start runs: Spark itself would wait indefinitely, and say nothing meanwhile."""

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
def watched(look: Callable[[], None], end: Callable[[], object], every_s: float, name: str) -> Iterator[None]:
    """Run the body, and `look` at intervals on a thread of this name. A SyncError of it calls `end`, raised instead of the body's."""
    over = threading.Event()
    found = list[SyncError]()

    def run() -> None:
        while not found and not over.wait(every_s):
            try:
                look()
            except SyncError as error:
                found.append(error)
                with suppress(Exception):  # the JVM is gone, and the body reports that
                    end()

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        yield
    except Exception as error:
        if found:
            raise found[0] from error
        raise
    finally:
        over.set()


@contextmanager
def ended_without_hope(manager: Manager, end: Callable[[], None], look_every_s: float = START_EVERY_S) -> Iterator[None]:
    """Run the start of a session inside. Call `end`, which makes it fail, when the manager says that no executor will come.

    If the start fails, raise what the manager says of it, if it says anything.
    """
    said: SyncError | None = None

    def look() -> None:
        nonlocal said
        said = manager.failure()
        if said is not None:
            raise said

    try:
        with watched(look, end, look_every_s, "spark-manager"):
            yield
    except Exception as error:
        failure = manager.failure() if said is None else None
        if failure is not None:
            raise failure from error
        raise


@contextmanager
def give_up_without_executors(context: SparkContext, manager: Manager, look_every_s: float = EXECUTORS_EVERY_S) -> Iterator[None]:
    """Run a job inside. Raises TransientError if the cluster has had no executor for its limit."""
    since = time.monotonic()

    def look() -> None:
        nonlocal since
        try:
            holders = context._jsc.sc().getExecutorMemoryStatus().size()
        except Exception:  # noqa: BLE001 (the session has ended, and its job reports that)
            return
        if holders > 1:  # the driver is one of the holders of blocks
            since = time.monotonic()
        elif time.monotonic() - since >= manager.cluster.start_limit_s:
            try:
                failure = no_executors(manager)
            except Exception:
                context.cancelAllJobs()  # or the job would wait for good
                raise
            raise failure

    with watched(look, context.cancelAllJobs, look_every_s, "spark-executors"):
        yield
