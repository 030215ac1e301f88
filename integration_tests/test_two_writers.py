"""Two syncs that write the same table at the same time: one wins, the other stops and says so, and no row is lost or doubled."""

from __future__ import annotations

import pytest

from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Call, s3_proxy
from unit_tests.lake.messages import JsonObject, catalog, cursor_of
from unit_tests.lake.shop import complete, state, stream, users

SECOND_BATCH_AGE = {"max_batch_age_s": 1}


@pytest.mark.turns
def test_a_second_writer_of_a_table_fences_the_first(strict_lake: ProcessLake) -> None:
    first = strict_lake.connector(batching=SECOND_BATCH_AGE)
    second = strict_lake.connector(batching=SECOND_BATCH_AGE)
    with first.start(catalog(stream(sync_id=1))) as fenced:
        fenced.send(*users([1, 2]), state(2)).wait_for_states(1)
        outcome = second.write(catalog(stream(sync_id=2)), [*users([11, 12]), state(12), complete()]).expect_success()
        assert [cursor_of(answer) for answer in outcome.state_lines] == [12]
        loser = fenced.send(*users([3, 4]), state(4), complete()).end_input().finish()

    error = loser.expect_failure("system_error").error
    assert "two connections" in error["message"].lower()
    assert "shop.users" in error["message"]
    assert "sync id 2" in error["message"], "the winner is named"
    assert error["stream_descriptor"] == {"name": "users", "namespace": "shop"}
    assert [cursor_of(answer) for answer in loser.state_lines] == [2]
    assert strict_lake.ids() == [1, 2, 11, 12]
    strict_lake.verify()


DEDUP: JsonObject = {"mode": "append_dedup", "primary_key": [["id"]]}


@pytest.mark.turns
def test_a_second_writer_that_merges_first_fences_the_first_in_its_merge(strict_lake: ProcessLake) -> None:
    """The second one merges what the first one has landed, runs and all, while the first one is about to read them."""
    second, won = strict_lake.connector(), []
    first_rows, second_rows = [*users([1, 2, 3]), state(3), complete()], [*users([3, 4]), state(4), complete()]

    def overtake(_: S3Call) -> None:
        won.append(second.write(catalog(stream(sync_id=2, **DEDUP)), second_rows).expect_success())

    with s3_proxy(strict_lake.bucket.server.endpoint) as proxy:
        proxy.inject(Fault("GetObject", "/delta/", status=None, times=1, effect=overtake))
        loser = strict_lake.connector(proxy.endpoint).write(catalog(stream(sync_id=1, **DEDUP)), first_rows)

    assert len(won) == 1
    message = loser.expect_failure("system_error").error_message
    assert "two connections" in message.lower()
    assert "sync id 2" in message
    assert [cursor_of(answer) for answer in loser.state_lines] == [3], "its rows were committed, and came in with the winner's merge"
    assert strict_lake.ids() == [1, 2, 3, 4]
    strict_lake.verify()

    second.write(catalog(stream(sync_id=3, **DEDUP)), [*users([5]), state(5), complete()]).expect_success()
    assert strict_lake.ids() == [1, 2, 3, 4, 5]
    strict_lake.verify_at_rest()


@pytest.mark.turns
def test_a_writer_paused_at_the_manifest_hides_nothing_of_the_one_that_went_on(strict_lake: ProcessLake) -> None:
    """The first one stands still with the manifest on its way, and the second one begins and ends meanwhile."""
    second, won = strict_lake.connector(), []

    def overtake(_: S3Call) -> None:
        won.append(second.write(catalog(stream(sync_id=2)), [*users([3]), state(3), complete()]).expect_success())

    with s3_proxy(strict_lake.bucket.server.endpoint) as proxy:
        first = strict_lake.connector(proxy.endpoint)
        first.write(catalog(stream(sync_id=1)), [*users([1]), state(1), complete()]).expect_success()
        proxy.inject(Fault("PutObject", "/manifest", status=None, times=1, effect=overtake))
        loser = first.write(catalog(stream(sync_id=1)), [*users([2]), state(2), complete()])

    assert len(won) == 1
    assert "sync id 2" in loser.expect_failure("system_error").error_message
    assert strict_lake.ids() == [1, 2, 3]
    strict_lake.verify_at_rest()


@pytest.mark.turns
def test_two_syncs_that_start_together_never_lose_what_was_acknowledged(moto_lake: ProcessLake) -> None:
    runs = []
    for number in (1, 2):
        connector = moto_lake.connector(batching=SECOND_BATCH_AGE)
        runs.append(connector.start(catalog(stream(sync_id=number))))
    with runs[0], runs[1]:
        for checkpoint in range(4):
            for number, sync in enumerate(runs):
                cursor = 100 * number + checkpoint
                sync.send(*users([cursor]), state(cursor))
        outcomes = [sync.send(complete()).end_input().finish() for sync in runs]

    assert sorted(outcome.exit_code == 0 for outcome in outcomes) in ([False, True], [True, True]), (
        "one after the other is fine, none is not"
    )
    acknowledged = [cursor_of(answer) for outcome in outcomes for answer in outcome.state_lines]
    found = moto_lake.ids()
    assert sorted(set(found)) == found, "a row is there twice"
    assert set(acknowledged) <= set(found)
    moto_lake.verify()


@pytest.mark.turns
def test_syncs_of_different_tables_do_not_disturb_each_other(moto_lake: ProcessLake) -> None:
    users_sync = moto_lake.connector(batching=SECOND_BATCH_AGE).start(catalog(stream()))
    with users_sync:
        users_sync.send(*users([1]), state(1)).wait_for_states(1)
        orders = moto_lake.connector()
        orders.write(catalog(stream("orders")), [*users([5], "orders"), state(5, "orders"), complete("orders")]).expect_success()
        users_sync.send(*users([2]), state(2), complete()).end_input().finish().expect_success()
    assert (moto_lake.ids(), moto_lake.ids(("shop", "orders"))) == ([1, 2], [5])
    moto_lake.verify_at_rest()
