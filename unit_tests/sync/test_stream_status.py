"""How a sync ends: COMPLETE, INCOMPLETE, nothing at all; and what that means for records, states and the exit code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, cursor_of
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, status, stream, users

TWO_STREAMS = catalog(stream("users"), stream("orders"))
ORDERS = ("shop", "orders")


@pytest.fixture(scope="module")
def half_complete(make_lake: Callable[[], Lake]) -> tuple[Lake, Outcome]:
    """Both streams send two records, a STATE and a third record; users end COMPLETE, orders INCOMPLETE."""
    lake = make_lake()
    messages = []
    for name in ("users", "orders"):
        messages += [*users([1, 2], name), state(2, name), *users([3], name)]
    outcome = lake.connector().write(TWO_STREAMS, [*messages, complete("users"), status("INCOMPLETE", "orders")])
    return lake, outcome


def test_complete_commits_the_records_behind_the_last_state(half_complete: tuple[Lake, Outcome]) -> None:
    lake, _ = half_complete
    assert lake.ids(USERS) == [1, 2, 3]


def test_incomplete_keeps_only_what_a_state_covers(half_complete: tuple[Lake, Outcome]) -> None:
    lake, _ = half_complete
    assert lake.ids(ORDERS) == [1, 2]
    lake.verify()
    assert lake.bucket.open_uploads() == []


def test_an_incomplete_stream_still_gets_its_states(half_complete: tuple[Lake, Outcome]) -> None:
    _, outcome = half_complete
    assert sorted(map(cursor_of, outcome.state_lines)) == [2, 2]


def test_an_incomplete_stream_fails_the_sync_as_transient_and_is_named(half_complete: tuple[Lake, Outcome]) -> None:
    _, outcome = half_complete
    message = outcome.expect_failure("transient_error").error_message
    assert "shop.orders" in message
    assert "shop.users" not in message


def test_a_record_after_complete_stops_the_sync(lake: Lake) -> None:
    outcome = lake.connector().write(catalog(stream()), [*users([1]), state(1), complete(), record({"id": 2, "name": "late marker"})])
    error = outcome.expect_failure("system_error").error
    assert "users" in error["message"]
    assert "late marker" not in outcome.describe()


def test_a_sync_without_records_writes_nothing(lake: Lake) -> None:
    outcome = lake.connector().write(catalog(stream()), [state(5), complete()]).expect_success()
    assert [cursor_of(answer) for answer in outcome.state_lines] == [5]
    assert outcome.states[0]["destinationStats"]["recordCount"] == 0.0
    assert lake.bucket.list_keys() == []
