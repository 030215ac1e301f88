"""One table in one sync: what it costs, what its blocks say, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import SNAPSHOT_EVERY, Session
from destination_s3_spark.chain.settle import complete
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.decoding.changes import MOST_CHANGED_FIELDS, ChangedField
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.tables.commit.batch import Batch
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import CHAIN, FIRST, SCHEMA, SECOND, STARTED, TABLE, event, kinds, land, staged, synced, writer


def test_a_small_sync_of_a_new_table_costs_twelve_calls() -> None:
    store = Bucket()
    synced(store)

    staging = ["create_upload", "upload_part"] * 2
    assert store.names() == ["get", "create", "create", *staging, "create", "complete_upload", "complete_upload", "create", "put"]
    assert len(store.calls) == 12
    assert kinds(store) == ["Seed", "SetDataSchema", "AddData", "Close"]


def test_a_small_sync_of_an_existing_table_costs_eleven_calls() -> None:
    store = Bucket()
    synced(store)
    store.forget()
    synced(store, sync_id=2)

    staging = ["create_upload", "upload_part"] * 2
    assert store.names() == ["get", "create", *staging, "create", "complete_upload", "complete_upload", "create", "put"]
    assert len(store.calls) == 11
    assert kinds(store)[4:] == ["OpenEpoch", "AddData", "Close"]


def test_the_symlink_manifest_costs_one_call_more() -> None:
    store = Bucket()
    synced(store, publishers=[SymlinkManifest("bucket")])
    assert len(store.calls) == 13, "a new table"
    store.forget()
    synced(store, sync_id=2, publishers=[SymlinkManifest("bucket")])
    assert len(store.calls) == 12, "an existing table"

    assert store.names()[-3:] == ["replace", "create", "put"]
    (manifest,) = (key for key in store.objects if key.endswith("/manifest"))
    assert len(store.objects[manifest].splitlines()) == 2


def test_looking_for_files_to_adopt_costs_one_call_more_and_only_for_a_new_table() -> None:
    store = Bucket()
    for calls in (14, 12):
        store.forget()
        table = replace(TABLE, adopt=lambda: [info.key for info in store.list("lake/users/old/")])
        publishers = [SymlinkManifest("bucket")]
        made = TableWriter(Chain(store, table), Session(1, 0, STARTED), OrphanUploads(store, "lake/"), publishers=publishers)
        made.chain.read()
        land(made, store, 0, 100)
        made.commit([FIRST])
        made.close()

        assert len(store.calls) == calls


def test_a_table_that_never_had_records_costs_two_calls_and_writes_nothing() -> None:
    store = Bucket()
    writer(store).close()

    assert store.names() == ["get", "get"]
    assert store.objects == {}


def test_a_clean_table_without_records_is_left_alone() -> None:
    store = Bucket()
    synced(store)
    store.forget()
    writer(store).close()

    assert store.names() == ["get", "get"]


def test_the_data_block_says_everything_about_the_commit() -> None:
    store = Bucket()
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
            {"stateHash": "first", "records": 10, "multisetHash": "f" * 32, "generation": 3, "syncId": 7},
            {"stateHash": "second", "records": 10, "multisetHash": f"{1004:032x}", "generation": 3, "syncId": 7},
        ],
        "changedValues": [{"field": "id", "change": "NULLED", "reason": "WHY", "values": 2}],
        "recordsBarred": 0,
        "snapshotFrom": None,
    }
    assert isinstance(files, list)
    assert [(file["kind"], file["rows"], file["bytes"], file["uploadId"]) for file in files] == [
        ("raw", 15, 15, "upload-1"),
        ("final", 15, 15, "upload-2"),
        ("raw", 5, 5, "upload-3"),
        ("final", 5, 5, "upload-4"),
    ]
    assert (result.sequence_number, result.rows, result.files, result.bytes, result.replayed) == (2, 20, 4, 40, 0)


def test_of_very_many_changed_fields_the_most_frequent_are_named() -> None:
    counts = {ChangedField(f"field {number}", "NULLED", "WHY"): number for number in range(1, MOST_CHANGED_FIELDS + 4)}
    batch = Batch((StagedSlice(0, 1, 0, (), (), {}, counts),), (), ())

    found = list(batch.changed_values().items())

    assert [(changed.field, values) for changed, values in found[:2]] == [("field 103", 103), ("field 102", 102)]
    assert (len(found), found[-1]) == (MOST_CHANGED_FIELDS + 1, (ChangedField(None, "NULLED", "WHY"), 1 + 2 + 3))


def test_offsets_go_on_from_sync_to_sync() -> None:
    store = Bucket()
    synced(store)
    synced(store, sync_id=2)

    assert event(store, 5)["prevOffset"] == 9
    assert event(store, 5)["offsetInterval"] == {"start": 10, "end": 19}


def test_a_slice_that_reaches_into_an_unfinished_checkpoint_waits() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    made.stage(staged(made, store, 100, 250, [Segment(200, 10, 1), Segment(250, 5, 2)]))
    assert made.cut_ends == {100, 250}
    assert made.commit([FIRST]).rows == 10
    with pytest.raises(Bug, match="would cut a staged slice"):
        made.commit([SECOND])


def test_tokens_name_table_epoch_and_file_and_never_repeat() -> None:
    store = Bucket()
    synced(store)
    made = writer(store)
    made.open()
    tokens = [made.next_token() for _ in range(3)]

    assert [(len(token), token[10:18], token[18:]) for token in tokens] == [(26, "00000002", f"{number:08d}") for number in (1, 2, 3)]
    assert len({token[:10] for token in tokens}) == 1
    assert int(tokens[0][:10]) == event(store, 0)["tableNumber"]


def test_the_schema_is_written_once_and_again_when_it_changes() -> None:
    store = Bucket()
    made = writer(store)
    for payload in (SCHEMA, dict(SCHEMA), {"schemaId": 1, "fields": ({"name": "a"},)}, {"schemaId": 1, "fields": [{"name": "a"}]}):
        made.ensure_schema(payload)

    assert kinds(store) == ["Seed", "SetDataSchema", "SetDataSchema"]
    with pytest.raises(Bug, match=r"1\.5"):
        made.ensure_schema({"schemaId": 2, "weight": 1.5})


def test_the_schema_cannot_change_under_staged_slices() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    made.ensure_schema(SCHEMA)
    with pytest.raises(Bug, match="schema 1 was set while slices of schema 0"):
        made.ensure_schema({"schemaId": 1})


@each(
    ("change", "what"),
    [({"start": 10}, "after 0"), ({"schema_id": 4}, "schema 4"), ({"segments": (Segment(100, 9, 1),)}, "9 records became 10 rows")],
)
def test_a_slice_that_does_not_fit_is_refused(change: dict[str, object], what: str) -> None:
    store = Bucket()
    made = writer(store)
    with pytest.raises(Bug, match=what):
        made.stage(replace(staged(made, store, 0, 100), **change))  # type: ignore[arg-type]


def test_close_drops_what_is_staged_and_not_committed() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    land(made, store, 100, 200)
    made.commit([FIRST])
    made.close()

    assert store.uploads == {}
    assert made.state is not None
    assert made.state.contents.rows == 10


def test_uploads_of_a_dead_task_attempt_are_dropped_at_close() -> None:
    store = Bucket()
    made = writer(store)
    land(made, store, 0, 100)
    store.stage(f"{TABLE.folder}raw/f-{made.next_token()}.parquet", b"nobody knows me")
    store.stage(f"{TABLE.scratch_prefix}{made.next_token()}/0.parquet", b"sorted")
    store.stage(f"{TABLE.folder}raw/f-00000000010000000100000001.parquet", b"another table's")
    store.stage(f"{TABLE.scratch_prefix}00000000010000000100000001/0.parquet", b"another table's")
    store.stage(f"{TABLE.folder}raw/foreign.parquet", b"another tool's")
    made.commit([FIRST])
    made.close(OrphanUploads(store, "lake/"))

    assert [upload.key for upload in store.uploads.values()] == [
        f"{TABLE.folder}raw/f-00000000010000000100000001.parquet",
        f"{TABLE.scratch_prefix}00000000010000000100000001/0.parquet",
        f"{TABLE.folder}raw/foreign.parquet",
    ]


def test_adopted_files_are_asked_for_once_when_the_table_is_seeded() -> None:
    store = Bucket()
    asked: list[int] = []

    def adopt() -> list[str]:
        asked.append(1)
        return ["lake/users/old.parquet"]

    for _ in range(2):
        made = TableWriter(Chain(store, replace(TABLE, adopt=adopt)), Session(1, 0, STARTED), OrphanUploads(store, "lake/"))
        made.chain.read()
        made.open()
        assert made.live_files().adopted == ("lake/users/old.parquet",)
        made.close()

    assert len(asked) == 1


def test_a_snapshot_is_taken_when_the_last_one_is_far_and_carries_the_files() -> None:
    store = Bucket()
    syncs = SNAPSHOT_EVERY // 3 + 1
    for number in range(syncs):
        synced(store, sync_id=number)
    assert kinds(store).count("Snapshot") == 1
    del store.objects[CHAIN + "hint.json"]
    store.forget()
    made = writer(store, sync_id=99)
    state = made.open()

    assert state.snapshot == kinds(store).index("Snapshot")
    assert len(made.live_files().files) == 2 * syncs
    assert len(store.calls) < 30
    full = Chain(store, TABLE)
    full.catch_up()
    assert full.state == state


def test_the_largest_uploads_are_completed_first() -> None:
    store = Bucket()
    files = [FileEntry.staged(FileKind.FINAL, store.stage(f"lake/users/{size}", b"x" * size), WrittenFile(1)) for size in (2, 30, 1)]
    assert complete(store, files)
    assert [key for name, key in store.calls if name == "complete_upload"] == ["lake/users/30", "lake/users/2", "lake/users/1"]
