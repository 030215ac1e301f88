"""Airbyte's own end-to-end cases, as far as they need nothing but append."""

from __future__ import annotations

import json

import pytest

from integration_tests.corpus_cases import CaseSync, comparable, load
from integration_tests.lake import Lake
from integration_tests.source import JsonObject
from integration_tests.table_readers import Row

SIMPLE_CASES = ["testBasicWrite", "testContainerTypes", "testManyStreamsCompletion", "testNoColumns", "testNoData"]
CASES_ON_BOTH_SERVERS = ["testBasicTypes", "testNamespaces", "testFunkyCharacters"]


@pytest.mark.parametrize("case", SIMPLE_CASES)
def test_case(moto_lake: Lake, case: str) -> None:
    run_case(moto_lake, load(case))


@pytest.mark.parametrize("case", CASES_ON_BOTH_SERVERS)
def test_case_on_both_servers(lake: Lake, case: str) -> None:
    run_case(lake, load(case))


def run_case(lake: Lake, syncs: list[CaseSync]) -> None:
    connector = lake.connector()
    for sync in syncs:
        outcome = connector.write(without_truncate(sync.catalog), [*sync.messages, *sync.completions]).expect_success()
        assert len(outcome.states) == sync.expected.get("state_messages", len(outcome.states))
        assert_states(outcome.states, sync.expected.get("state", {}))
        chains = lake.chains()
        for stream, expected in sync.expected_rows().items():
            found = [comparable(row) for row in lake.rows(stream)] if stream in chains else []
            assert sorted_rows(found) == sorted_rows(expected), stream
        lake.verify_at_rest()


def test_a_state_of_mid_sync_is_acknowledged_and_its_record_survives_the_kill(moto_lake: Lake) -> None:
    interrupted, after = load("testMidSyncCheckpointingStreamState")
    connector = moto_lake.connector(batching={"max_batch_age_s": 1})
    with connector.start(interrupted.catalog) as sync:
        (state_line,) = sync.send(*interrupted.messages).wait_for_states(1)
        sync.kill()
    state = json.loads(state_line)["state"]
    assert state["destinationStats"]["recordCount"] == interrupted.expected["state"]["destinationStats.recordCount"]
    assert state["stream"]["stream_state"] == interrupted.expected["state"]["stream_state"]

    connector.write(after.catalog, [*after.messages, *after.completions]).expect_success()
    ((stream, expected),) = after.expected_rows().items()
    assert [comparable(row) for row in moto_lake.rows(stream)] == expected
    moto_lake.verify()


def without_truncate(catalog: JsonObject) -> JsonObject:
    """The catalog as an append. One case is a first truncate, and makes no statement about it."""
    return {"streams": [{**stream, "minimum_generation_id": 0} for stream in catalog["streams"]]}


def assert_states(states: list[JsonObject], expected: JsonObject) -> None:
    for name in ("destinationStats", "sourceStats"):
        if f"{name}.recordCount" in expected:
            assert [state[name]["recordCount"] for state in states] == [expected[f"{name}.recordCount"]]


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))
