"""A connector that dies: whatever the moment, the next sync ends with every row exactly once and nothing half."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from integration_tests.fault_proxy import Fault, When, fault_proxy
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, state, stream, users

CHECKPOINTS = 6
ROWS_PER_CHECKPOINT = 50
ALL_IDS = list(range(CHECKPOINTS * ROWS_PER_CHECKPOINT))
SECOND_BATCH_AGE = {"max_batch_age_s": 1}
CATALOG = catalog(stream())


def checkpoint(number: int, name: str = "users") -> list[bytes]:
    """The records of one checkpoint and its STATE. The source always sends the same ones for the same number."""
    return [*users(range(number * ROWS_PER_CHECKPOINT, (number + 1) * ROWS_PER_CHECKPOINT), name), state(number, name)]


def rest_after(answers: list[bytes], name: str = "users") -> Iterator[bytes]:
    """What the source sends when it starts again behind the last STATE that came back."""
    first = cursor_of(answers[-1]) + 1 if answers else 0
    for number in range(first, CHECKPOINTS):
        yield from checkpoint(number, name)
    yield complete(name)


MOMENTS = {
    "while landing": Fault("CreateMultipartUpload", skip=2),
    "after the block": Fault("PutObject", "/chain/" + f"{3:020d}", when=When.AFTER),
}
"""The first commit is blocks 0 to 2 and two files; each moment is in the second one. Each has a stream of its name.

unit_tests/sync/test_crashes.py has all others, without processes.
"""
ENDINGS = {
    "terminated at work": (signal.SIGTERM, True),
    "interrupted at work": (signal.SIGINT, True),
    "interrupted at its start": (signal.SIGINT, False),
}
"""Signals, and whether the sync has committed something by then. Each has a stream of its name, too."""


@pytest.fixture(scope="module")
def crashed(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The ids in the table of each moment and ending, after a sync that ended so, and one sync that brought the rest of all tables."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("crashed"))
    rest: list[bytes] = []
    for name in (*MOMENTS, *ENDINGS):
        outcome = killed_sync(lake, name) if name in MOMENTS else stopped_sync(lake, name)
        lake.verify()
        rest += rest_after(outcome.state_lines, name)
    lake.connector(batching=SECOND_BATCH_AGE).write(catalog(*map(stream, (*MOMENTS, *ENDINGS))), rest).expect_success()
    lake.verify_at_rest()
    return {name: lake.ids(("shop", name)) for name in (*MOMENTS, *ENDINGS)}


def killed_sync(lake: ProcessLake, moment: str) -> Outcome:
    """A sync of the moment's stream, which is killed then."""
    with fault_proxy(lake.bucket.server.endpoint) as proxy:
        connector = lake.connector(proxy.endpoint, batching=SECOND_BATCH_AGE)
        with connector.start(catalog(stream(moment))) as sync:
            proxy.inject(replace(MOMENTS[moment], status=0, times=1, effect=lambda _: sync.kill()))
            sync.send(*checkpoint(0, moment)).wait_for_states(1)
            outcome = sync.send(*checkpoint(1, moment), *checkpoint(2, moment)).finish()
        assert outcome.exit_code < 0, f"the fault never came: {proxy.counts()}"
    return outcome


def stopped_sync(lake: ProcessLake, ending: str) -> Outcome:
    """A sync of the ending's stream, which a signal ends within ten seconds, with all processes below it and nothing half."""
    number, at_work = ENDINGS[ending]
    with lake.connector(batching=SECOND_BATCH_AGE).start(catalog(stream(ending))) as sync:
        sync.send(*checkpoint(0, ending)).wait_for_jvm()
        if at_work:
            sync.wait_for_states(1)
        sync.send(*checkpoint(1, ending)[:-1])
        family, asked = sync.family(), time.monotonic()
        outcome = (sync.terminate() if number is signal.SIGTERM else sync.interrupt()).finish(30)
    assert outcome.exit_code == 128 + number
    assert time.monotonic() - asked < 10
    assert len(family) > 1, "Spark's JVM is a child of the connector"
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert f"stopped by {number.name}; the next sync resends" in outcome.warnings
    assert (outcome.errors, outcome.stderr) == ([], "")
    if at_work:
        assert (outcome.summary["ending"], outcome.summary["records_committed"]) == ("stopped", ROWS_PER_CHECKPOINT)
        assert lake.ids(("shop", ending)) == ALL_IDS[:ROWS_PER_CHECKPOINT]
    return outcome


@pytest.mark.parametrize("name", [*MOMENTS, *ENDINGS])
def test_after_a_kill_at_a_request_or_a_signal_every_row_is_there_exactly_once(crashed: dict[str, list[int]], name: str) -> None:
    assert crashed[name] == ALL_IDS


def test_sigterm_before_spark_is_up_ends_the_sync_at_once(moto_lake: ProcessLake) -> None:
    with moto_lake.connector().start(CATALOG) as sync:
        sync.send(*checkpoint(0)).wait_for_jvm()
        asked = time.monotonic()
        outcome = sync.terminate().finish(30)
    assert outcome.exit_code == 128 + signal.SIGTERM
    assert time.monotonic() - asked < 10
    assert outcome.states == []


def test_a_killed_sync_loses_no_row_where_the_store_overwrites_blocks(ceph: S3Server, tmp_path: Path) -> None:
    """Releases of Ceph before 19 grant `If-None-Match` in buckets that keep versions, and do not say so for older objects."""
    lake = ProcessLake.of(new_bucket(ceph), tmp_path)
    client = ceph.client()
    connector = lake.connector(batching=SECOND_BATCH_AGE, publish={"delta": True})
    connector.write(CATALOG, [*checkpoint(0), complete()]).expect_success()
    blocks = {key for key in lake.bucket.list_keys("lake/") if "/chain/0" in key}
    client.put_bucket_versioning(Bucket=lake.bucket.name, VersioningConfiguration={"Status": "Enabled"})
    with connector.start(CATALOG) as sync:
        sync.send(*checkpoint(1)).wait_for_states(1)
        sync.send(*checkpoint(2)).wait_for_states(2)
        sync.kill()
    # Another sync that died as soon as it had overwritten the first block.
    first_block = min({key for key in lake.bucket.list_keys("lake/") if "/chain/0" in key} - blocks)
    client.put_object(Bucket=lake.bucket.name, Key=first_block, Body=b"overwritten")
    connector.write(CATALOG, [*checkpoint(3), complete()]).expect_success()

    assert lake.ids() == ALL_IDS[: 4 * ROWS_PER_CHECKPOINT]
    assert not overwritten(lake)


def overwritten(lake: ProcessLake) -> set[str]:
    """The names of objects with older versions, except for those that are written again and again."""
    versions = lake.bucket.server.client().list_object_versions(Bucket=lake.bucket.name)["Versions"]
    names = {version["Key"].rpartition("/")[2] for version in versions if not version["IsLatest"]}
    return names - {"hint.json", "manifest", "README.md", "schema.json"}
