"""A store that fails for a while is waited for; one that fails for good ends the sync as transient, without a further STATE."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Call, S3Proxy, When, s3_proxy
from integration_tests.servers import free_port
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, state, stream, users

CATALOG = catalog(stream())
PATIENCE_S = 12
"""How long a store in trouble is waited for here. As long as usual would be minutes."""

WRITING_ACTIONS = ["PutObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "DeleteObjects"]
READING_ACTIONS = ["GetObject", "ListObjects", "ListMultipartUploads", "HeadObject"]


def test_appends_merges_and_refreshes_survive_what_a_store_does_to_them(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    """Every request fails twice, an old table cannot be seen at first, and then the first answer to each write is lost."""
    written: set[tuple[str, str]] = set()

    def sync(number: int) -> None:
        appended, refreshed = f"appended_{number}", ("shop", "refreshed")
        streams = catalog(
            stream(mode="append_dedup", primary_key=[["id"]], sync_id=number),
            stream("refreshed", generation=number, minimum_generation=number, sync_id=number),
            stream(appended, sync_id=number),
        )
        messages = [*users([1, 2, number]), state(number), *users([1, number], "refreshed"), state(number, "refreshed"),
                    *users([1, 2], appended), state(number, appended), complete(), complete("refreshed"), complete(appended)]  # fmt: skip
        outcome = moto_lake.connector(proxy.endpoint).write(streams, messages, timeout_s=240).expect_success()
        assert [cursor_of(answer) for answer in outcome.state_lines] == [number] * 3
        assert (moto_lake.ids(), moto_lake.ids(refreshed)) == ([1, 2, *range(3, number + 1)], sorted([1, number]))
        assert moto_lake.ids(("shop", appended)) == [1, 2]
        moto_lake.verify_at_rest()

    def fail_twice(*others: Fault) -> None:
        proxy.forget()
        for fault in others:
            proxy.inject(fault)
        for action in (*WRITING_ACTIONS, *READING_ACTIONS):
            proxy.inject(Fault(action, times=1))
            proxy.inject(Fault(action, times=1, status=500, code="InternalError"))

    def first_try(call: S3Call) -> bool:
        tried = (call.action, call.key) in written
        written.add((call.action, call.key))
        return call.action in WRITING_ACTIONS and not tried

    fail_twice()
    sync(3)
    fail_twice(Fault("GetObject", "hint.json", times=2, status=404, code="NoSuchKey"))
    sync(4)
    assert {"UploadPartCopy", "DeleteObjects"} <= proxy.counts().keys()
    proxy.forget()
    proxy.inject(Fault(only=first_try, status=0, when=When.AFTER))
    sync(5)


def impatient(lake: ProcessLake, endpoint: str, **options: Any) -> Connector:
    """A connector that soon gives a store in trouble up."""
    connector = lake.connector(endpoint, **options)
    connector.patience_s = PATIENCE_S
    return connector


@pytest.mark.turns
def test_a_store_that_refuses_connections_is_a_transient_failure(moto_lake: ProcessLake) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    outcome = impatient(moto_lake, endpoint).write(CATALOG, [*users([1]), state(1), complete()])
    assert endpoint in outcome.expect_failure("transient_error").error_message
    assert outcome.states == []


HANGING_S = 60
"""Longer than a test takes."""

OUTAGES = {
    "no part is taken": Fault("UploadPart"),
    "no answer at all": Fault(status=0),
    "it hangs": Fault(status=0, effect=lambda _: time.sleep(HANGING_S)),
    "puts hang, gets are answered": Fault("PutObject", status=0, effect=lambda _: time.sleep(HANGING_S)),
}
"""By the name of their stream."""


@dataclass(frozen=True, slots=True)
class Down:
    """A sync whose store went down in its middle; and the ids in its table then and after the next sync."""

    outcome: Outcome
    ids: list[int]
    later: list[int]


@pytest.fixture(scope="module")
def outages(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Down]:
    """A sync for each outage, all at once, because they do nothing but wait; and one sync of all that they did not write."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("outages"))
    with ExitStack() as stack:
        running = []
        for name, outage in OUTAGES.items():
            proxy = stack.enter_context(s3_proxy(moto.endpoint))
            connector = impatient(lake, proxy.endpoint, batching={"max_batch_age_s": 1})
            running.append((name, proxy, outage, stack.enter_context(connector.start(catalog(stream(name))))))
        for name, _, _, sync in running:
            sync.send(*users([1], name), state(1, name))
        for name, proxy, outage, sync in running:
            sync.wait_for_states(1)
            proxy.inject(outage)
            sync.send(*users([2], name), state(2, name), complete(name)).end_input()
        outcomes = {name: sync.finish() for name, _, _, sync in running}
    lake.verify()
    found = {name: lake.ids(("shop", name)) for name in OUTAGES}
    rest = [line for name in OUTAGES for line in (*users([2], name), state(2, name), complete(name))]
    lake.connector().write(catalog(*map(stream, OUTAGES)), rest).expect_success()
    lake.verify_at_rest()
    return {name: Down(outcome, found[name], lake.ids(("shop", name))) for name, outcome in outcomes.items()}


@pytest.mark.turns
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_store_that_stays_down_in_mid_sync_gets_no_further_state(outages: dict[str, Down], outage: str) -> None:
    down = outages[outage]
    down.outcome.expect_failure("transient_error")
    assert [cursor_of(answer) for answer in down.outcome.state_lines] == [1]
    assert (down.ids, down.later) == ([1], [1, 2])


@pytest.mark.turns
def test_a_permission_lost_in_mid_sync_is_a_config_error_that_names_it(moto_lake: ProcessLake, proxy: S3Proxy) -> None:
    proxy.inject(Fault("CreateMultipartUpload", status=403, code="AccessDenied"))
    outcome = moto_lake.connector(proxy.endpoint).write(CATALOG, [*users([1]), state(1), complete()])
    assert "s3:PutObject" in outcome.expect_failure("config_error").error_message
    assert outcome.states == []
