"""Completion of streams without statuses: what the input proves, and what becomes of tables when it proves too little."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.protocol.catalog import DestinationSyncMode, Stream, parse_catalog
from destination_s3_spark.protocol.reader import read_envelope
from destination_s3_spark.protocol.state import parse_state
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.sync.checkpoints import Completion, is_clear, proved_by
from unit_tests.cases import each
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, line, status, stream
from unit_tests.places import table_of

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
END = {"__ab_full_refresh_sync_complete": True}
PROVED, UNPROVEN, UNFINISHED = Completion.PROVED, Completion.UNPROVEN, Completion.UNFINISHED
COMPLETES: dict[str, Any] = {"batching": {"end_of_input": "completes"}}


def catalog(*names: str, mode: str = "overwrite", resumable: bool = False) -> JsonObject:
    """A catalog as a custom connector gets it."""
    nothing: dict[str, Any] = {"generation": None, "minimum_generation": None, "sync_id": None}
    entries = [stream(name, schema=SCHEMA, mode=mode, key="id", sync_mode="full_refresh", **nothing) for name in names]
    for entry in entries:
        entry["stream"]["is_resumable"] = resumable
    return messages.catalog(*entries)


def configured(*names: str, resumable: bool = False) -> tuple[Stream, ...]:
    return parse_catalog(json.dumps(catalog(*names, resumable=resumable)).encode()).streams


def records(ids: Iterable[int], name: str = "users") -> bytes:
    return messages.records(({"id": number} for number in ids), name)


def state(blob: Any, name: str = "users") -> bytes:
    return line({"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": {"name": name}, "stream_state": blob}}})


def global_state(entries: dict[str, Any], shared: Any = None) -> bytes:
    states = [{"stream_descriptor": {"name": name}, "stream_state": blob} for name, blob in entries.items()]
    return line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": states}}})


def legacy_state(blob: Any) -> bytes:
    return line({"type": "STATE", "state": {"data": blob}})


def proof(sent: bytes, *, count: int, resumable: bool = False) -> Completion:
    message = parse_state(sent.rstrip(b"\n"), read_envelope(sent.rstrip(b"\n")).body, {StreamId(None, "users"): 0})
    return proved_by(message, 0, configured("users", resumable=resumable)[0], count)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path)


@each(
    ("sent", "count", "resumable", "expected"),
    [
        (state({}), 3, False, PROVED),  # the platform sends it after the source's exit code 0
        (state(None), 3, False, PROVED),
        (state({}), 3, True, UNPROVEN),
        (state(None), 3, True, UNPROVEN),
        (state(None), 0, True, PROVED),  # a Clear
        (state(END), 3, True, PROVED),
        (state({"__ab_no_cursor_state_message": True}), 0, False, PROVED),
        (state({**END, "more": 1}), 3, True, PROVED),
        (state({"__ab_full_refresh_sync_complete": False}), 3, False, UNPROVEN),
        (state({"states": [{"partition": {}, "cursor": END}]}), 3, True, UNPROVEN),  # another parent may follow
        (state({"cursor": 7}), 3, False, UNPROVEN),
        (state({"cursor": 7}), 0, False, UNPROVEN),
        (state([]), 3, False, UNPROVEN),
        (state("text"), 3, False, UNPROVEN),
        (global_state({"users": None}), 0, False, PROVED),  # a Clear
        (global_state({"users": None}, {"lsn": 1}), 0, True, PROVED),
        (global_state({"users": None}), 3, False, UNPROVEN),
        (global_state({"users": {}}), 3, False, UNPROVEN),
        (global_state({"users": END}, {"lsn": 1}), 3, False, PROVED),
        (global_state({"other": END}), 3, False, UNPROVEN),
        (global_state({"other": None}), 0, False, UNPROVEN),  # the source of `other` may have died before the first record of `users`
        (global_state({}, {"lsn": 1}), 0, False, UNPROVEN),
        (legacy_state({}), 3, False, PROVED),
        (legacy_state({"users": 1}), 3, False, UNPROVEN),
    ],
)
def test_what_a_state_after_the_last_record_proves(sent: bytes, count: int, resumable: bool, expected: Completion) -> None:
    assert proof(sent, count=count, resumable=resumable) is expected


def test_without_a_state_a_stream_is_unfinished() -> None:
    assert proved_by(None, 0, configured("users")[0], 0) is UNFINISHED


@pytest.mark.parametrize(
    "died",
    [
        [],
        [records(range(100, 107))],
        [records(range(100, 107)), state({"page": 1}), records([107])],
        [state({}), records(range(100, 107))],
        [records(range(100, 107)), state({}, "other")],
        [status("INCOMPLETE"), state({})],
    ],
    ids=["nothing", "no state", "behind a state", "only before", "another stream's", "incomplete"],
)
def test_a_source_that_died_replaces_nothing(lake: Lake, died: Sequence[bytes]) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    raw = raw_rows(lake)
    with pytest.raises(
        TransientError, match=r"did not finish.*1 of 1 stream sent no STATE after its last record .*users.*What its last STATE"
    ):
        lake.sync(catalog("users"), died)
    assert lake.ids_in_folder() == list(range(10))
    assert raw_rows(lake) >= raw
    lake.sync(catalog("users"), [records(range(200, 205)), state({})])
    assert lake.ids_in_folder() == list(range(200, 205))
    assert lake.memory.uploads == {}


def test_what_the_last_state_covers_is_committed_and_acknowledged_and_the_rest_dropped(lake: Lake) -> None:
    with pytest.raises(TransientError, match="did not finish"):
        lake.sync(
            catalog("users", "orders", mode="append"), [records(range(3)), state({"n": 3}), records(range(3, 18)), state({}, "orders")]
        )
    assert lake.ids_in_folder() == [0, 1, 2]
    assert [count for _, count in lake.acknowledged()] == [3.0, 0.0]


def test_streams_that_finished_are_replaced_beside_one_that_did_not(lake: Lake) -> None:
    both = catalog("users", "orders")
    lake.sync(both, [records(range(3)), records(range(3), "orders"), state({}), state({}, "orders")])
    with pytest.raises(TransientError, match=r"1 of 2 streams .*\(orders\)"):
        lake.sync(both, [records([7]), state({}), records([8], "orders")])
    assert (lake.ids_in_folder(), lake.ids_in_folder("orders")) == ([7], [0, 1, 2])


def test_an_empty_good_sync_empties_the_table(lake: Lake) -> None:
    for sent in ([records(range(3)), state({})], [state({})]):
        lake.sync(catalog("users"), sent)
    assert lake.ids_in_folder() == []


@pytest.mark.parametrize("cleared", [state(None), global_state({"users": None})], ids=["STREAM", "GLOBAL"])
def test_a_clear_empties_a_table_of_a_resumable_stream(lake: Lake, cleared: bytes) -> None:
    lake.sync(catalog("users", resumable=True), [records(range(3)), state(END)])
    lake.sync(catalog("users", resumable=True), [cleared])
    assert lake.ids_in_folder() == []


@pytest.mark.parametrize(
    ("cleared", "sent", "kept"),
    [
        (["p_users", "p_orders"], global_state({"users": None, "orders": None}), []),
        (["p_users", "p_orders"], global_state({"users": None, "orders": None, "people": {"lsn": 1}}, {"lsn": 1}), []),
        (["p_users"], global_state({"users": None, "orders": {"lsn": 1}}, {"lsn": 1}), [0, 1, 2]),
    ],
    ids=["all streams", "all of the catalog", "one"],
)
def test_a_clear_empties_tables_whose_streams_a_global_state_names_otherwise(
    lake: Lake, cleared: list[str], sent: bytes, kept: list[int]
) -> None:
    both = catalog("p_users", "p_orders", resumable=True)
    ended = [state(END, "p_users"), state(END, "p_orders")]
    lake.sync(both, [records(range(3), "p_users"), records(range(3), "p_orders"), *ended])
    lake.sync(catalog(*cleared, resumable=True), [sent])
    assert (lake.ids_in_folder("p_users"), lake.ids_in_folder("p_orders")) == ([], kept)


@each(
    ("names", "sent", "count", "changed", "expected"),
    [
        (["p_users"], global_state({"users": None}), 0, {}, True),
        (["p_users"], global_state({"users": None}), 1, {}, False),
        (["p_users"], global_state({"users": None}), 0, {"sync_mode": "incremental"}, False),
        (["p_users"], global_state({"users": None}), 0, {"destination_sync_mode": DestinationSyncMode.APPEND}, False),
        (["p_users"], global_state({"users": {}}), 0, {}, False),
        (["p_users"], global_state({}), 0, {}, False),
        (["p_users", "p_orders"], global_state({"users": None, "orders": {}}), 0, {}, False),
        (["p_users", "users"], global_state({"users": None, "orders": None}), 0, {}, False),
        (["p_users"], global_state({"users": None}, {"lsn": 1}), 0, {}, False),  # a source that begins, not a Clear, has a position
        (["p_users"], state(None), 0, {}, False),
        (["p_users"], legacy_state(None), 0, {}, False),
    ],
)
def test_when_a_global_state_that_names_no_stream_is_that_of_a_clear(
    names: list[str], sent: bytes, count: int, changed: dict[str, Any], expected: bool
) -> None:
    streams = configured(*names)
    message = parse_state(sent.rstrip(b"\n"), read_envelope(sent.rstrip(b"\n")).body, {one.id: at for at, one in enumerate(streams)})
    assert is_clear(message, [replace(streams[0], **changed), *streams[1:]], count) is expected


def test_a_source_that_died_before_its_first_record_clears_nothing(lake: Lake) -> None:
    lake.sync(catalog("p_users"), [records(range(3), "p_users"), state({}, "p_users")])
    with pytest.raises(ConfigError, match=r"p_users \(0 rows in place of 3\)"):
        lake.sync(catalog("p_users"), [global_state({"users": None}, {"lsn": 1})])
    assert lake.ids_in_folder("p_users") == [0, 1, 2]


@pytest.mark.parametrize("sent", [[records(range(100, 108)), state({"page": 8})], [records(range(100, 120)), global_state({})]])
def test_an_unproven_replacement_of_enough_rows_is_published(lake: Lake, sent: Sequence[bytes]) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    lake.sync(catalog("users"), sent)
    assert min(lake.ids_in_folder()) == 100


@pytest.mark.parametrize(("first", "count"), [(100, 7), (0, 0)])
def test_an_unproven_replacement_of_too_few_rows_is_held_back(lake: Lake, first: int, count: int) -> None:
    hold_back(lake, range(first, first + count))
    assert lake.ids_in_folder() == list(range(10))
    pending = head(lake).contents.pending
    assert pending is not None
    assert pending.held_back
    assert head(lake).closed
    assert len(lake.acknowledged()) == 2


def test_the_percentage_is_the_users(lake: Lake) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    lake.options = {"tables": {"unproven_replacement": 30}}
    lake.sync(catalog("users"), [records(range(100, 103)), state({"page": 1})])
    assert lake.ids_in_folder() == [100, 101, 102]
    lake.options = {"tables": {"unproven_replacement": 0}}
    lake.sync(catalog("users"), [state({"page": 1})])
    assert lake.ids_in_folder() == []


def test_the_next_complete_sync_supersedes_what_was_held_back(lake: Lake) -> None:
    hold_back(lake, range(100, 107))
    lake.sync(catalog("users"), [records(range(200, 203)), state({})])
    assert lake.ids_in_folder() == [200, 201, 202]
    assert head(lake).contents.pending is None
    assert decide(lake, "discard") == 0


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("kind", ["Parquet", "JSONL"])
def test_a_sync_that_adds_rows_drops_what_was_held_back(lake: Lake, mode: str, kind: str) -> None:
    lake.format = {"format_type": kind}
    hold_back(lake, range(100, 107))
    lake.sync(catalog("users", mode=mode), [records([11]), state({})])
    contents = head(lake).contents
    assert (contents.pending, contents.rows, contents.came_in) == (None, 11, 11)
    assert {kind: held.rows for kind, held in contents.held.items() if held.rows and kind != "state"} == {"final": 11, "raw": 11}


def test_what_was_held_back_cannot_be_accepted_once_another_sync_has_died(lake: Lake) -> None:
    hold_back(lake, range(100, 107))
    with pytest.raises(TransientError):
        lake.sync(catalog("users"), [records(range(200, 220)), state({"page": 1}), records([220])])
    assert decide(lake, "accept") == 0
    assert lake.ids_in_folder() == list(range(10))


def test_rows_that_were_given_up_do_not_keep_a_table_from_being_deduplicated(lake: Lake) -> None:
    lake.format = {"format_type": "JSONL"}
    lake.sync(catalog("users"), [records(range(10)), state({})])
    for first in (20, 30):
        with pytest.raises(TransientError):
            lake.sync(catalog("users"), [records(range(first, first + 3)), state({"page": 1}), records([first + 3])])
    lake.sync(catalog("users", mode="append_dedup"), [records([11]), state({})])
    assert head(lake).contents.rows == 14  # with those of the sync that died last


def test_discard_drops_what_was_held_back_and_nothing_else(lake: Lake) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    before = all_keys(lake)
    with pytest.raises(ConfigError):
        lake.sync(catalog("users"), [records(range(100, 107)), state({"page": 7})])
    assert decide(lake, "discard") == 0
    assert head(lake).contents.pending is None
    assert lake.ids_in_folder() == list(range(10))
    assert {key for key in all_keys(lake) if "/chain/" not in key} == {key for key in before if "/chain/" not in key}
    lake.sync(catalog("users", mode="append"), [records([11]), state({})])
    assert lake.ids_in_folder() == [*range(10), 11]


def test_an_unreadable_chain_does_not_keep_other_tables_from_a_decision(lake: Lake) -> None:
    lake.sync(catalog("accounts"), [records(range(10), "accounts"), state({}, "accounts")])
    hold_back(lake, range(100, 107))
    store = lake.store
    for key in sorted(info.key for info in store.list(table_of("accounts").chain_prefix))[-2:]:  # the newest block, and the hint
        store.put(key, b"damaged")

    decided = lake.connector().run("discard")
    assert decided.exit_code == 1
    assert head(lake).contents.pending is None
    said = dict(line.split(": ", 1) for line in decided.text.splitlines())
    assert said["accounts"].startswith("failed. ")
    assert said["users"].startswith("discarded: ")


def test_a_repair_leaves_held_back_rows_to_the_operator(lake: Lake) -> None:
    hold_back(lake, range(100, 107))
    assert decide(lake, "repair") == 0
    pending = head(lake).contents.pending
    assert pending is not None
    assert pending.held_back


def test_the_end_of_the_input_completes_a_stream_if_the_user_says_so(lake: Lake) -> None:
    lake.options = COMPLETES
    lake.sync(catalog("users", mode="append"), [records(range(3)), state({"n": 1}), records(range(3, 5))])
    assert lake.ids_in_folder() == [0, 1, 2, 3, 4]
    lake.sync(catalog("users"), [records(range(20, 25))])
    assert lake.ids_in_folder() == [20, 21, 22, 23, 24]


def test_even_then_a_table_is_not_emptied(lake: Lake) -> None:
    lake.options = COMPLETES
    lake.sync(catalog("users"), [records(range(3))])
    with pytest.raises(ConfigError, match=r"users \(0 rows in place of 3\)"):
        lake.sync(catalog("users"), [])
    assert lake.ids_in_folder() == [0, 1, 2]


def test_a_status_of_the_source_itself_proves_its_end(lake: Lake) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    lake.sync(catalog("users"), [records([100]), complete()])
    assert lake.ids_in_folder() == [100]


def hold_back(lake: Lake, ids: range) -> None:
    lake.sync(catalog("users"), [records(range(10)), state({})])
    with pytest.raises(ConfigError, match=rf"users \({len(ids)} rows in place of 10\)"):
        lake.sync(catalog("users"), [records(ids), state({"page": 7})])


def decide(lake: Lake, command: str) -> int:
    return lake.connector().run(command).exit_code


def head(lake: Lake) -> Any:
    chain = Chain(lake.store, table_of("users"))
    chain.read()
    chain.catch_up()
    return chain.head


def all_keys(lake: Lake) -> set[str]:
    return {*lake.memory.objects}


def raw_rows(lake: Lake) -> set[str]:
    return {key for key in all_keys(lake) if "/raw/" in key}
