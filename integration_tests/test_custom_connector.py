"""Syncs as Airbyte runs a custom connector: no ids in the catalog, no stream statuses, and an end of input that proves nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from integration_tests.connector import SCRIPT
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
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


def command(lake: ProcessLake, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = lake.directory / "command.json"
    config.write_text(json.dumps(lake.connector().config()))
    asked = [str(SCRIPT), *arguments, "--config", str(config)]
    return subprocess.run(asked, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.turns
def test_a_source_that_died_costs_no_row_in_any_mode_and_its_next_attempt_doubles_none(moto_lake: ProcessLake) -> None:
    connector = moto_lake.connector()
    connector.write(ALL_MODES, sent(range(10), *ENDS)).expect_success()
    assert [moto_lake.ids(path) for path in PATHS] == [list(range(10))] * 3

    died = connector.write(ALL_MODES, sent([100, 101], state(1, "events"), *users([102], "events")))
    error = died.expect_failure("transient_error").error_message
    assert "did not finish" in error
    assert "batching.end_of_input" in error
    assert len(died.state_lines) == 1
    assert [moto_lake.ids(path) for path in PATHS] == [list(range(10)), [*range(10), 100, 101], list(range(10))]
    moto_lake.verify()

    connector.write(ALL_MODES, sent([200, 201], *ENDS)).expect_success()
    assert [moto_lake.ids(path) for path in PATHS] == [[200, 201], [*range(10), 100, 101, 200, 201], [*range(10), 200, 201]]
    moto_lake.verify_at_rest()

    # Nothing at all is no empty source.
    connector.write(ALL_MODES, []).expect_failure("transient_error")
    assert moto_lake.ids(PATHS[0]) == [200, 201]
    connector.write(ALL_MODES, ENDS).expect_success()
    assert [moto_lake.ids(path) for path in PATHS] == [[], [*range(10), 100, 101, 200, 201], [*range(10), 200, 201]]
    moto_lake.verify_at_rest()


@pytest.fixture(scope="module")
def held_back(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> ProcessLake:
    """Two tables of ten users, and two of each that a source sent before a checkpoint that may be its last."""
    lake, names = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("held-back")), ("accepted", "discarded")
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
        assert "2 rows held back" in command(lake, "inspect", name).stdout
    lake.verify()
    return lake


def test_accept_publishes_what_was_held_back(held_back: ProcessLake) -> None:
    accepted = command(held_back, "accept", "--stream", "accepted")
    assert (accepted.returncode, accepted.stdout) == (0, "shop.accepted: accepted: 2 rows in place of 10\n"), accepted.stderr
    assert held_back.ids(("shop", "accepted")) == [100, 101]
    held_back.verify_at_rest({"accepted"})
    assert command(held_back, "accept", "--stream", "accepted").stdout == "nothing is held back\n"


def test_discard_drops_what_was_held_back(held_back: ProcessLake) -> None:
    discarded = command(held_back, "discard", "--stream", "discarded")
    assert (discarded.returncode, discarded.stdout) == (0, "shop.discarded: discarded: 2 rows in place of 10\n"), discarded.stderr
    assert held_back.ids(("shop", "discarded")) == list(range(10))
    held_back.verify_at_rest({"discarded"})


@pytest.mark.turns
def test_a_source_without_states_needs_the_users_word(moto_lake: ProcessLake) -> None:
    connector = moto_lake.connector(batching={"end_of_input": "completes"})
    connector.write(ALL_MODES, sent([1, 2])).expect_success()
    connector.write(ALL_MODES, sent([3, 4])).expect_success()
    assert [moto_lake.ids(path) for path in PATHS] == [[3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    moto_lake.verify_at_rest()


@pytest.mark.turns
def test_a_source_in_a_pipe_may_say_itself_that_a_stream_is_complete(moto_lake: ProcessLake) -> None:
    ends = [complete(name) for name in ("users", "events", "orders")]
    moto_lake.connector().write(ALL_MODES, sent([1, 2], *ends)).expect_success()
    assert [moto_lake.ids(path) for path in PATHS] == [[1, 2]] * 3
    moto_lake.verify_at_rest()
