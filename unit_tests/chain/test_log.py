"""Finding a chain's head, reading it with and without the hint, and appending when the store does not answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from destination_s3_spark.chain.events import Close, OpenEpoch, Seed, SetDataSchema
from destination_s3_spark.chain.files import table_number
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.opening import SNAPSHOT_EVERY, take_snapshot_when_due
from destination_s3_spark.errors import Bug, DataError, TransientError
from destination_s3_spark.storage.object_store import CREATE_TRIES
from destination_s3_spark.storage.s3 import S3Store
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_calls, at_each, name_of
from unit_tests.chain.one_table import TABLE
from unit_tests.lake.memory_bucket import Fate

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PREFIX = TABLE.chain_prefix
SEED = Seed(TABLE.stream, TABLE.table_id, table_number(TABLE.table_id), TABLE.final_root, (), 7, 0, T0)
OPEN = OpenEpoch(8, 0, T0)


def chain(store: Bucket) -> Chain:
    return Chain(store, TABLE, lambda: T0)


def key(number: int) -> str:
    return f"{PREFIX}{number:020d}.json"


def written(store: Bucket, sessions: int = 1) -> Chain:
    """A chain of closed sessions; the hint is that of the last."""
    writer = chain(store)
    for session in range(sessions):
        writer.append(OPEN if session else SEED)
        take_snapshot_when_due(writer)
        writer.append(Close())
    writer.write_hint()
    store.forget()
    return writer


def test_a_hint_is_taken_at_its_word_for_one_call_and_checked_for_another() -> None:
    store = Bucket()
    state = written(store, sessions=3).state
    reader = chain(store)
    reader.read()
    assert reader.state == state
    assert [called for _, called in store.calls] == [PREFIX + "hint.json"]
    reader.catch_up()

    assert reader.state == state
    assert [called for _, called in store.calls] == [PREFIX + "hint.json", key(6)]


def test_without_a_hint_nothing_is_known_until_the_chain_itself_is_read() -> None:
    store = Bucket()
    state = written(store).state
    del store.objects[PREFIX + "hint.json"]
    reader = chain(store)
    reader.read()
    assert reader.state is None

    reader.catch_up()
    assert reader.state == state


def test_a_stale_hint_is_read_on_from() -> None:
    store = Bucket()
    writer = written(store, sessions=2)
    writer.append(OPEN)
    writer.append(SetDataSchema({"schemaId": 0}))
    store.forget()
    reader = chain(store)
    reader.read()
    reader.catch_up()

    assert reader.state == writer.state
    assert key(0) not in {called for _, called in store.calls}


def test_a_stale_hint_is_not_appended_to_where_the_store_may_overwrite() -> None:
    store = Bucket()
    writer = written(store, sessions=2)
    writer.append(OPEN)
    writer.append(Close())
    store.memory.versioning = "Enabled"
    late = chain(store)
    late.read()

    assert late.state == writer.state


@each("knew", [True, False])
@each("has_hint", [True, False])
@each("died", [0, 2])
def test_a_block_that_the_store_overwrote_is_brought_back(has_hint: bool, knew: bool, died: int) -> None:
    store = Bucket()
    writer = written(store, sessions=2)
    writer.append(OPEN)
    writer.append(SetDataSchema({"schemaId": 0}))
    if not has_hint:
        del store.objects[PREFIX + "hint.json"]
    before = dict(store.objects)
    late = chain(store)
    late.read()
    store.memory.versioning = "Enabled"
    store.memory.has_conditions = lambda _: False
    for number in range(died):
        S3Store(store.settings).create(key(4 if has_hint else 0), b"%d" % number)
    if knew:
        store.get(key(1))
    assert store.may_overwrite == knew
    with pytest.raises(BlockTaken):
        late.append(OPEN if has_hint else SEED)
    assert store.objects == before

    late.catch_up()
    assert late.state == writer.state


def test_whoever_appends_to_a_stale_hint_is_told_of_the_block_that_is_there() -> None:
    store = Bucket()
    writer = written(store, sessions=2)
    late = chain(store)
    late.read()
    writer.append(OPEN)
    writer.append(Close())
    with pytest.raises(BlockTaken):
        late.append(OPEN)
    late.catch_up()
    late.append(OPEN)

    assert (late.head.epoch, late.head.sequence_number) == (4, 6)


@each("damage", [b"", b"{", b"[]", b"\xff", b'{"sequenceNumber":1,"blockHash":"","state":{},"checksum":""}'])
def test_a_damaged_hint_is_ignored(damage: bytes) -> None:
    store = Bucket()
    state = written(store, sessions=2).state
    store.objects[PREFIX + "hint.json"] = damage
    reader = chain(store)
    reader.read()

    assert reader.state == state


def test_a_hint_with_a_changed_state_is_ignored() -> None:
    store = Bucket()
    state = written(store, sessions=2).state
    hint = json.loads(store.objects[PREFIX + "hint.json"])
    hint["known"]["state"]["epoch"] = 9
    store.objects[PREFIX + "hint.json"] = json.dumps(hint, sort_keys=True, separators=(",", ":")).encode()
    reader = chain(store)
    reader.read()

    assert reader.state == state


def test_a_hint_that_disagrees_with_the_next_block_is_ignored() -> None:
    store, other = Bucket(), Bucket()
    written(other)
    written(store).append(OPEN)
    store.objects[PREFIX + "hint.json"] = other.objects[PREFIX + "hint.json"]
    reader = chain(store)
    reader.read()
    reader.catch_up()
    truth = chain(store)
    truth.catch_up()

    assert reader.state == truth.state
    assert truth.head.epoch == 2


def test_a_long_chain_without_a_hint_is_opened_with_few_calls() -> None:
    store = Bucket()
    writer = written(store, sessions=2500)
    assert writer.head.sequence_number > 5000
    reader = chain(store)
    reader.catch_up()

    assert reader.state == writer.state
    probes = 2 * 13
    assert len(store.calls) <= probes + SNAPSHOT_EVERY + 2, len(store.calls)


def test_an_old_hint_of_a_long_chain_costs_no_more_than_none() -> None:
    store = Bucket()
    writer = written(store, sessions=3)
    for _ in range(400):
        writer.append(OPEN)
        take_snapshot_when_due(writer)
        writer.append(Close())
    store.forget()
    reader = chain(store)
    reader.read()
    reader.catch_up()

    assert reader.state == writer.state
    assert len(store.calls) <= 1 + 2 * 10 + SNAPSHOT_EVERY + 2


def test_a_missing_block_is_damage_and_says_what_to_do() -> None:
    store = Bucket()
    written(store, sessions=4)
    del store.objects[key(5)], store.objects[PREFIX + "hint.json"]
    reader = chain(store)
    with pytest.raises(DataError, match=r"shop\.users.*damaged: block 5 is missing.*Restore"):
        reader.catch_up()


@each(("body", "what"), [(b"{", "block 1 cannot be read"), (None, "prevBlockHash")])
def test_a_changed_block_is_damage(body: bytes | None, what: str) -> None:
    store = Bucket()
    written(store, sessions=2)
    store.objects[key(1)] = store.objects[key(1)].replace(b'"epoch":1', b'"epoch":1 ') if body is None else body
    del store.objects[PREFIX + "hint.json"]
    with pytest.raises(DataError, match=what):
        chain(store).catch_up()


def test_system_time_never_goes_backwards_though_the_clock_does() -> None:
    store = Bucket()
    times = iter([T0, T0 - timedelta(days=1), T0 + timedelta(seconds=1)])
    writer = Chain(store, TABLE, lambda: next(times))
    for event in (SEED, SetDataSchema({"schemaId": 0}), Close()):
        writer.append(event)

    assert [json.loads(store.objects[key(number)])["systemTime"] for number in range(3)] == [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
    ]


def test_an_invalid_block_is_never_written() -> None:
    store = Bucket()
    writer = written(store)
    with pytest.raises(Bug, match="after Close only OpenEpoch may follow"):
        writer.append(Close())

    assert store.calls == []


@each("fault", [Fate.LOST_BEFORE, Fate.LOST_AFTER])
def test_a_create_without_an_answer_is_settled_by_reading_the_block(fault: Fate) -> None:
    store = Bucket()
    faults = [fault]
    store.hook = lambda call: faults.pop() if name_of(call) == "create" and faults else None
    writer = chain(store)
    writer.append(SEED)

    assert writer.head.sequence_number == 0
    assert store.names() == (["create", "get"] if fault is Fate.LOST_AFTER else ["create", "get", "create"])


def test_an_own_earlier_try_that_landed_late_counts_as_ours() -> None:
    """The first try times out and is not there when we look; it lands before the second, which is refused."""
    late: list[bytes] = []

    class Late(Bucket):
        def create(self, key: str, body: bytes) -> None:
            if late:
                self.objects.setdefault(key, late[0])
            late.append(body)
            super().create(key, body)

    store = Late()
    store.hook = at_calls({1: Fate.LOST_BEFORE})
    writer = chain(store)
    writer.append(SEED)

    assert late[0] == late[1] == store.objects[key(0)]
    assert writer.head.epoch == 1


def test_another_writers_block_is_told_from_ours() -> None:
    store = Bucket()
    written(store)
    first, second = chain(store), chain(store)
    for writer in (first, second):
        writer.read()
    first.append(OPEN)
    with pytest.raises(BlockTaken) as taken:
        second.append(OPEN)

    assert taken.value.block.event == OPEN
    assert first.state != second.state


def test_a_store_that_never_answers_is_a_transient_error() -> None:
    store = Bucket()
    store.hook = at_each("create", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match="Nothing is lost"):
        chain(store).append(SEED)

    assert store.names().count("create") == CREATE_TRIES
