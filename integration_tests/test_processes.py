"""The processes of a sync: when Spark's JVM starts, and what Spark's workers are forked from."""

from __future__ import annotations

import json

import psutil

from integration_tests.lake import Lake
from integration_tests.source import catalog, complete, state, stream, users

CATALOG = catalog(stream())
LOG_LINE = json.dumps({"type": "LOG", "log": {"level": "INFO", "message": "x" * 1000}}).encode() + b"\n"
WAITING = 48 * [LOG_LINE]  # more than what makes the JVM start early, less than what a pipe holds


def test_where_input_is_waiting_the_jvm_starts_before_a_record_is_read(moto_lake: Lake) -> None:
    with moto_lake.connector().start(CATALOG) as sync:
        sync.send(*WAITING).wait_for_jvm()
        sync.send(complete()).end_input().finish().expect_success()


def test_workers_are_forked_from_a_fork_of_the_connector(moto_lake: Lake) -> None:
    with moto_lake.connector(batching={"max_batch_age_s": 1}).start(CATALOG) as sync:
        sync.send(*users(range(50)), state(0)).wait_for_states(1)
        connector, *others = (process for process in sync.family() if process.status() != psutil.STATUS_ZOMBIE)
        forks = [process for process in others if process.cmdline() == connector.cmdline()]
        daemons = [process for process in forks if process.ppid() == connector.pid]
        assert len(daemons) == 1
        assert any(worker.ppid() == daemons[0].pid for worker in forks)
        sync.send(complete()).end_input().finish().expect_success()
