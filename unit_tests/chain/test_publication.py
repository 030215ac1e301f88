"""What readers of the manifest see when writers are paused, die, or write it too late: never an older state for long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.storage.object_store import ObjectChanged, ObjectStore
from destination_s3_spark.tables.commit.repair import repair
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.publication import NotPublished
from destination_s3_spark.tables.publishers.symlink import MANIFEST, OWNER_METADATA, SEQUENCE, SymlinkManifest
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, name_of
from unit_tests.chain.one_table import CHAIN, FIRST, STARTED, TABLE, kinds, land, staged, synced, writer
from unit_tests.lake.memory_bucket import Fate, S3Call

SHOWN = SymlinkManifest("bucket")
KEY = TABLE.final_root + MANIFEST
DELTAS = (FileKind.RAW, FileKind.DELTA)


class LateStore(Bucket):
    """Puts of the manifest may be held up on their way; `arrive` lets the store see them."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self.held: list[Callable[[], str]] = []

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        if not self.hold:
            return super().replace(key, body, metadata, etag)
        self.held.append(lambda: Bucket.replace(self, key, body, metadata, etag))
        raise TransientError("no answer")

    def arrive(self) -> None:
        for put in self.held:
            put()


@dataclass
class Catalog:
    """A publisher whose catalog can be down, and which can refuse the table."""

    down: str | None = None
    refusal: str | None = None
    block: int | None = None
    name: str = "catalog"
    asked: int = 0

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        self.asked += 1
        if self.down or self.refusal:
            raise NotPublished(str(self.down or self.refusal))
        self.block = state.sequence_number
        return str(self.block)

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        if self.down:
            raise NotPublished(self.down)
        return self.block

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        if self.refusal:
            raise NotPublished(self.refusal)


def shown(store: Bucket) -> set[str]:
    return {line.removeprefix("s3://bucket/") for line in store.objects[KEY].decode().split()}


def finals(store: Bucket) -> set[str]:
    return {key for key in store.objects if key.startswith("lake/users/f-")}


def merged(store: Bucket, made: TableWriter) -> str:
    """One file in place of all the table has; its key."""
    made.open()
    file = FileEntry.staged(FileKind.FINAL, store.stage(f"lake/users/f-{made.next_token()}.parquet", b"m"), WrittenFile(1))
    made.merge([file], made.live_files().of(FileKind.FINAL, FileKind.DELTA), 9)
    return file.key


@each("conditional", [True, False])
def test_a_writer_paused_at_the_manifest_of_its_close_hides_nothing(conditional: bool) -> None:
    store = Bucket()
    store.memory.has_conditions = lambda key: conditional or key != KEY
    first = writer(store, 1, publishers=[SHOWN])
    land(first, store, 0, 100)
    first.commit([FIRST])

    def others_sync(call: S3Call) -> None:
        if name_of(call) == "replace":
            store.hook = None
            synced(store, 2, [SHOWN])

    store.hook = others_sync
    with pytest.raises(Fenced, match="sync id 2"):
        first.close()

    assert shown(store) == finals(store)
    assert len(shown(store)) == 2


@each("conditional", [True, False])
@each("ends", [True, False])
def test_a_writer_paused_at_the_manifest_of_a_merge_hides_no_newer_merge(conditional: bool, ends: bool) -> None:
    store = Bucket()
    store.memory.has_conditions = lambda key: conditional or key != KEY
    first = writer(store, 1, publishers=[SHOWN])
    first.stage(staged(first, store, 0, 100, kinds=DELTAS))
    first.commit([FIRST])
    second, newest = writer(store, 2, publishers=[SHOWN]), []

    def take_over(call: S3Call) -> None:
        """While the first writer has merged and not published, the second one finishes that and merges on."""
        if name_of(call) == "replace":
            store.hook = None
            newest.append(merged(store, second))
            if ends:
                second.close()

    store.hook = take_over
    with pytest.raises(Fenced, match="sync id 2"):
        merged(store, first)

    assert [*shown(store)] == newest
    assert finals(store) == set(newest)


def test_an_overtaken_writer_does_not_show_files_that_are_not_there_yet() -> None:
    """On a store without conditional puts, while the newer writer completes the files of its next commit."""
    store = Bucket()
    store.memory.has_conditions = lambda key: key != KEY
    first, second = writer(store, 1, publishers=[SHOWN]), writer(store, 2, publishers=[SHOWN])
    land(first, store, 0, 100)
    first.commit([FIRST])

    def stop_half_way(call: S3Call) -> Fate | None:
        return Fate.LOST_BEFORE if name_of(call) in {"complete_upload", "abort_upload"} else None

    def others_commit(call: S3Call) -> None:
        if name_of(call) == "replace":
            land(second, store, 0, 100)
            store.hook = stop_half_way
            with pytest.raises(TransientError):
                second.commit([replace(FIRST, state_hash="other")])
            store.hook = None

    store.hook = others_commit
    with pytest.raises(Fenced):
        first.close()

    assert kinds(store)[-2:] == ["OpenEpoch", "AddData"]
    assert shown(store) == finals(store)
    assert len(shown(store)) == 1
    assert int(store.memory.metadata(KEY)[SEQUENCE]) == len(kinds(store)) - 2, "its rows are not said to be in it"


def test_a_put_of_a_dead_process_that_arrives_late_is_refused() -> None:
    store = LateStore()
    synced(store, 1, [SHOWN])
    dead = writer(store, 2, publishers=[SHOWN])
    land(dead, store, 0, 100)
    dead.commit([FIRST])
    store.hold = True
    with pytest.raises(TransientError):
        dead.close()
    store.hold = False
    synced(store, 3, [SHOWN])
    newest = shown(store)
    with pytest.raises(ObjectChanged):
        store.arrive()

    assert shown(store) == newest == finals(store)


@each("old", [None, b"s3://bucket/gone.parquet\n"])
def test_a_sync_without_records_shows_readers_the_last_data_of_its_tables(old: bytes | None) -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    blocks = kinds(store)
    store.objects.pop(KEY)
    if old is not None:
        store.put(KEY, old, {SEQUENCE: "0", OWNER_METADATA: TABLE.table_id})
    writer(store, 2, publishers=[SHOWN]).close()

    assert shown(store) == finals(store)
    assert kinds(store) == blocks, "nothing else was done"


def test_an_idle_table_whose_manifest_is_current_costs_one_call_more() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    store.forget()
    writer(store, 2, publishers=[SHOWN]).close()

    assert store.names() == ["get", "get", "head"]


def test_a_session_knows_from_the_hint_what_readers_were_shown() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    store.forget()
    synced(store, 2, [SHOWN])
    assert store.calls.count(("replace", KEY)) == 1
    assert ("head", KEY) not in store.calls

    store.objects.pop(f"{CHAIN}hint.json")
    synced(store, 3, [SHOWN])
    assert len(shown(store)) == 3


def test_the_manifest_of_a_table_that_was_removed_does_not_count_as_newer() -> None:
    store = Bucket()
    for sync_id in (1, 2, 3):
        synced(store, sync_id, [SHOWN])
    for key in [key for key in store.objects if key != KEY]:
        store.objects.pop(key)
    synced(store, 4, [SHOWN])

    assert shown(store) == finals(store)
    assert len(shown(store)) == 1


def test_a_manifest_that_others_always_replace_is_a_transient_error() -> None:
    store = Bucket()
    made = writer(store, 1, publishers=[SHOWN])
    land(made, store, 0, 100)
    made.commit([FIRST])

    def interfere(call: S3Call) -> None:
        if name_of(call) == "replace":
            store.memory.put(KEY, str(call.number).encode(), {SEQUENCE: "0", OWNER_METADATA: TABLE.table_id})

    store.hook = interfere
    with pytest.raises(TransientError, match=r"manifest of table shop\.users"):
        made.close()


@each("catalog", [Catalog(down="Nobody answers."), Catalog(refusal="No such type.")])
def test_a_publisher_that_fails_costs_one_warning_and_the_others_go_on(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    store = Bucket()
    with caplog.at_level(logging.WARNING, "airbyte"):
        first = writer(store, 1, publishers=[catalog, SHOWN])
        first.stage(staged(first, store, 0, 100, kinds=DELTAS))
        first.commit([FIRST])
        merged(store, first)
        first.close()

    assert kinds(store)[-1] == "Close"
    assert shown(store) == finals(store)
    assert catalog.asked == 2
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"table shop.users is not published for catalog: {catalog.down or catalog.refusal} "
        "Its data is safe, and the next sync tries to publish it again."
    )
    assert b'"catalog"' not in store.objects[f"{CHAIN}hint.json"]


@each("with_records", [True, False])
def test_the_next_sync_publishes_what_a_failing_catalog_missed(with_records: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    store, catalog = Bucket(), Catalog(down="Nobody answers.")
    synced(store, 1, [catalog, SHOWN])
    writer(store, 2, publishers=[catalog, SHOWN]).close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    catalog.down = None
    if with_records:
        synced(store, 3, [catalog, SHOWN])
    else:
        writer(store, 3, publishers=[catalog, SHOWN]).close()

    # A Close block follows the publication of a sync with records.
    assert catalog.block == len(kinds(store)) - (2 if with_records else 1)
    assert len(caplog.records) == 2


def test_a_failing_publisher_hides_no_takeover() -> None:
    store = Bucket()
    first = writer(store, 1, publishers=[Catalog(down="Nobody answers.")])
    land(first, store, 0, 100)
    first.commit([FIRST])
    writer(store, 2).open()

    with pytest.raises(Fenced, match="sync id 2"):
        first.close()


def test_repair_publishes_with_all_publishers_and_tells_of_those_that_refuse() -> None:
    store, late, refused = Bucket(), Catalog(), Catalog(refusal="No such type.", name="refused")
    synced(store, 1)

    done = repair(store, TABLE, [late, refused, SHOWN], OrphanUploads(store, "lake/"), STARTED)

    assert done is not None
    assert (done.published, done.refused) == (("catalog", "symlink"), {"refused": "No such type."})
    assert shown(store) == finals(store)
    blocks = kinds(store)
    again = repair(store, TABLE, [late, refused, SHOWN], OrphanUploads(store, "lake/"), STARTED)
    assert again is not None
    assert (again.published, again.refused) == ((), {"refused": "No such type."})
    assert kinds(store) == blocks, "a table is not written to for a publisher that refuses it"
