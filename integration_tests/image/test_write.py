"""Syncs in a container: as Airbyte runs them, and when the container is stopped, killed or short of memory."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from integration_tests.connector import Sync
from integration_tests.image.container import ContainerProcess, ImageConnector, Limits
from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.shop import complete, record, state, stream, users

pytestmark = pytest.mark.image_tests
Make = Callable[..., ImageConnector]

SECOND_BATCH_AGE = {"max_batch_age_s": 1}
CHECKPOINTS = 4
ROWS = 1000
ALL_IDS = list(range(CHECKPOINTS * ROWS))
GRACE_S = 10
"""What container runtimes give between SIGTERM and SIGKILL."""
USERS = catalog(stream())
ORDERS_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "integer"}}}
HOG = "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**24)\n    time.sleep(0.01)"


def checkpoint(number: int) -> list[bytes]:
    """The records of one checkpoint and its STATE; the same ones for the same number."""
    return [*users(range(number * ROWS, (number + 1) * ROWS)), state(number)]


def rest_after(answers: list[bytes]) -> Iterator[bytes]:
    """What the source sends when it starts again behind the last STATE that came back."""
    for number in range(cursor_of(answers[-1]) + 1 if answers else 0, CHECKPOINTS):
        yield from checkpoint(number)
    yield complete()


def process_of(sync: Sync) -> ContainerProcess:
    process = sync._process
    assert isinstance(process, ContainerProcess)
    return process


def started(connector: ImageConnector) -> Sync:
    """A sync that has committed its first checkpoint and has more on its way."""
    sync = connector.start(USERS, batching=SECOND_BATCH_AGE)
    sync.send(*checkpoint(0)).wait_for_states(1)
    return sync.send(*checkpoint(1))


def test_a_sync_lands_its_tables_and_acknowledges_its_states(in_image: Make, moto_lake: ProcessLake) -> None:
    connector = in_image()
    orders_stream = stream("orders", schema=ORDERS_SCHEMA, mode="append_dedup", primary_key=[["id"]], cursor_field=["at"])
    orders = [record({"id": number % 10, "at": number}, "orders") for number in range(50)]
    messages = [*users(range(ROWS)), state(1), *orders, state(2, "orders"), complete(), complete("orders")]

    outcome = connector.write(catalog(stream(), orders_stream), messages).expect_success()

    assert [cursor_of(answer) for answer in outcome.state_lines] == [1, 2]
    assert moto_lake.ids(("shop", "users")) == list(range(ROWS))
    assert moto_lake.ids(("shop", "orders")) == list(range(10))
    moto_lake.verify_at_rest()


def test_any_user_of_group_0_can_check_and_sync(in_image: Make, moto_lake: ProcessLake) -> None:
    connector = in_image(batching={"spool_dir": "/tmp"})
    connector.run_as = "12345:0"

    assert connector.check().connection_status["status"] == "SUCCEEDED"
    outcome = connector.write(USERS, [*users(range(ROWS)), state(1), complete()]).expect_success()

    assert outcome.stderr == ""
    assert moto_lake.ids() == list(range(ROWS))


def test_the_jvms_heap_follows_the_containers_memory(in_image: Make) -> None:
    with in_image(Limits("6g")).start(USERS, batching=SECOND_BATCH_AGE) as sync:
        sync.send(*checkpoint(0)).wait_for_states(1)
        running = [member for member in sync.family() if member.status() != psutil.STATUS_ZOMBIE]
        heaps = [option for member in running for option in member.cmdline() if option.startswith("-Xmx")]
    assert heaps == ["-Xmx768m"]


def test_a_configuration_error_ends_with_one_trace_and_exit_code_1(in_image: Make) -> None:
    outcome = in_image().write(USERS, [], s3_bucket_name="no-such-bucket").expect_failure("config_error")
    assert outcome.exit_code == 1


def test_a_container_that_is_stopped_ends_with_143_in_time_and_loses_nothing(in_image: Make, moto_lake: ProcessLake) -> None:
    connector = in_image()
    with started(connector) as sync:
        process_of(sync).container.stop(timeout=GRACE_S)  # killed after that, which would make 137 of it
        stopped = sync.finish()
    assert stopped.exit_code == 143, stopped.describe()
    moto_lake.verify()

    connector.write(USERS, rest_after(stopped.state_lines)).expect_success()
    assert moto_lake.ids() == ALL_IDS
    moto_lake.verify_at_rest()


def test_a_container_that_is_stopped_while_it_starts_ends_with_143(in_image: Make) -> None:
    with in_image().start(USERS) as sync:
        process = process_of(sync)
        wait_for_handler(process.pid)
        process.container.stop(timeout=GRACE_S)
        assert sync.finish().exit_code == 143


def wait_for_handler(pid: int) -> None:
    """Return once the process has any handler for SIGTERM: the first process of a container gets no signal without one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        (caught,) = (line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("no handler for SIGTERM within 30 s")


def test_a_container_that_is_killed_for_its_memory_loses_nothing(in_image: Make, moto_lake: ProcessLake) -> None:
    with started(in_image(Limits("1500m"))) as sync:
        process = process_of(sync)
        # The kernel takes the process with the highest score; another of the container is made to want more than there is.
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        process.container.exec_run(["python", "-c", HOG], detach=True)
        killed = sync.finish()
        assert killed.exit_code == 137, killed.describe()
        assert process.killed_for_memory
    moto_lake.verify()

    in_image().write(USERS, rest_after(killed.state_lines)).expect_success()
    assert moto_lake.ids() == ALL_IDS
    moto_lake.verify_at_rest()
