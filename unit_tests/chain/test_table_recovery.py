"""A table after something went wrong: whom it fences, what it completes or takes back, which replays it recognises."""

from __future__ import annotations

import pytest

from destination_s3_spark.chain.fold import REPLAY_LIMIT
from destination_s3_spark.chain.opening import SNAPSHOT_EVERY
from destination_s3_spark.errors import Bug, Fenced, TransientError
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.commit.batch import CommitResult, TableCheckpoint
from destination_s3_spark.tables.landing.slices import Segment
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_each, name_of
from unit_tests.chain.one_table import CHAIN, FIRST, SCHEMA, SECOND, crashed, event, kinds, land, staged, synced, writer
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call


def test_the_fenced_writer_names_the_other_sync() -> None:
    store = Bucket()
    first = writer(store, sync_id=41)
    land(first, store, 0, 100)
    second = writer(store, sync_id=42)
    land(second, store, 0, 100)
    with pytest.raises(Fenced) as fenced:
        first.commit([FIRST])

    assert "shop.users" in fenced.value.message
    assert "sync id 42, started 2026-05-04T03:02:01+00:00" in fenced.value.message
    assert "two connections write to this table" in fenced.value.message.lower()
    assert fenced.value.stream == StreamId("shop", "users")
    first.abandon()
    assert second.commit([FIRST]).rows == 10
    second.close()
    assert store.uploads == {}


def test_a_new_table_that_two_syncs_seed_at_once_belongs_to_the_later_one() -> None:
    store = Bucket()
    first, second = writer(store, sync_id=1), writer(store, sync_id=2)
    first.open()
    assert second.open().epoch == 2
    with pytest.raises(Fenced, match="sync id 2"):
        first.ensure_schema(SCHEMA)


def test_after_an_error_only_abandon_is_left() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = at_each("create", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match="did not say"):
        made.commit([FIRST])
    store.hook = None
    for step in (lambda: made.commit([FIRST]), made.close, made.open, lambda: land(made, store, 100, 200)):
        with pytest.raises(Bug):
            step()
    made.abandon()

    assert kinds(store) == ["Seed", "SetDataSchema"]
    assert len(store.uploads) == 2, "a block that may still appear could name them"


def test_uploads_of_a_dead_session_are_dropped_at_open_and_listed_once() -> None:
    store = Bucket()
    land(crashed(store, FIRST), store, 100, 200)
    assert len(store.uploads) == 2
    made = writer(store)
    made.open()

    assert store.uploads == {}
    assert store.names().count("list_uploads") == 1


def test_an_unsettled_block_is_completed_by_whoever_catches_up_with_the_table() -> None:
    store = Bucket()
    synced(store)
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = at_each("complete_upload", Fate.CRASH_BEFORE)
    with pytest.raises(Crash):
        made.commit([FIRST])
    store.hook = None
    assert len(store.uploads) == 2
    again = writer(store, sync_id=2)
    state = again.catch_up()

    assert store.uploads == {}
    assert state is not None
    assert (state.settled, state.unsettled, state.opener.sync_id) == (5, None, 2)
    assert kinds(store)[-2:] == ["OpenEpoch", "OpenEpoch"], "one that fences and, once it is known what the table holds, one that begins"
    assert again.guarding


def test_uploads_that_vanish_are_taken_back_and_nothing_is_acknowledged() -> None:
    store = Bucket(completes_again=False)
    made = writer(store)
    land(made, store, 0, 100)
    store.uploads.pop("upload-2")
    with pytest.raises(TransientError, match="block 2 was taken back"):
        made.commit([FIRST])

    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "Void"]
    assert event(store, 3)["voidedSequenceNumber"] == 2
    assert not [key for key in store.objects if not key.startswith(CHAIN)]
    rolled_back = ["abort_upload", "abort_upload", "head", "head", "create", "delete"]
    assert store.names()[-10:] == ["complete_upload", "complete_upload", "head", "get", *rolled_back]


def test_a_store_that_keeps_answering_500_to_complete_is_treated_like_a_vanished_upload() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = at_each("complete_upload", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match="taken back"):
        made.commit([FIRST])

    assert kinds(store)[-1] == "Void"
    assert store.uploads == {}


def test_a_block_whose_uploads_were_completed_after_all_stands() -> None:
    """The paused writer's last completes arrive between our look and our abort; it may have acknowledged them."""
    store = Bucket(completes_again=False)
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = at_each("complete_upload", Fate.CRASH_BEFORE)
    with pytest.raises(Crash):
        made.commit([FIRST])

    def arrive_late(call: S3Call) -> Fate | None:
        if name_of(call) == "abort_upload":
            store.objects.update({upload.key: upload.parts[1].body for upload in store.uploads.values()})
            store.uploads.clear()
        return Fate.LOST_BEFORE if name_of(call) == "complete_upload" else None

    store.hook = arrive_late
    state = writer(store, sync_id=2).open()

    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "OpenEpoch", "OpenEpoch"]
    assert (state.settled, state.contents.rows, len(state.replay)) == (2, 10, 1)


def test_a_void_whose_deletes_are_not_known_to_be_done_deletes_again() -> None:
    store = Bucket(completes_again=False)
    made = writer(store)
    land(made, store, 0, 100)
    store.uploads.pop("upload-2")
    store.hook = at_each("delete", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match=r"Deleting .* did not answer in time"):
        made.commit([FIRST])
    store.hook = None
    assert len([key for key in store.objects if not key.startswith(CHAIN)]) == 1
    again = writer(store)
    again.open()

    assert not [key for key in store.objects if not key.startswith(CHAIN)]
    assert again.state is not None
    assert (again.state.contents.next_offset, again.state.settled) == (0, 3)
    assert not again.guarding, "the voided checkpoint must land again"
    land(again, store, 0, 100)
    assert again.commit([FIRST]).rows == 10


def test_a_paused_writer_whose_uploads_a_newer_one_dropped_is_fenced() -> None:
    store = Bucket(completes_again=False)
    made = writer(store)
    land(made, store, 0, 100)

    def take_over(call: S3Call) -> Fate | None:
        if name_of(call) == "complete_upload":
            store.hook = None
            store.uploads.pop("upload-1")
            writer(store, sync_id=2).open()
        return None

    store.hook = take_over
    with pytest.raises(Fenced, match="sync id 2"):
        made.commit([FIRST])

    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "OpenEpoch", "Void", "OpenEpoch"]


def test_a_replayed_checkpoint_is_dropped_and_the_next_one_lands() -> None:
    store = Bucket()
    crashed(store, FIRST, SECOND)
    made = writer(store)
    land(made, store, 0, 100)
    assert made.guarding
    assert made.commit([FIRST]) == CommitResult(None, 0, 0, 0, replayed=10)
    land(made, store, 100, 200)
    land(made, store, 200, 300)
    result = made.commit([SECOND, TableCheckpoint(300, "third")])

    assert (result.replayed, result.rows, made.guarding) == (10, 10, False)
    assert (made.written.records, made.written.replayed, made.written.commits) == (10, 20, 1)
    made.close()
    assert kinds(store).count("AddData") == 3
    assert store.uploads == {}


def test_a_replay_may_begin_anywhere_in_the_list() -> None:
    store = Bucket()
    crashed(store, FIRST, SECOND)
    made = writer(store)
    made.stage(staged(made, store, 0, 100, [Segment(100, 10, 5 * 200)]))

    assert made.commit([TableCheckpoint(100, "second")]).replayed == 10
    assert not made.guarding


@each(
    ("checkpoint", "segment", "generation"),
    [
        (TableCheckpoint(100, "other"), Segment(100, 10, 500), 0),
        (TableCheckpoint(100, None), Segment(100, 10, 500), 0),
        (TableCheckpoint(100, "first"), Segment(100, 10, 501), 0),
        (TableCheckpoint(100, "first"), Segment(100, 10, 500), 1),
    ],
)
def test_a_checkpoint_that_differs_lands(checkpoint: TableCheckpoint, segment: Segment, generation: int) -> None:
    store = Bucket()
    crashed(store, FIRST)
    made = writer(store, 1 + generation, generation)
    made.stage(staged(made, store, 0, 100, [segment]))

    assert made.commit([checkpoint]).rows == 10
    assert not made.guarding


def test_a_slice_that_is_only_partly_a_replay_lands_whole() -> None:
    store = Bucket()
    crashed(store, FIRST)
    made = writer(store)
    made.stage(staged(made, store, 0, 200, [Segment(100, 10, 500), Segment(200, 10, 3)]))
    result = made.commit([FIRST, SECOND])

    assert (result.replayed, result.rows) == (0, 20)


def test_every_unclean_session_adds_to_what_the_next_one_recognises() -> None:
    store = Bucket()
    crashed(store, FIRST)
    second = writer(store)
    land(second, store, 0, 100)
    second.commit([FIRST])
    land(second, store, 100, 200)
    second.commit([SECOND])
    third = writer(store)
    third.open()

    assert third.state is not None
    assert [checkpoint.state_hash for checkpoint in third.state.replay] == ["first", "second"]


def test_a_clean_end_makes_equal_records_new_again() -> None:
    store = Bucket()
    for _ in range(2):
        made = writer(store)
        land(made, store, 0, 100)
        assert made.commit([FIRST]).rows == 10
        made.close()


@each("hint", ["kept", "never written"])
def test_a_successful_sync_without_records_closes_what_a_dead_one_left(hint: str) -> None:
    store = Bucket()
    if hint == "kept":
        synced(store)
    crashed(store, FIRST)
    made = writer(store)
    made.close()

    assert kinds(store)[-2:] == ["OpenEpoch", "Close"]
    assert made.state is not None
    assert made.state.replay == ()


def test_more_checkpoints_than_the_list_can_hold_are_summed_up_from_the_oldest() -> None:
    store = Bucket()
    made = writer(store)
    count = REPLAY_LIMIT + 2
    ends = [10 * (number + 1) for number in range(count)]
    made.stage(staged(made, store, 0, 10 * count, [Segment(end, 1, 2) for end in ends]))
    made.commit([TableCheckpoint(end, f"state {end}") for end in ends])

    assert made.state is not None
    replay = made.state.replay
    assert len(replay) == REPLAY_LIMIT
    assert (replay[0].records, replay[0].state_hash, replay[0].multiset_hash) == (3, "state 30", f"{6:032x}")
    assert replay[1].records == 1


def test_opening_takes_the_snapshot_that_dead_sessions_never_took() -> None:
    store = Bucket()
    crashed(store, FIRST)
    for _ in range(SNAPSHOT_EVERY):
        writer(store).open()

    assert kinds(store).count("Snapshot") == 1
    made = writer(store)
    made.open()
    assert made.guarding
    assert len(made.live_files().files) == 2
