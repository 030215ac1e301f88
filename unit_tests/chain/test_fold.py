"""The rules of a chain, for blocks that are read and blocks that are about to be written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.blocks import block_hash, encode
from destination_s3_spark.chain.events import (
    AddData,
    Close,
    Event,
    MergeData,
    OffsetInterval,
    OpenEpoch,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import InvalidChain, Rule, fold
from destination_s3_spark.chain.state import Checkpoint, Counters, TableState
from unit_tests.cases import each
from unit_tests.chain.built_chain import OPEN, SCHEMA, SEED, T0, Builder, add, chain, file, live_files, merge


def forgets(rows: int, earlier: int, pending: int = 0) -> MergeData:
    event = merge([file(FileKind.FINAL, "left", 1)])
    return replace(event, rows_forgotten=rows, earlier_rows_forgotten=earlier, pending_rows_forgotten=pending)


REFUSED = [
    ("the first block is no Seed", chain(), OPEN, {}, Rule.FIRST_BLOCK_MUST_BE_SEED),
    ("data before the Seed", chain(), add(0, 9), {}, Rule.FIRST_BLOCK_MUST_BE_SEED),
    ("a second Seed", chain(SEED), SEED, {}, Rule.SEED_ONLY_FIRST),
    ("a Seed with number 1", chain(), SEED, {"sequence_number": 1}, Rule.SEQUENCE),
    ("a Seed with something before it", chain(), SEED, {"prev_block_hash": "f1220"}, Rule.HASH),
    ("a Seed of epoch 2", chain(), SEED, {"epoch": 2}, Rule.EPOCH),
    ("a Seed that has settled data", chain(), SEED, {"settled": 0}, Rule.SETTLED),
    ("the number of the head again", chain(SEED), SCHEMA, {"sequence_number": 0}, Rule.SEQUENCE),
    ("a number left out", chain(SEED), SCHEMA, {"sequence_number": 2}, Rule.SEQUENCE),
    ("an unknown previous hash", chain(SEED), SCHEMA, {"prev_block_hash": "f1220" + "0" * 64}, Rule.HASH),
    ("no previous hash", chain(SEED), SCHEMA, {"prev_block_hash": None}, Rule.HASH),
    ("time goes backwards", chain(SEED), SCHEMA, {"system_time": T0 - timedelta(microseconds=1)}, Rule.SYSTEM_TIME),
    ("OpenEpoch that keeps the epoch", chain(SEED), OPEN, {"epoch": 1}, Rule.EPOCH),
    ("OpenEpoch that skips one", chain(SEED), OPEN, {"epoch": 3}, Rule.EPOCH),
    ("another event that moves the epoch", chain(SEED), SCHEMA, {"epoch": 2}, Rule.EPOCH),
    ("more rows forgotten than landed", chain(SEED, SCHEMA, add(0, 9)), forgets(11, 0), {}, Rule.FORGOTTEN),
    ("more earlier rows forgotten than there are", chain(SEED, SCHEMA, add(0, 9)), forgets(2, 1), {}, Rule.FORGOTTEN),
    ("more pending rows forgotten than there are", chain(SEED, SCHEMA, add(0, 9)), forgets(0, 0, 1), {}, Rule.FORGOTTEN),
    ("data after Close", chain(SEED, SCHEMA, Close()), add(0, 9), {}, Rule.CLOSED),
    ("Close twice", chain(SEED, Close()), Close(), {}, Rule.CLOSED),
    ("data without a schema", chain(SEED), add(0, 9), {}, Rule.SCHEMA_FIRST),
    ("data of another schema", chain(SEED, SCHEMA), add(0, 9, schema_id=1), {}, Rule.SCHEMA_FIRST),
    ("the same schema again", chain(SEED, SCHEMA), SCHEMA, {}, Rule.NO_OP),
    ("a schema with the id of the last", chain(SEED, SCHEMA), SetDataSchema({"schemaId": 0, "fields": [1]}), {}, Rule.SCHEMA_ID),
    ("offsets do not start at 0", chain(SEED, SCHEMA), add(1, 9), {}, Rule.OFFSETS),
    ("prevOffset is not the last end", chain(SEED, SCHEMA, add(0, 9)), add(10, 19, prev=8), {}, Rule.OFFSETS),
    ("a gap between offsets", chain(SEED, SCHEMA, add(0, 9)), add(11, 19, prev=9), {}, Rule.OFFSETS),
    ("offsets overlap", chain(SEED, SCHEMA, add(0, 9)), add(9, 19, prev=9), {}, Rule.OFFSETS),
    ("the interval ends before it starts", chain(SEED, SCHEMA, add(0, 9)), add(10, 9, rows=1), {}, Rule.OFFSETS),
    ("files hold other rows than the interval", chain(SEED, SCHEMA), add(0, 9, rows=9), {}, Rule.OFFSETS),
    ("no files", chain(SEED, SCHEMA), AddData(0, 7, 0, None, OffsetInterval(0, 0), (), ()), {}, Rule.EMPTY_EVENT),
    ("data while other data is unsettled", chain(SEED, SCHEMA, add(0, 9)), add(10, 19), {"settled": None}, Rule.ONE_UNSETTLED),
    ("Close while data is unsettled", chain(SEED, SCHEMA, add(0, 9)), Close(), {"settled": None}, Rule.ONE_UNSETTLED),
    ("data while a Void is unsettled", chain(SEED, SCHEMA, add(0, 9), Void(2)), add(0, 9), {"settled": None}, Rule.ONE_UNSETTLED),
    ("settled names a block without data", chain(SEED, SCHEMA), OPEN, {"settled": 1}, Rule.SETTLED),
    ("settled is forgotten", chain(SEED, SCHEMA, add(0, 9), OPEN), OPEN, {"settled": None}, Rule.SETTLED),
    ("settled goes back", chain(SEED, SCHEMA, add(0, 9), add(10, 19), OPEN), OPEN, {"settled": 2}, Rule.SETTLED),
    ("Void of settled data", chain(SEED, SCHEMA, add(0, 9)), Void(2), {"settled": 2}, Rule.VOID),
    ("Void of something else", chain(SEED, SCHEMA, add(0, 9)), Void(1), {}, Rule.VOID),
    ("Void of a Void", chain(SEED, SCHEMA, add(0, 9), Void(2)), Void(3), {"settled": None}, Rule.VOID),
    ("a Snapshot of another state", chain(SEED, SCHEMA), Snapshot(chain(SEED).state, (), ()), {}, Rule.SNAPSHOT),  # type: ignore[arg-type]
]


@each("case, before, event, envelope, rule", REFUSED)
def test_a_block_that_breaks_a_rule_is_refused(case: str, before: Builder, event: Event, envelope: dict[str, object], rule: Rule) -> None:
    with pytest.raises(InvalidChain) as refused:
        before.add(before.next(event, **envelope))

    assert refused.value.rule is rule


@each(
    "events",
    [
        (SEED, Close(), OPEN),
        (SEED, SCHEMA, add(0, 9), add(10, 19)),
        (SEED, SCHEMA, add(0, 0), SetDataSchema({"schemaId": 1}), add(1, 1, schema_id=1)),
        (SEED, OPEN, OPEN, OPEN),
        (SEED, UnknownEvent("SetLicense"), SCHEMA, add(0, 9)),
        (SEED, SCHEMA, add(0, 9), Void(2), add(0, 4), Close()),
    ],
)
def test_valid_chains_fold(events: tuple[Event, ...]) -> None:
    state = chain(*events).state

    assert state is not None
    assert state.sequence_number == len(events) - 1


def test_equal_system_times_are_fine() -> None:
    assert chain(SEED, SCHEMA).state.system_time == T0  # type: ignore[union-attr]


def test_the_state_tells_what_a_writer_needs() -> None:
    state = chain(SEED, SCHEMA, add(0, 9), OpenEpoch(9, 3, T0)).state

    assert state is not None
    assert (state.epoch, state.contents.generation, state.opener.sync_id, state.closed) == (2, 3, 9, False)
    assert (state.contents.next_offset, state.settled, state.last_data, state.unsettled) == (10, 2, 2, None)
    assert state.contents.held == {"raw": Counters(10, 1, 100), "final": Counters(10, 1, 100)}
    assert (state.contents.rows, state.contents.landed, state.contents.adopted, state.contents.empty) == (10, 10, 1, False)
    assert [checkpoint.state_hash for checkpoint in state.replay] == ["state-9"]


def test_data_is_unsettled_until_a_later_block_says_otherwise() -> None:
    built = chain(SEED, SCHEMA, add(0, 9))
    unsettled = built.add(built.next(OPEN, settled=None)).unsettled
    assert unsettled is not None
    assert (unsettled.sequence_number, [file.key for file in unsettled.files]) == (2, ["raw-0", "final-0"])

    assert built.add(built.next(OPEN)).unsettled is None


def test_void_takes_everything_of_its_block_back() -> None:
    built = chain(SEED, SCHEMA, add(0, 9), add(10, 19))
    before = chain(SEED, SCHEMA, add(0, 9)).state
    after = built.append(Void(3)).state

    assert before is not None
    assert after is not None
    assert (after.contents, after.replay) == (before.contents, before.replay)
    assert after.unsettled is not None
    assert after.unsettled.voided
    assert [file.key for file in live_files(built.blocks).files] == ["raw-0", "final-0"]


def test_close_forgets_the_replay_list_and_other_sessions_add_to_it() -> None:
    built = chain(SEED, SCHEMA, add(0, 0), OPEN, add(1, 1))
    assert [checkpoint.state_hash for checkpoint in built.state.replay] == ["state-0", "state-1"]  # type: ignore[union-attr]

    assert built.append(Close()).state.replay == ()  # type: ignore[union-attr]


def test_the_replay_list_is_bounded_by_its_newest_checkpoints() -> None:
    many = tuple(Checkpoint(f"state-{number}", 1, "00", 0) for number in range(10_001))
    files = (FileEntry(FileKind.FINAL, "f", 10_001, 1, "u", ("e",)),)
    state = chain(SEED, SCHEMA, AddData(0, 7, 0, None, OffsetInterval(0, 10_000), files, many)).state

    assert state is not None
    assert (len(state.replay), state.replay[0], state.replay[-1]) == (10_000, many[1], many[-1])


def test_reading_may_start_at_a_snapshot() -> None:
    built = chain(SEED, SCHEMA, add(0, 9), OPEN)
    live = live_files(built.blocks)
    built.append(Snapshot(built.state, live.adopted, live.files), add(10, 19), Close())  # type: ignore[arg-type]
    snapshot = built.blocks[4]
    state: TableState | None = fold(snapshot.event.state, snapshot, block_hash(encode(snapshot)))  # type: ignore[union-attr]
    for block in built.blocks[5:]:
        state = fold(state, block, block_hash(encode(block)))

    assert state == built.state
    assert live_files(built.blocks[4:]) == live_files(built.blocks)
    assert live_files(built.blocks).adopted == ("adopted.parquet",)
    assert [file.key for file in live_files(built.blocks).files] == ["raw-0", "final-0", "raw-10", "final-10"]


def test_forgotten_rows_landed_no_more() -> None:
    opened = OpenEpoch(8, 9, T0)
    contents = chain(SEED, SCHEMA, add(0, 9), opened, add(10, 19, prev=9), forgets(5, 3)).head.contents
    assert (contents.landed, contents.earlier_rows, contents.current_rows, contents.next_offset) == (15, 7, 8, 20)
