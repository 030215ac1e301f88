"""Two syncs that write the same table at the same time: one wins, the other stops and says so, and no row is lost or doubled."""

from __future__ import annotations

from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.shop import complete, state, stream, users

SECOND_BATCH_AGE = {"max_batch_age_s": 1}


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
