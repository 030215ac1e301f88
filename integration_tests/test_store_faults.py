"""A store that fails for a while is waited for; one that fails for good ends the sync as transient, without a further STATE."""

from __future__ import annotations

import time
from typing import Any

import pytest

from integration_tests.connector import Connector
from integration_tests.lake import Lake
from integration_tests.s3_proxy import Fault, S3Call, S3Proxy, When
from integration_tests.servers import free_port
from integration_tests.source import catalog, complete, cursor_of, state, stream, users

CATALOG = catalog(stream())
PATIENCE_S = 12
"""How long a store in trouble is waited for here. As long as usual would be minutes."""

WRITING_ACTIONS = ["PutObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "DeleteObjects"]
READING_ACTIONS = ["GetObject", "ListObjects", "ListMultipartUploads", "HeadObject"]


def test_every_request_may_fail_twice(moto_lake: Lake, proxy: S3Proxy) -> None:
    for action in (*WRITING_ACTIONS, *READING_ACTIONS):
        proxy.inject(Fault(action, times=1))
        proxy.inject(Fault(action, times=1, status=500, code="InternalError"))
    outcome = moto_lake.connector(proxy.endpoint).write(CATALOG, [*users([1, 2]), state(2), complete()]).expect_success()
    assert [cursor_of(answer) for answer in outcome.state_lines] == [2]
    assert moto_lake.ids() == [1, 2]
    moto_lake.verify_at_rest()


def test_the_first_answer_to_every_write_may_be_lost(moto_lake: Lake, proxy: S3Proxy) -> None:
    written: set[tuple[str, str]] = set()

    def first_try(call: S3Call) -> bool:
        tried = (call.action, call.key) in written
        written.add((call.action, call.key))
        return call.action in WRITING_ACTIONS and not tried

    proxy.inject(Fault(only=first_try, status=0, when=When.AFTER))
    outcome = moto_lake.connector(proxy.endpoint).write(CATALOG, [*users([1, 2]), state(2), complete()]).expect_success()
    assert [cursor_of(answer) for answer in outcome.state_lines] == [2]
    assert moto_lake.ids() == [1, 2]
    moto_lake.verify_at_rest()


def test_a_merge_and_a_refresh_survive_what_a_store_does_to_them(moto_lake: Lake, proxy: S3Proxy) -> None:
    """First every request fails twice and a table cannot be seen at first, then the first answer to every write is lost."""
    refreshed, written = ("shop", "refreshed"), set()

    def sync(number: int, connector: Connector) -> None:
        streams = catalog(
            stream(mode="append_dedup", primary_key=[["id"]], sync_id=number),
            stream("refreshed", generation=number, minimum_generation=number, sync_id=number),
        )
        messages = [*users([1, 2, number]), state(number), *users([1, number], "refreshed"), state(number, "refreshed")]
        connector.write(streams, [*messages, complete(), complete("refreshed")], timeout_s=240).expect_success()
        assert (moto_lake.ids(), moto_lake.ids(refreshed)) == ([1, 2, *range(3, number + 1)], sorted([1, number]))

    def first_try(call: S3Call) -> bool:
        tried = (call.action, call.key) in written
        written.add((call.action, call.key))
        return call.action in WRITING_ACTIONS and not tried

    sync(3, moto_lake.connector())
    proxy.inject(Fault("GetObject", "hint.json", times=2, status=404, code="NoSuchKey"))
    for action in (*WRITING_ACTIONS, *READING_ACTIONS):
        proxy.inject(Fault(action, times=1))
        proxy.inject(Fault(action, times=1, status=500, code="InternalError"))
    sync(4, moto_lake.connector(proxy.endpoint))
    assert {"UploadPartCopy", "DeleteObjects"} <= proxy.counts().keys()
    moto_lake.verify_at_rest()

    proxy.forget()
    proxy.inject(Fault(only=first_try, status=0, when=When.AFTER))
    sync(5, moto_lake.connector(proxy.endpoint))
    moto_lake.verify_at_rest()


def impatient(lake: Lake, endpoint: str, **options: Any) -> Connector:
    """A connector that soon gives a store in trouble up."""
    connector = lake.connector(endpoint, **options)
    connector.patience_s = PATIENCE_S
    return connector


def test_a_store_that_refuses_connections_is_a_transient_failure(moto_lake: Lake) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    outcome = impatient(moto_lake, endpoint).write(CATALOG, [*users([1]), state(1), complete()])
    assert endpoint in outcome.expect_failure("transient_error").error_message
    assert outcome.states == []


HANGING_S = 60
"""Longer than a test takes."""

OUTAGES = [
    pytest.param(Fault("UploadPart"), id="no part is taken"),
    pytest.param(Fault(status=0), id="no answer at all"),
    pytest.param(Fault(status=0, effect=lambda _: time.sleep(HANGING_S)), id="it hangs"),
    pytest.param(Fault("PutObject", status=0, effect=lambda _: time.sleep(HANGING_S)), id="puts hang, gets are answered"),
]


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_store_that_stays_down_in_mid_sync_gets_no_further_state(moto_lake: Lake, proxy: S3Proxy, outage: Fault) -> None:
    with impatient(moto_lake, proxy.endpoint, batching={"max_batch_age_s": 1}).start(CATALOG) as sync:
        sync.send(*users([1]), state(1)).wait_for_states(1)
        proxy.inject(outage)
        outcome = sync.send(*users([2]), state(2), complete()).end_input().finish()
    outcome.expect_failure("transient_error")
    assert [cursor_of(answer) for answer in outcome.state_lines] == [1]
    moto_lake.verify()
    assert moto_lake.ids() == [1]

    moto_lake.connector().write(CATALOG, [*users([2]), state(2), complete()]).expect_success()
    assert moto_lake.ids() == [1, 2]
    moto_lake.verify_at_rest()


def test_a_permission_lost_in_mid_sync_is_a_config_error_that_names_it(moto_lake: Lake, proxy: S3Proxy) -> None:
    proxy.inject(Fault("CreateMultipartUpload", status=403, code="AccessDenied"))
    outcome = moto_lake.connector(proxy.endpoint).write(CATALOG, [*users([1]), state(1), complete()])
    assert "s3:PutObject" in outcome.expect_failure("config_error").error_message
    assert outcome.states == []
