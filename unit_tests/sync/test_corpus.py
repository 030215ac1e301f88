"""Airbyte's own end-to-end cases for Parquet: what one sync leaves, and what several leave after each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.corpus_cases import PARQUET_VARIANTS, CaseSync, comparable, load, sorted_rows
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.table_readers import Row

CASES = ["testBasicWrite", "testBasicTypes", "testContainerTypes", "testNamespaces", "testFunkyCharacters", "testManyStreamsCompletion"]
"""Cases of one sync each; they share a catalog, each in a namespace of its own."""


Tables: TypeAlias = dict[StreamName, list[Row]]


@pytest.fixture(scope="module")
def landed(make_lake: Callable[[], Lake]) -> tuple[Tables, Outcome]:
    """The tables of all cases in one sync, and what the sync said."""
    lake = make_lake()
    syncs = [sync for case in CASES for sync in case_syncs(case)]
    streams = [stream for sync in syncs for stream in without_truncate(sync.catalog)["streams"]]
    messages = [message for sync in syncs for message in (*sync.messages, *sync.completions)]
    outcome = lake.connector().write({"streams": streams}, messages).expect_success()
    lake.verify_at_rest()
    return lake.tables(), outcome


TYPING_DEDUPING = [
    "allTypes", "cdcComplexUpdate", "cdcOrderingInsertAfterDelete", "cdcOrderingUpdateAfterDelete", "dedupWithBadValue",
    "incrementalAppend", "incrementalDedup", "incrementalDedupChangeCursor", "incrementalDedupOtherStream", "mergeRefresh",
    "mixedCaseColumnName", "nullPrimaryKey", "reservedKeywords", "truncateRefresh", "weirdColumnNames",
]  # fmt: skip
INTERRUPTED, KILLED = "testTruncateRefresh", "testInterruptedTruncateWithoutPriorData"
LATER_SYNCS = [
    "testAppend",
    "testDedupNoCursor",
    "testDedupWithStringKey",
    INTERRUPTED,
    KILLED,
    *(f"typing_deduping/{case}" for case in TYPING_DEDUPING),
]
"""Cases of one or more syncs. The one that is interrupted has three, of which the second has no status; the killed one begins so."""
VARIANTS = (*PARQUET_VARIANTS, "cdc_hard_delete")
VARIANT_OF = {INTERRUPTED: "otherwise", KILLED: "commits_incrementally"}


@pytest.fixture(scope="module")
def later(make_lake: Callable[[], Lake]) -> dict[str, list[Tables]]:
    """The tables of each case after each of its syncs. The first ones run together, and so do the last ones."""
    lake = make_lake()
    found: dict[str, list[Tables]] = {case: [] for case in LATER_SYNCS}

    def look(*cases: str) -> None:
        tables = lake.tables()
        for case in cases:
            found[case].append({stream: tables[stream] for stream in case_syncs(case)[0].streams if stream in tables})

    firsts = [case for case in LATER_SYNCS if case != KILLED]
    (to_kill, *_), (_, without_status, _) = case_syncs(KILLED), case_syncs(INTERRUPTED)
    lake.killed(to_kill.catalog, to_kill.messages)
    run_together(lake, [case_syncs(case)[0] for case in firsts])
    look(*LATER_SYNCS)
    lake.connector().write(without_status.catalog, without_status.messages).expect_failure("transient_error")
    look(INTERRUPTED)
    seconds = [case for case in LATER_SYNCS if len(case_syncs(case)) > 1]
    run_together(lake, [case_syncs(case)[-1] for case in seconds])
    look(*seconds)
    lake.verify_at_rest()
    return found


def run_together(lake: Lake, syncs: list[CaseSync]) -> None:
    streams = [stream for sync in syncs for stream in sync.catalog["streams"]]
    lake.connector().write({"streams": streams}, [line for sync in syncs for line in (*sync.messages, *sync.completions)]).expect_success()


@pytest.mark.parametrize("case", LATER_SYNCS)
def test_rows_are_those_of_the_case_after_each_of_its_syncs(later: dict[str, list[Tables]], case: str) -> None:
    syncs = case_syncs(case)
    assert len(later[case]) == len(syncs)
    known = (*VARIANTS, VARIANT_OF.get(case, "all"))
    for sync, tables in zip(syncs, later[case], strict=True):
        for stream, expected in sync.expected_rows(known).items():
            assert sorted_rows([comparable(row) for row in tables[stream]]) == sorted_rows(expected)


def case_syncs(case: str) -> list[CaseSync]:
    return [sync.in_namespace(case.removeprefix("typing_deduping/")) for sync in load(case)]


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_case(landed: tuple[Tables, Outcome], case: str) -> None:
    found, _ = landed
    (sync,) = case_syncs(case)
    tables = {stream: rows for stream, rows in found.items() if stream in sync.streams}
    for stream, expected in sync.expected_rows().items():
        assert sorted_rows([comparable(row) for row in tables[stream]]) == sorted_rows(expected), stream
    assert tables.keys() == set(sync.streams), "every stream of these cases has a record"


def test_the_state_is_the_one_of_the_case(landed: tuple[Tables, Outcome]) -> None:
    _, outcome = landed
    (sync,) = case_syncs("testBasicWrite")
    (state,) = outcome.states
    assert state["destinationStats"]["recordCount"] == sync.expected["state"]["destinationStats.recordCount"]
    assert state["sourceStats"]["recordCount"] == sync.expected["state"]["sourceStats.recordCount"]
    assert state["committedRecordsCount"] == sync.expected["state"]["additional"]["committedRecordsCount"]


@pytest.mark.parametrize("case", ["testNoColumns", "testNoData"])
def test_rows_are_those_of_the_case_after_every_sync(lake: Lake, case: str) -> None:
    connector = lake.connector()
    for sync in load(case):
        connector.write(sync.catalog, [*sync.messages, *sync.completions]).expect_success()
        ((stream, expected),) = sync.expected_rows().items()
        found = lake.tables().get(stream, [])
        assert sorted_rows([comparable(row) for row in found]) == sorted_rows(expected)
    lake.verify_at_rest()


def test_a_state_of_mid_sync_is_acknowledged_and_its_record_survives_the_kill(lake: Lake) -> None:
    interrupted, after = load("testMidSyncCheckpointingStreamState")
    (message,) = lake.killed(interrupted.catalog, interrupted.messages)
    state = message["state"]
    assert state["destinationStats"]["recordCount"] == interrupted.expected["state"]["destinationStats.recordCount"]
    assert state["stream"]["stream_state"] == interrupted.expected["state"]["stream_state"]

    lake.connector().write(after.catalog, [*after.messages, *after.completions]).expect_success()
    ((stream, expected),) = after.expected_rows().items()
    assert [comparable(row) for row in lake.rows(stream)] == expected
    lake.verify()


def without_truncate(catalog: JsonObject) -> JsonObject:
    """The catalog as an append. One case is a first truncate, and makes no statement about it."""
    return {"streams": [{**stream, "minimum_generation_id": 0} for stream in catalog["streams"]]}
