"""The processes of a sync: when Spark's JVM starts, and what Spark's workers are forked from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from destination_s3_spark.engine.startup.shortcuts import VARIABLE as SHORTCUTS
from integration_tests.connector import Sync
from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.sampling import sample

CATALOG = catalog(stream())
LOG_LINE = json.dumps({"type": "LOG", "log": {"level": "INFO", "message": "x" * 1000}}).encode() + b"\n"
CONTROLLERS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Where groups with a limit of threads are made, in version 1 and 2."""
WAITING = 48 * [LOG_LINE]  # more than what makes the JVM start early, less than what a pipe holds


def test_where_input_is_waiting_the_jvm_starts_before_a_record_is_read(moto_lake: ProcessLake) -> None:
    with moto_lake.connector().start(CATALOG) as sync:
        sync.send(*WAITING).wait_for_jvm()
        sync.send(complete()).end_input().finish().expect_success()


def test_the_spool_of_a_killed_sync_goes_with_the_next_and_no_process_below_it_keeps_it(moto_lake: ProcessLake) -> None:
    spools = moto_lake.directory / "spools"
    spools.mkdir()
    connector = moto_lake.connector(batching={"max_batch_age_s": 1, "spool_dir": str(spools)})
    with connector.start(CATALOG) as sync:
        sync.send(*users(range(50)), state(0)).wait_for_states(1)  # by now there are a JVM and forked workers
        family = sync.family()
        family[0].kill()
        _, alive = psutil.wait_procs(family[1:], timeout=60)
        assert alive == []
    (left,) = spools.iterdir()
    assert (left / "spool").exists()
    with connector.start(CATALOG) as sync:
        sync.send(*users(range(50, 60)), state(1)).wait_for_states(1)
        assert not left.exists()
        assert len(list(spools.iterdir())) == 1
        outcome = sync.send(complete()).end_input().finish().expect_success()
    assert f"removed {left}" in outcome.log_text
    assert list(spools.iterdir()) == []


def test_a_sync_without_shortcuts_writes_the_same_tables_by_other_processes(moto_lake: ProcessLake) -> None:
    made = {}
    for name, environment in (("short", {}), ("plain", {SHORTCUTS: "off"})):
        dedup = stream(name, mode="append_dedup", primary_key=[["id"]])
        connector = moto_lake.connector(environment=environment, batching={"max_batch_age_s": 1})
        for cursor, ids in enumerate((range(200), range(150, 300))):
            with connector.start(catalog(dedup | {"sync_id": cursor + 1})) as sync:
                sync.send(*WAITING, *users(ids, name)).wait_for_jvm()
                sync.send(state(cursor, name)).wait_for_states(1)
                expect_forks(sync) if name == "short" else expect_no_fork(sync)
                sync.send(complete(name)).end_input().finish().expect_success()
        rows = sorted(moto_lake.rows(("shop", name)), key=lambda row: row["id"])
        values = [{column: value for column, value in row.items() if column != "_airbyte_raw_id"} for row in rows]
        made[name] = values, moto_lake.chains()["shop", name].kinds
    assert len(made["plain"][0]) == 300
    assert made["plain"] == made["short"]
    moto_lake.verify()


def expect_forks(sync: Sync) -> None:
    """Workers are forked from a fork of the connector."""
    connector, *others = running(sync)
    forks = [process for process in others if process.cmdline() == connector.cmdline()]
    daemons = [process for process in forks if process.ppid() == connector.pid]
    assert len(daemons) == 1
    assert any(worker.ppid() == daemons[0].pid for worker in forks)


def expect_no_fork(sync: Sync) -> None:
    connector, *others = running(sync)
    assert connector.cmdline() not in [process.cmdline() for process in others]
    assert any("pyspark.daemon" in process.cmdline() for process in others)


def running(sync: Sync) -> list[psutil.Process]:
    return [process for process in sync.family() if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("waiting", [WAITING, []], ids=["Spark starts early", "Spark starts with a record"])
def test_where_no_thread_can_be_started_the_sync_fails_for_now(moto_lake: ProcessLake, tmp_path: Path, waiting: list[bytes]) -> None:
    """A stack larger than all memory is refused like a thread above the limit of a container."""
    (tmp_path / "sitecustomize.py").write_text("import threading; threading.stack_size(2**50)")
    connector = moto_lake.connector(environment={"PYTHONPATH": str(tmp_path)})

    outcome = connector.write(CATALOG, [*waiting, *users(range(5)), state(0), complete()])

    outcome.expect_failure("transient_error")
    assert "start more threads" in outcome.error_message
    assert outcome.states == []


@pytest.fixture
def container() -> Iterator[Path]:
    """A cgroup with a limit of threads. Skips where none can be made."""
    group = next(filter(None, map(pids_group, CONTROLLERS)), None)
    if group is None:
        pytest.skip("no cgroup can be made here")
    yield group
    while (group / "cgroup.procs").read_text():  # they are killed, and not gone yet
        time.sleep(0.05)
    group.rmdir()


def pids_group(controller: Path) -> Path | None:
    group = controller / f"destination-s3-spark-{uuid4().hex}"
    try:
        group.mkdir()
    except OSError:
        return None
    if (group / "pids.max").exists():
        return group
    group.rmdir()
    return None


@pytest.mark.slow
@pytest.mark.parametrize("threads", sample([30, 50, 90, 104, 76], 2))
def test_whatever_cannot_be_started_the_sync_ends_and_fails_for_now(moto_lake: ProcessLake, container: Path, threads: int) -> None:
    """Pools of the driver, Spark's JVM, its threads, its Python workers, pools for the merge: each is the first to meet a limit."""
    names = [f"table{number}" for number in range(20)]
    streams = catalog(*(stream(name, mode="append_dedup", primary_key=[["id"]], cursor_field=["id"]) for name in names))
    messages = [line for name in names for line in (*users(range(5), name), state(0, name), complete(name))]
    (container / "pids.max").write_text(str(threads))
    with moto_lake.connector().start(streams) as sync:
        (container / "cgroup.procs").write_text(str(sync.family()[0].pid))
        outcome = sync.send(*messages).end_input().finish()

    if outcome.exit_code:  # the largest is just enough on some machines
        outcome.expect_failure("transient_error")
    moto_lake.verify()
