"""One table in one sync: what it costs, whom it fences, what it takes back, what it recognises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from fake_store import Completes, Crash, Fault, FakeStore

from destination_s3_spark.chain.files import DataFile, FileKind
from destination_s3_spark.chain.fold import REPLAY_LIMIT
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import SNAPSHOT_EVERY, Session, Table
from destination_s3_spark.chain.state import StreamName
from destination_s3_spark.chain.strays import StrayUploads
from destination_s3_spark.errors import Bug, Fenced, TransientError
from destination_s3_spark.tables.batch import TableCheckpoint
from destination_s3_spark.tables.slices import Segment, StagedSlice
from destination_s3_spark.tables.writer import CommitResult, TableWriter

TABLE = Table(StreamName("shop", "users"), "users", "lake/airbyte_internal/users/", "lake/users/")
CHAIN = TABLE.chain_prefix
SCHEMA = {"schemaId": 0, "fields": []}
STARTED = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
FIRST = TableCheckpoint(100, "first")
SECOND = TableCheckpoint(200, "second")


def writer(store: FakeStore, sync_id: int = 1, generation_id: int = 0) -> TableWriter:
    made = TableWriter(store, TABLE, Session(sync_id, generation_id, STARTED), StrayUploads(store, "lake/"))
    made.read()
    return made


def staged(
    into: TableWriter, store: FakeStore, start: int, end: int, segments: Sequence[Segment] | None = None, kinds: Sequence[FileKind] = tuple(FileKind)
) -> StagedSlice:
    """A slice of (end - start) / 10 records, landed into one file per kind."""
    into.open()
    into.ensure_schema(SCHEMA)
    rows = (end - start) // 10
    files = tuple(DataFile(kind, store.stage(f"lake/{kind.value}/f-{into.next_token()}.parquet", b"x" * rows), rows) for kind in kinds)
    return StagedSlice(start, end, 0, files, tuple(segments or [Segment(end, rows, 5 * end)]), {"NULLED": 1})


def land(into: TableWriter, store: FakeStore, start: int, end: int) -> None:
    into.stage(staged(into, store, start, end))


def event(store: FakeStore, number: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.objects[f"{CHAIN}{number:020d}.json"])["event"]
    return found


def kinds(store: FakeStore) -> list[object]:
    numbers = sorted(key for key in store.objects if key.startswith(CHAIN) and "hint" not in key)
    return [event(store, number)["kind"] for number in range(len(numbers))]


def synced(store: FakeStore, sync_id: int = 1) -> None:
    """A small sync from start to end."""
    made = writer(store, sync_id)
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash=f"sync {sync_id}")])
    made.close()


def crashed(store: FakeStore, *checkpoints: TableCheckpoint) -> TableWriter:
    """A sync that committed and never closed."""
    made = writer(store)
    start = 0
    for checkpoint in checkpoints:
        land(made, store, start, checkpoint.end)
        made.commit([checkpoint])
        start = checkpoint.end
    return made


def test_a_small_sync_of_a_new_table_costs_twelve_calls() -> None:
    store = FakeStore()
    synced(store)

    staging = ["create_upload", "upload_part"] * 2
    assert store.names() == ["get", "create", "create", *staging, "create", "complete_upload", "complete_upload", "create", "put"]
    assert len(store.calls) == 12
    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "Close"]


def test_a_small_sync_of_an_existing_table_costs_twelve_calls() -> None:
    store = FakeStore()
    synced(store)
    store.calls.clear()
    synced(store, sync_id=2)

    staging = ["create_upload", "upload_part"] * 2
    assert store.names() == ["get", "get", "create", *staging, "create", "complete_upload", "complete_upload", "create", "put"]
    assert len(store.calls) == 12
    assert kinds(store)[4:] == ["OpenEpoch", "AddData", "Close"]


def test_a_table_that_never_had_records_costs_two_calls_and_writes_nothing() -> None:
    store = FakeStore()
    writer(store).close()

    assert store.names() == ["get", "get"]
    assert store.objects == {}


def test_a_clean_table_without_records_is_left_alone() -> None:
    store = FakeStore()
    synced(store)
    store.calls.clear()
    writer(store).close()

    assert store.names() == ["get", "get"]


def test_the_data_block_says_everything_about_the_commit() -> None:
    store = FakeStore()
    made = writer(store, sync_id=7, generation_id=3)
    made.stage(staged(made, store, 0, 150, [Segment(100, 10, 2**128 - 1), Segment(150, 5, 4)]))
    made.stage(staged(made, store, 150, 200))
    result = made.commit([FIRST, SECOND])

    added = event(store, 2)
    files = added.pop("files")
    assert added == {
        "kind": "AddData",
        "schemaId": 0,
        "syncId": 7,
        "generationId": 3,
        "prevOffset": None,
        "offsetInterval": {"start": 0, "end": 19},
        "checkpoints": [
            {"stateHash": "first", "records": 10, "multisetHash": "f" * 32, "generation": 3},
            {"stateHash": "second", "records": 10, "multisetHash": f"{1004:032x}", "generation": 3},
        ],
        "changes": {"NULLED": 2},
    }
    assert isinstance(files, list)
    assert [(file["kind"], file["rows"], file["bytes"], file["uploadId"]) for file in files] == [
        ("raw", 15, 15, "upload-1"),
        ("final", 15, 15, "upload-2"),
        ("raw", 5, 5, "upload-3"),
        ("final", 5, 5, "upload-4"),
    ]
    assert (result.sequence_number, result.rows, result.files, result.bytes, result.replayed) == (2, 20, 4, 40, 0)


def test_offsets_go_on_from_sync_to_sync() -> None:
    store = FakeStore()
    synced(store)
    synced(store, sync_id=2)

    assert event(store, 5)["prevOffset"] == 9
    assert event(store, 5)["offsetInterval"] == {"start": 10, "end": 19}


def test_a_slice_that_reaches_into_an_unfinished_checkpoint_waits() -> None:
    store = FakeStore()
    made = writer(store)
    land(made, store, 0, 100)
    made.stage(staged(made, store, 100, 250, [Segment(200, 10, 1), Segment(250, 5, 2)]))
    assert made.cut_ends == {100, 250}
    assert made.commit([FIRST]).rows == 10
    with pytest.raises(Bug, match="would cut a staged slice"):
        made.commit([SECOND])


def test_tokens_name_table_epoch_and_file_and_never_repeat() -> None:
    store = FakeStore()
    synced(store)
    made = writer(store)
    made.open()
    tokens = [made.next_token() for _ in range(3)]

    assert [(len(token), token[10:18], token[18:]) for token in tokens] == [(26, "00000002", f"{number:08d}") for number in (1, 2, 3)]
    assert len({token[:10] for token in tokens}) == 1
    assert int(tokens[0][:10]) == event(store, 0)["tableNumber"]


def test_the_fenced_writer_names_the_other_sync() -> None:
    store = FakeStore()
    first = writer(store, sync_id=41)
    land(first, store, 0, 100)
    second = writer(store, sync_id=42)
    land(second, store, 0, 100)
    with pytest.raises(Fenced) as fenced:
        first.commit([FIRST])

    assert "shop.users" in fenced.value.message
    assert "sync id 42, started 2026-05-04T03:02:01+00:00" in fenced.value.message
    assert "two connections write to this table" in fenced.value.message.lower()
    assert fenced.value.stream == ("shop", "users")
    first.abandon()
    assert second.commit([FIRST]).rows == 10
    second.close()
    assert store.uploads == {}


def test_a_new_table_that_two_syncs_seed_at_once_belongs_to_the_later_one() -> None:
    store = FakeStore()
    first, second = writer(store, sync_id=1), writer(store, sync_id=2)
    first.open()
    assert second.open().epoch == 2
    with pytest.raises(Fenced, match="sync id 2"):
        first.ensure_schema(SCHEMA)


def test_after_an_error_only_abandon_is_left() -> None:
    store = FakeStore()
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = lambda _number, name: Fault.TIMEOUT_BEFORE if name == "create" else None
    with pytest.raises(TransientError, match="did not say"):
        made.commit([FIRST])
    store.hook = None
    for step in (lambda: made.commit([FIRST]), made.close, made.open, lambda: land(made, store, 100, 200)):
        with pytest.raises(Bug):
            step()
    made.abandon()

    assert kinds(store) == ["Seed", "SetDataSchema"]
    assert len(store.uploads) == 2, "a block that may still appear could name them"


def test_the_schema_is_written_once_and_again_when_it_changes() -> None:
    store = FakeStore()
    made = writer(store)
    for payload in (SCHEMA, dict(SCHEMA), {"schemaId": 1, "fields": ({"name": "a"},)}, {"schemaId": 1, "fields": [{"name": "a"}]}):
        made.ensure_schema(payload)

    assert kinds(store) == ["Seed", "SetDataSchema", "SetDataSchema"]
    with pytest.raises(Bug, match=r"1\.5"):
        made.ensure_schema({"schemaId": 2, "weight": 1.5})


@pytest.mark.parametrize(
    ("change", "what"),
    [({"start": 10}, "after 0"), ({"schema_id": 4}, "schema 4"), ({"segments": (Segment(100, 9, 1),)}, "9 records became 10 rows")],
)
def test_a_slice_that_does_not_fit_is_refused(change: dict[str, object], what: str) -> None:
    store = FakeStore()
    made = writer(store)
    with pytest.raises(Bug, match=what):
        made.stage(replace(staged(made, store, 0, 100), **change))  # type: ignore[arg-type]


def test_close_drops_what_is_staged_and_not_committed() -> None:
    store = FakeStore()
    made = writer(store)
    land(made, store, 0, 100)
    land(made, store, 100, 200)
    made.commit([FIRST])
    made.close()

    assert store.uploads == {}
    assert made.state is not None
    assert made.state.counters.rows == 10


def test_uploads_of_a_dead_task_attempt_are_dropped_at_close() -> None:
    store = FakeStore()
    made = writer(store)
    land(made, store, 0, 100)
    store.stage(f"lake/raw/f-{made.next_token()}.parquet", b"nobody knows me")
    store.stage("lake/raw/f-00000000010000000100000001.parquet", b"another table's")
    store.stage("lake/raw/foreign.parquet", b"another tool's")
    made.commit([FIRST])
    made.close(StrayUploads(store, "lake/"))

    assert [key for key, _ in store.uploads.values()] == ["lake/raw/f-00000000010000000100000001.parquet", "lake/raw/foreign.parquet"]


def test_uploads_of_a_dead_session_are_dropped_at_open_and_listed_once() -> None:
    store = FakeStore()
    land(crashed(store, FIRST), store, 100, 200)
    assert len(store.uploads) == 2
    made = writer(store)
    made.open()

    assert store.uploads == {}
    assert store.names().count("list_uploads") == 1


def test_an_unsettled_block_is_completed_as_soon_as_the_table_is_read() -> None:
    store = FakeStore()
    synced(store)
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = lambda _number, name: Fault.CRASH_BEFORE if name == "complete_upload" else None
    with pytest.raises(Crash):
        made.commit([FIRST])
    store.hook = None
    assert len(store.uploads) == 2
    again = writer(store, sync_id=2)

    assert store.uploads == {}
    assert again.state is not None
    assert (again.state.epoch, again.state.settled, again.state.unsettled) == (3, 5, None)
    assert again.guarding


def test_uploads_that_vanish_are_taken_back_and_nothing_is_acknowledged() -> None:
    store = FakeStore(Completes.ONCE)
    made = writer(store)
    land(made, store, 0, 100)
    store.uploads.pop("upload-2")
    with pytest.raises(TransientError, match="block 2 was taken back"):
        made.commit([FIRST])

    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "Void"]
    assert event(store, 3)["voidedSequenceNumber"] == 2
    assert not [key for key in store.objects if not key.startswith(CHAIN)]
    order = [name for name, _ in store.calls[-9:]]
    assert order == ["complete_upload", "complete_upload", "head", "get", "abort_upload", "abort_upload", "head", "create", "delete"]


def test_a_store_that_keeps_answering_500_to_complete_is_treated_like_a_vanished_upload() -> None:
    store = FakeStore()
    made = writer(store)
    land(made, store, 0, 100)
    store.hook = lambda _number, name: Fault.TIMEOUT_BEFORE if name == "complete_upload" else None
    with pytest.raises(TransientError, match="taken back"):
        made.commit([FIRST])

    assert kinds(store)[-1] == "Void"
    assert store.uploads == {}


def test_a_void_whose_deletes_are_not_known_to_be_done_deletes_again() -> None:
    store = FakeStore(Completes.ONCE)
    made = writer(store)
    land(made, store, 0, 100)
    store.uploads.pop("upload-2")
    store.hook = lambda _number, name: Fault.TIMEOUT_BEFORE if name == "delete" else None
    with pytest.raises(TransientError, match="timeout: delete"):
        made.commit([FIRST])
    store.hook = None
    assert len([key for key in store.objects if not key.startswith(CHAIN)]) == 1
    again = writer(store)
    again.open()

    assert not [key for key in store.objects if not key.startswith(CHAIN)]
    assert again.state is not None
    assert (again.state.next_offset, again.state.settled) == (0, 3)
    assert not again.guarding, "the voided checkpoint must land again"
    land(again, store, 0, 100)
    assert again.commit([FIRST]).rows == 10


def test_a_paused_writer_whose_uploads_a_newer_one_dropped_is_fenced() -> None:
    store = FakeStore(Completes.ONCE)
    made = writer(store)
    land(made, store, 0, 100)

    def take_over(_number: int, name: str) -> Fault | None:
        if name == "complete_upload":
            store.hook = None
            store.uploads.pop("upload-1")
            writer(store, sync_id=2).open()
        return None

    store.hook = take_over
    with pytest.raises(Fenced, match="sync id 2"):
        made.commit([FIRST])

    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "OpenEpoch", "Void"]


def test_a_replayed_checkpoint_is_dropped_and_the_next_one_lands() -> None:
    store = FakeStore()
    crashed(store, FIRST, SECOND)
    made = writer(store)
    land(made, store, 0, 100)
    assert made.guarding
    assert made.commit([FIRST]) == CommitResult(None, 0, 0, 0, replayed=10)
    land(made, store, 100, 200)
    land(made, store, 200, 300)
    result = made.commit([SECOND, TableCheckpoint(300, "third")])

    assert (result.replayed, result.rows, made.guarding) == (10, 10, False)
    made.close()
    assert kinds(store).count("AddData") == 3
    assert store.uploads == {}


def test_a_replay_may_begin_anywhere_in_the_list() -> None:
    store = FakeStore()
    crashed(store, FIRST, SECOND)
    made = writer(store)
    made.stage(staged(made, store, 0, 100, [Segment(100, 10, 5 * 200)]))

    assert made.commit([TableCheckpoint(100, "second")]).replayed == 10
    assert not made.guarding


@pytest.mark.parametrize(
    ("checkpoint", "segment", "generation"),
    [
        (TableCheckpoint(100, "other"), Segment(100, 10, 500), 0),
        (TableCheckpoint(100, None), Segment(100, 10, 500), 0),
        (TableCheckpoint(100, "first"), Segment(100, 10, 501), 0),
        (TableCheckpoint(100, "first"), Segment(100, 10, 500), 1),
    ],
    ids=["other state", "a tail", "other records", "other generation"],
)
def test_a_checkpoint_that_differs_lands(checkpoint: TableCheckpoint, segment: Segment, generation: int) -> None:
    store = FakeStore()
    crashed(store, FIRST)
    made = writer(store, generation_id=generation)
    made.stage(staged(made, store, 0, 100, [segment]))

    assert made.commit([checkpoint]).rows == 10
    assert not made.guarding


def test_a_slice_that_is_only_partly_a_replay_lands_whole() -> None:
    store = FakeStore()
    crashed(store, FIRST)
    made = writer(store)
    made.stage(staged(made, store, 0, 200, [Segment(100, 10, 500), Segment(200, 10, 3)]))
    result = made.commit([FIRST, SECOND])

    assert (result.replayed, result.rows) == (0, 20)


def test_every_unclean_session_adds_to_what_the_next_one_recognises() -> None:
    store = FakeStore()
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
    store = FakeStore()
    for _ in range(2):
        made = writer(store)
        land(made, store, 0, 100)
        assert made.commit([FIRST]).rows == 10
        made.close()


@pytest.mark.parametrize("hint", ["kept", "never written"])
def test_a_successful_sync_without_records_closes_what_a_dead_one_left(hint: str) -> None:
    store = FakeStore()
    if hint == "kept":
        synced(store)
    crashed(store, FIRST)
    made = writer(store)
    made.close()

    assert kinds(store)[-2:] == ["OpenEpoch", "Close"]
    assert made.state is not None
    assert made.state.replay == ()


def test_more_checkpoints_than_the_list_can_hold_are_summed_up_from_the_oldest() -> None:
    store = FakeStore()
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


def test_a_snapshot_is_taken_when_the_last_one_is_far_and_carries_the_files() -> None:
    store = FakeStore()
    syncs = SNAPSHOT_EVERY // 3 + 1
    for number in range(syncs):
        synced(store, sync_id=number)
    assert kinds(store).count("Snapshot") == 1
    del store.objects[CHAIN + "hint.json"]
    store.calls.clear()
    made = writer(store, sync_id=99)
    state = made.open()

    assert state.snapshot == kinds(store).index("Snapshot")
    assert len(made.live_files().files) == 2 * syncs
    assert len(store.calls) < 30
    full = Chain(store, CHAIN, TABLE.stream)
    full.catch_up()
    assert full.state == state


def test_opening_takes_the_snapshot_that_dead_sessions_never_took() -> None:
    store = FakeStore()
    crashed(store, FIRST)
    for _ in range(SNAPSHOT_EVERY):
        writer(store).open()

    assert kinds(store).count("Snapshot") == 1
    made = writer(store)
    made.open()
    assert made.guarding
    assert len(made.live_files().files) == 2


def test_adopted_files_are_asked_for_once_when_the_table_is_seeded() -> None:
    store = FakeStore()
    asked: list[int] = []

    def adopt() -> list[str]:
        asked.append(1)
        return ["lake/users/old.parquet"]

    for _ in range(2):
        made = TableWriter(store, replace(TABLE, adopt=adopt), Session(1, 0, STARTED), StrayUploads(store, "lake/"))
        made.read()
        made.open()
        assert made.live_files().adopted == ("lake/users/old.parquet",)
        made.close()

    assert len(asked) == 1
