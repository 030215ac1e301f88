"""A Spark JVM that dies alone, between jobs or in one: the sync says that it is to be run again, and then every row is there once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration_tests.fault_proxy import Fault, FaultProxy, When, fault_proxy
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.s3_proxy import Call

MOMENTS = {
    "before_landing": Fault("PutObject", "/chain/0"),
    "while_landing": Fault("CreateMultipartUpload", "/delta/"),
    "before_sorting": Fault("CompleteMultipartUpload", "/delta/", when=When.AFTER),
    "before_merging": Fault("GetObject", "/scratch/"),
    "while_merging": Fault("CreateMultipartUpload", only=lambda call: "/airbyte_internal/" not in call.key and "/raw/" not in call.key),
}
"""The jobs of a sync that makes a table of appended rows a deduplicated one: land, sort, merge."""
AFTER_THE_LAST_JOB = "before_the_block_of_the_merge"
EARLIER, LATER = range(60), range(40, 100)
"""The ids that are there, and those that come."""


class MergeBlock:
    """The request that creates the block of a merge: the first one for a block after a sorted file of the table has been read."""

    def __init__(self) -> None:
        self._planned = False

    def __call__(self, call: Call) -> bool:
        self._planned |= call.action == "GetObject" and "/scratch/" in call.key
        return self._planned and call.action == "PutObject" and "/chain/0" in call.key


def deduplicated(name: str) -> JsonObject:
    return stream(name, mode="append_dedup", primary_key=[["id"]], cursor_field=["id"])


@pytest.fixture(scope="module")
def lake(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> ProcessLake:
    """A table of appended rows for each moment."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("jvm"))
    names = [*MOMENTS, AFTER_THE_LAST_JOB]
    messages = [line for name in names for line in (*users(EARLIER, name), state(0, name), complete(name))]
    lake.connector().write(catalog(*map(stream, names)), messages).expect_success()
    return lake


@pytest.fixture(scope="module")
def deaths(lake: ProcessLake) -> dict[str, Outcome]:
    """A sync for each moment, whose JVM dies then, and one that goes on with all tables."""
    outcomes, rest = {}, []
    for moment in MOMENTS:
        outcomes[moment] = dying_sync(lake, moment)
        lake.verify()
        rest += [complete(moment)] if len(outcomes[moment].states) > 1 else lines(moment)
    lake.connector().write(catalog(stream(), *map(deduplicated, MOMENTS)), [*rest, complete()]).expect_success()
    lake.verify()
    assert lake.bucket.open_uploads() == []
    return outcomes


def lines(moment: str) -> list[bytes]:
    return [*users(LATER, moment), state(1, moment), complete(moment)]


def dying_sync(lake: ProcessLake, moment: str) -> Outcome:
    """A sync of the moment's table, and of another stream, which makes Spark start before the table is written to."""
    with fault_proxy(lake.bucket.server.endpoint) as proxy:
        connector = lake.connector(proxy.endpoint, batching={"max_batch_age_s": 1})
        with connector.start(catalog(stream(), deduplicated(moment))) as sync:
            sync.send(*users([1]), state(0)).wait_for_states(1)
            proxy.inject(replace(MOMENTS[moment], status=None, times=1, effect=lambda _: sync.kill_jvm()))
            return sync.send(*lines(moment), complete()).end_input().finish()


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_sync_fails_for_now_and_the_next_one_has_every_row_once(deaths: dict[str, Outcome], lake: ProcessLake, moment: str) -> None:
    outcome = deaths[moment]
    outcome.expect_failure("transient_error")
    assert "JVM ended with code" in outcome.error_message
    assert "Traceback" not in outcome.stderr
    assert lake.ids(("shop", moment)) == list(range(100))


def test_after_the_last_job_nobody_needs_the_jvm(lake: ProcessLake, proxy: FaultProxy) -> None:
    name = AFTER_THE_LAST_JOB
    with lake.connector(proxy.endpoint).start(catalog(deduplicated(name))) as sync:
        proxy.inject(Fault(only=MergeBlock(), status=None, times=1, effect=lambda _: sync.kill_jvm()))
        outcome = sync.send(*users(LATER, name), state(1, name), complete(name)).end_input().finish()

    outcome.expect_success()
    assert "Traceback" not in outcome.stderr
    assert lake.ids(("shop", name)) == list(range(100))
    lake.verify()
