"""STATE messages: each comes back as it was received, in order, with a count, and only when the records before it are durable."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from destination_s3_spark.errors import SyncError, TransientError
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import LARGE, Lake
from unit_tests.lake.messages import JsonObject, catalog, cursor_of, line
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, stream, users

BIG = 123456789012345678901234567890
TWO_STREAMS = catalog(stream("users"), stream("orders"))
TOTALS = ("committedRecordsCount", "committedBytesCount")


def without_counts(state_line: bytes) -> bytes:
    """The line without the fields that the destination adds, and without blanks outside of the blob's own text."""
    message = json.loads(state_line)
    message["state"].pop("destinationStats", None)
    for counted in (message["state"], *message["state"].get("global", {}).get("stream_states", [])):
        for name in TOTALS:
            counted.pop(name)
    return line(message)


def totals(counted: JsonObject) -> tuple[int, int]:
    """Records and bytes."""
    records, size = (counted[name] for name in TOTALS)
    return records, size


def size(*lines: bytes) -> int:
    """The bytes of record lines, without their ends."""
    return sum(len(one.rstrip(b"\n")) for one in lines)


def counts(outcome: Outcome) -> list[float]:
    return [state["destinationStats"]["recordCount"] for state in outcome.states]


@pytest.fixture(scope="module")
def odd_states() -> list[bytes]:
    """STATE lines whose every byte must survive: escapes, order, blanks, numbers no double can hold, fields nobody knows."""
    descriptor = '{"name":"users","namespace":"shop"}'
    return [
        f'{{"type":"STATE","state":{{"type":"STREAM","stream":{{"stream_descriptor":{descriptor},"stream_state":{blob}}}{more}}}}}\n'.encode()
        for blob, more in (
            (f'{{"cursor":{BIG},"z":1,"a":2}}', ',"id":7'),
            ('{"text":"\\u00e9 \\/ é","number":1.10,"exponent":1E+2}', f',"id":{BIG},"partition_id":"p-1","checkpoint_id":null'),
            ('{ "blanks" : [ 1 , 2 ] }', ',"sourceStats":{"recordCount":2.0},"future":{"nested":[true]}'),
            ("null", ""),
        )
    ]


@pytest.fixture(scope="module")
def stream_states(make_lake: Callable[[], Lake], odd_states: list[bytes]) -> Outcome:
    """Two streams in turn: users send 2 records before each odd STATE, orders one before each of theirs."""
    lake = make_lake()
    messages: list[bytes] = []
    for number, odd in enumerate(odd_states):
        messages += [*users([2 * number, 2 * number + 1]), *users([number], "orders"), odd, state(number, "orders")]
    outcome = lake.connector().write(TWO_STREAMS, [*messages, complete("users"), complete("orders")]).expect_success()
    lake.verify_at_rest()
    assert lake.ids(USERS) == list(range(2 * len(odd_states)))
    return outcome


def test_a_stream_state_comes_back_byte_for_byte(stream_states: Outcome, odd_states: list[bytes]) -> None:
    answers = [answer for answer in stream_states.state_lines if b'"name":"users"' in answer]
    added = rb',"destinationStats":\{"recordCount":2\.0\},"committedRecordsCount":\d+,"committedBytesCount":\d+'
    assert [re.sub(added, b"", answer) for answer in answers] == odd_states


def test_each_state_carries_what_was_committed_of_its_stream_so_far(stream_states: Outcome, odd_states: list[bytes]) -> None:
    sent = [users([2 * number, 2 * number + 1]) for number in range(len(odd_states))]
    expected = [(2 * number, size(*(one for lines in sent[:number] for one in lines))) for number in range(1, len(odd_states) + 1)]
    found = [state for state in stream_states.states if state["stream"]["stream_descriptor"]["name"] == "users"]
    assert [totals(state) for state in found] == expected
    assert [state["committedRecordsCount"] for state in stream_states.states if state not in found] == [1, 2, 3, 4]


def test_states_of_one_stream_keep_their_order(stream_states: Outcome, odd_states: list[bytes]) -> None:
    orders = [cursor_of(answer) for answer in stream_states.state_lines if b'"name":"orders"' in answer]
    assert orders == list(range(len(odd_states)))


def test_each_state_counts_the_records_of_its_own_checkpoint_as_a_double(stream_states: Outcome, odd_states: list[bytes]) -> None:
    by_stream: dict[str, list[float]] = {name: [] for name in ("users", "orders")}
    for found in stream_states.states:
        by_stream[found["stream"]["stream_descriptor"]["name"]].append(found["destinationStats"]["recordCount"])
    assert by_stream == {"users": [2.0] * len(odd_states), "orders": [1.0] * len(odd_states)}
    assert all(b'"recordCount":2.0}' in answer or b'"recordCount":1.0}' in answer for answer in stream_states.state_lines)


def test_a_global_state_comes_back_once_with_the_total_of_all_streams(lake: Lake) -> None:
    shared = {
        "shared_state": {"lsn": BIG},
        "stream_states": [{"stream_descriptor": {"name": "users", "namespace": "shop"}, "stream_state": {}}],
    }
    sent = [line({"type": "STATE", "state": {"type": "GLOBAL", "id": number, "global": shared}}) for number in (1, 2)]
    messages = [*users(range(3)), *users(range(2), "orders"), sent[0], *users([3]), sent[1], complete("users"), complete("orders")]

    outcome = lake.connector().write(TWO_STREAMS, messages).expect_success()

    assert [without_counts(answer) for answer in outcome.state_lines] == sent
    assert counts(outcome) == [5.0, 1.0]
    own = [(3, size(*users(range(3)))), (4, size(*users(range(4))))]
    assert [totals(state["global"]["stream_states"][0]) for state in outcome.states] == own
    others = size(*users(range(2), "orders"))
    assert [totals(state) for state in outcome.states] == [(records + 2, bytes_ + others) for records, bytes_ in own]
    assert (lake.ids(USERS), lake.ids(("shop", "orders"))) == ([0, 1, 2, 3], [0, 1])
    lake.verify_at_rest()


def test_a_legacy_state_comes_back_as_it_came(lake: Lake) -> None:
    sent = [
        line({"type": "STATE", "state": {"data": {"users": {"cursor": BIG}}}}),
        line({"type": "STATE", "state": {"type": "LEGACY", "data": {}}}),
    ]
    messages = [*users(range(3)), sent[0], *users([3, 4]), sent[1], complete("users"), complete("orders")]

    outcome = lake.connector().write(TWO_STREAMS, messages).expect_success()

    assert [without_counts(answer) for answer in outcome.state_lines] == sent
    assert counts(outcome) == [3.0, 2.0]
    assert [totals(state) for state in outcome.states] == [(3, size(*users(range(3)))), (5, size(*users(range(5))))]
    assert lake.ids(USERS) == [0, 1, 2, 3, 4]


@dataclass(frozen=True, slots=True)
class Idle:
    """A sync of a source that leaves without a status: how long each STATE took, and how the sync ended."""

    lake: Lake
    waits: list[float]
    error: SyncError


@pytest.fixture(scope="module")
def idle_source(make_lake: Callable[[], Lake]) -> Idle:
    """A source that sends a checkpoint, falls silent until its STATE is back, and in the end leaves without a status."""
    lake, waits = make_lake(), []
    lake.limits = replace(LARGE, age_s=0.2)

    def blocks() -> Iterator[bytes]:
        for number in range(3):
            sent = time.monotonic()
            yield record({"id": number}) + state(number)
            yield from lake.silence(number + 1)
            waits.append(time.monotonic() - sent)
        yield record({"id": 99})

    with pytest.raises(SyncError) as raised:
        lake.sync(catalog(stream()), blocks())
    return Idle(lake, waits, raised.value)


def test_states_come_out_while_stdin_is_open_and_idle(idle_source: Idle) -> None:
    assert idle_source.lake.cursors() == [0, 1, 2]
    assert max(idle_source.waits[1:]) < 15, f"a batch may be 0.2 s old, and its STATE took {idle_source.waits}"


def test_an_input_that_ends_without_a_status_is_a_transient_failure(idle_source: Idle) -> None:
    assert isinstance(idle_source.error, TransientError)
    assert "shop.users" in idle_source.error.message


def test_records_behind_the_last_state_of_an_incomplete_stream_are_not_kept(idle_source: Idle) -> None:
    lake = idle_source.lake
    assert lake.ids() == [0, 1, 2]
    lake.verify()
    assert lake.bucket.open_uploads() == []


def test_nothing_but_airbyte_messages_is_on_stdout(stream_states: Outcome) -> None:
    assert {message["type"] for message in stream_states.messages} <= {"STATE", "LOG", "TRACE"}
