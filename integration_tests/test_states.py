"""STATE messages: each comes back as it was received, in order, with a count, and only when the records before it are durable."""

from __future__ import annotations

import json
import re
import time

import pytest

from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import JsonObject, catalog, cursor_of, line
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, stream, users

BIG = 123456789012345678901234567890
TWO_STREAMS = catalog(stream("users"), stream("orders"))
SECOND_BATCH_AGE = {"max_batch_age_s": 1}
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
def stream_states(moto: S3Server, tmp_path_factory: pytest.TempPathFactory, odd_states: list[bytes]) -> Outcome:
    """Two streams in turn: users send 2 records before each odd STATE, orders one before each of theirs."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("states"))
    messages: list[bytes] = []
    for number, odd in enumerate(odd_states):
        messages += [*users([2 * number, 2 * number + 1]), *users([number], "orders"), odd, state(number, "orders")]
    outcome = lake.connector().write(TWO_STREAMS, [*messages, complete("users"), complete("orders")]).expect_success()
    lake.verify_at_rest()
    assert lake.ids() == list(range(2 * len(odd_states)))
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


def test_a_global_state_comes_back_once_with_the_total_of_all_streams(moto_lake: ProcessLake) -> None:
    shared = {
        "shared_state": {"lsn": BIG},
        "stream_states": [{"stream_descriptor": {"name": "users", "namespace": "shop"}, "stream_state": {}}],
    }
    sent = [line({"type": "STATE", "state": {"type": "GLOBAL", "id": number, "global": shared}}) for number in (1, 2)]
    messages = [*users(range(3)), *users(range(2), "orders"), sent[0], *users([3]), sent[1], complete("users"), complete("orders")]

    outcome = moto_lake.connector().write(TWO_STREAMS, messages).expect_success()

    assert [without_counts(answer) for answer in outcome.state_lines] == sent
    assert counts(outcome) == [5.0, 1.0]
    own = [(3, size(*users(range(3)))), (4, size(*users(range(4))))]
    assert [totals(state["global"]["stream_states"][0]) for state in outcome.states] == own
    others = size(*users(range(2), "orders"))
    assert [totals(state) for state in outcome.states] == [(records + 2, bytes_ + others) for records, bytes_ in own]
    assert (moto_lake.ids(), moto_lake.ids(("shop", "orders"))) == ([0, 1, 2, 3], [0, 1])
    moto_lake.verify_at_rest()


def test_a_legacy_state_comes_back_as_it_came(moto_lake: ProcessLake) -> None:
    sent = [
        line({"type": "STATE", "state": {"data": {"users": {"cursor": BIG}}}}),
        line({"type": "STATE", "state": {"type": "LEGACY", "data": {}}}),
    ]
    messages = [*users(range(3)), sent[0], *users([3, 4]), sent[1], complete("users"), complete("orders")]

    outcome = moto_lake.connector().write(TWO_STREAMS, messages).expect_success()

    assert [without_counts(answer) for answer in outcome.state_lines] == sent
    assert counts(outcome) == [3.0, 2.0]
    assert [totals(state) for state in outcome.states] == [(3, size(*users(range(3)))), (5, size(*users(range(5))))]
    assert moto_lake.ids() == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def idle_source(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], Outcome, ProcessLake]:
    """A source that sends a checkpoint, falls silent with stdin open until its STATE is back, and in the end leaves without a status."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("idle"))
    waits = []
    with lake.connector(batching=SECOND_BATCH_AGE).start(catalog(stream())) as sync:
        for number in range(3):
            sent = time.monotonic()
            sync.send(record({"id": number}), state(number)).wait_for_states(number + 1)
            waits.append(time.monotonic() - sent)
        outcome = sync.send(record({"id": 99})).end_input().finish()
    return waits, outcome, lake


def test_states_come_out_while_stdin_is_open_and_idle(idle_source: tuple[list[float], Outcome, ProcessLake]) -> None:
    waits, outcome, _ = idle_source
    assert [cursor_of(answer) for answer in outcome.state_lines] == [0, 1, 2]
    assert max(waits[1:]) < 15, f"a batch may be 1 s old, and its STATE took {waits}"


def test_an_input_that_ends_without_a_status_is_a_transient_failure(idle_source: tuple[list[float], Outcome, ProcessLake]) -> None:
    _, outcome, _ = idle_source
    assert "shop.users" in outcome.expect_failure("transient_error").error_message


def test_records_behind_the_last_state_of_an_incomplete_stream_are_not_kept(idle_source: tuple[list[float], Outcome, ProcessLake]) -> None:
    _, _, lake = idle_source
    assert lake.ids() == [0, 1, 2]
    lake.verify()
    assert lake.bucket.open_uploads() == []


def test_nothing_but_airbyte_messages_is_on_stdout(stream_states: Outcome) -> None:
    assert {message["type"] for message in stream_states.messages} <= {"STATE", "LOG", "TRACE"}
