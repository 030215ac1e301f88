"""Syncs as Airbyte runs a custom connector: no ids in the catalog, no stream statuses, and an end of input that proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, descriptor, line
from unit_tests.lake.shop import complete, state, stream, users

PATHS = (("shop", "users"), ("shop", "events"), ("shop", "orders"))
BARE: dict[str, Any] = {"generation": None, "minimum_generation": None, "sync_id": None}
"""The ids as the platform sends them for a custom connector."""
ALL_MODES = catalog(
    stream("users", mode="overwrite", **BARE),
    stream("events", mode="append", **BARE),
    stream("orders", mode="append_dedup", primary_key=[["id"]], cursor_field=[], **BARE),
)


def injected(name: str) -> bytes:
    """The empty STATE that the platform sends for a stream of a source that ended with exit code 0."""
    blob = {"stream_descriptor": descriptor(name, "shop"), "stream_state": {}}
    return line({"type": "STATE", "state": {"type": "STREAM", "stream": blob}})


def sent(ids: Sequence[int], *ends: bytes) -> list[bytes]:
    return [one for name in ("users", "events", "orders") for one in users(ids, name)] + list(ends)


ENDS = tuple(injected(name) for name in ("users", "events", "orders"))


def test_a_source_that_died_costs_no_row_in_any_mode_and_its_next_attempt_doubles_none(lake: Lake) -> None:
    connector = lake.connector()
    connector.write(ALL_MODES, sent(range(10), *ENDS)).expect_success()
    assert [lake.ids(path) for path in PATHS] == [list(range(10))] * 3

    died = connector.write(ALL_MODES, sent([100, 101], state(1, "events"), *users([102], "events")))
    error = died.expect_failure("transient_error").error_message
    assert "did not finish" in error
    assert "batching.end_of_input" in error
    assert len(died.state_lines) == 1
    assert [lake.ids(path) for path in PATHS] == [list(range(10)), [*range(10), 100, 101], list(range(10))]
    lake.verify()

    connector.write(ALL_MODES, sent([200, 201], *ENDS)).expect_success()
    assert [lake.ids(path) for path in PATHS] == [[200, 201], [*range(10), 100, 101, 200, 201], [*range(10), 200, 201]]
    lake.verify_at_rest()

    # Nothing at all is no empty source.
    connector.write(ALL_MODES, []).expect_failure("transient_error")
    assert lake.ids(PATHS[0]) == [200, 201]
    connector.write(ALL_MODES, ENDS).expect_success()
    assert [lake.ids(path) for path in PATHS] == [[], [*range(10), 100, 101, 200, 201], [*range(10), 200, 201]]
    lake.verify_at_rest()


@pytest.fixture(scope="module")
def held_back(make_lake: Callable[[], Lake]) -> Lake:
    """Two tables of ten users, and two of each that a source sent before a checkpoint that may be its last."""
    lake, names = make_lake(), ("accepted", "discarded")
    streams = catalog(*(stream(name, mode="overwrite", **BARE) for name in names))
    whole = [line for name in names for line in (*users(range(10), name), injected(name))]
    lake.connector().write(streams, whole).expect_success()
    part = [line for name in names for line in (*users([100, 101], name), state(7, name))]
    error = lake.connector().write(streams, part).expect_failure("config_error").error_message
    assert "shop.accepted (2 rows in place of 10)" in error
    assert "accept" in error
    assert "discard" in error
    for name in names:
        assert lake.ids(("shop", name)) == list(range(10))
        assert "2 rows held back" in lake.connector().run("inspect", name).text
    lake.verify()
    return lake


def test_accept_publishes_what_was_held_back(held_back: Lake) -> None:
    connector = held_back.connector()
    accepted = connector.run("accept", "--stream", "accepted")
    assert (accepted.exit_code, accepted.text) == (0, "shop.accepted: accepted: 2 rows in place of 10\n"), accepted.stderr
    assert held_back.ids(("shop", "accepted")) == [100, 101]
    held_back.verify_at_rest({"accepted"})
    assert connector.run("accept", "--stream", "accepted").text == "nothing is held back\n"


def test_discard_drops_what_was_held_back(held_back: Lake) -> None:
    discarded = held_back.connector().run("discard", "--stream", "discarded")
    assert (discarded.exit_code, discarded.text) == (0, "shop.discarded: discarded: 2 rows in place of 10\n"), discarded.stderr
    assert held_back.ids(("shop", "discarded")) == list(range(10))
    held_back.verify_at_rest({"discarded"})


def test_a_source_without_states_needs_the_users_word(lake: Lake) -> None:
    connector = lake.connector(batching={"end_of_input": "completes"})
    connector.write(ALL_MODES, sent([1, 2])).expect_success()
    connector.write(ALL_MODES, sent([3, 4])).expect_success()
    assert [lake.ids(path) for path in PATHS] == [[3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    lake.verify_at_rest()


def test_a_source_in_a_pipe_may_say_itself_that_a_stream_is_complete(lake: Lake) -> None:
    ends = [complete(name) for name in ("users", "events", "orders")]
    lake.connector().write(ALL_MODES, sent([1, 2], *ends)).expect_success()
    assert [lake.ids(path) for path in PATHS] == [[1, 2]] * 3
    lake.verify_at_rest()
