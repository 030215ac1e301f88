"""Merges and publications that were interrupted, and in which order readers outside of the chain see them."""

from __future__ import annotations

from functools import partial
from itertools import groupby

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Pending
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SymlinkManifest
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_each
from unit_tests.chain.one_table import CHAIN, DELTAS, FIRST, SECOND, event, final, finals, kinds, land, staged, writer
from unit_tests.lake.memory_bucket import Crash, Fate

SHOWN = SymlinkManifest("bucket")
MANIFEST_KEY = f"lake/users/{MANIFEST}"


def shown(store: Bucket) -> list[str]:
    lines = store.objects[MANIFEST_KEY].decode().split()
    return [line.removeprefix("s3://bucket/") for line in lines]


def merged(store: Bucket, sync_id: int = 1) -> tuple[TableWriter, tuple[FileEntry, ...]]:
    """A session that has merged ten rows into one file, and has ten more in a delta; what its next merge is to remove."""
    made = writer(store, sync_id, publishers=[SHOWN])
    made.stage(staged(made, store, 0, 100, kinds=DELTAS))
    made.commit([FIRST])
    made.merge([final(made, store, 10)], made.live_files().of(FileKind.DELTA), 9)
    made.stage(staged(made, store, 100, 200, kinds=DELTAS))
    made.commit([SECOND])
    return made, made.live_files().of(FileKind.DELTA, FileKind.FINAL)


def waiting(store: Bucket) -> tuple[TableWriter, tuple[FileEntry, ...]]:
    """A session whose generation waits beside a published table of one file; what its publication is to remove."""
    first, _ = merged(store)
    first.close()
    made = writer(store, 2, 5, WriteDisposition.TRUNCATE, [SHOWN])
    made.stage(staged(made, store, 0, 100, kinds=DELTAS))
    made.commit([FIRST])
    live = made.live_files()
    return made, tuple(file for file in live.files if not (live.is_pending(file) and file.kind is FileKind.RAW))


def died(store: Bucket, replace: bool, at: str, fault: Fate = Fate.CRASH_BEFORE) -> tuple[set[str], tuple[FileEntry, ...]]:
    """A merge or a publication of two files that dies at a call; the final files before it, and what it removes."""
    made, removed = waiting(store) if replace else merged(store)
    files = [final(made, store, 10), final(made, store, 10)]
    before = finals(store)
    store.hook = at_each(at, fault)
    rewrite = made.replace if replace else partial(made.merge, consumed_offset=19)
    with pytest.raises(Crash):
        rewrite(files, removed)
    store.hook = None
    return before, removed


@each("completes_again", [True, False])
@each("fault", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
@each("at", ["complete_upload", "replace", "delete"])
@each("replace", [False, True])
def test_the_next_session_completes_publishes_and_deletes_what_was_interrupted(
    replace: bool, at: str, fault: Fate, completes_again: bool
) -> None:
    store = Bucket(completes_again=completes_again)
    before, removed = died(store, replace, at, fault)
    store.forget()
    made = writer(store, 9, publishers=[SHOWN])
    state = made.open()

    assert (kinds(store)[-2:], state.unsettled, store.uploads) == (["OpenEpoch", "OpenEpoch"], None, {})
    assert not store.objects.keys() & {file.key for file in removed}
    assert len(finals(store) - before) == 2
    assert sorted(shown(store)) == sorted(finals(store))
    order = [name for name in store.names() if name in {"complete_upload", "replace", "delete"}]
    assert [name for name, _ in groupby(order)][:3] == ["complete_upload", "replace", "delete"]
    assert state.contents.held.keys() == {"raw", "final"}


@each("replace", [False, True])
@each("gone", [0, 1])
def test_a_rewrite_whose_upload_has_gone_is_taken_back_and_the_old_files_stay(replace: bool, gone: int) -> None:
    store = Bucket(completes_again=False)
    before, removed = died(store, replace, "complete_upload")
    store.uploads.pop(list(store.uploads)[gone])
    manifest = store.objects[MANIFEST_KEY]
    made = writer(store, 9, 5, WriteDisposition.TRUNCATE if replace else WriteDisposition.APPEND, [SHOWN])
    state = made.open()

    assert kinds(store)[-3:] == ["OpenEpoch", "Void", "OpenEpoch"]
    assert (finals(store), store.uploads, state.unsettled) == (before, {}, None)
    assert store.objects.keys() >= {file.key for file in removed}
    assert store.objects[MANIFEST_KEY] == manifest, "nobody was ever shown the files that have gone"
    assert {file.key for file in removed} <= {file.key for file in made.live_files().files}
    assert state.contents.pending == (Pending(5, 20, 2) if replace else None)
    files = [final(made, store, 20)]
    rewrite = made.replace if replace else partial(made.merge, consumed_offset=19)
    rewrite(files, removed)
    made.close()
    assert finals(store) == {files[0].key}
    assert shown(store) == [files[0].key]


def test_the_writer_itself_takes_back_a_merge_whose_upload_has_gone() -> None:
    store = Bucket(completes_again=False)
    made, removed = merged(store)
    files = [final(made, store, 10), final(made, store, 10)]
    before = finals(store)
    store.uploads.pop(files[1].upload.upload_id)
    with pytest.raises(TransientError, match="was taken back"):
        made.merge(files, removed, 19)

    assert kinds(store)[-2:] == ["MergeData", "Void"]
    assert (finals(store), store.uploads) == (before, {})
    assert store.objects.keys() >= {file.key for file in removed}


def test_a_commit_that_only_adds_is_published_once_before_the_close_block() -> None:
    store = Bucket()
    made = writer(store, publishers=[SHOWN])
    land(made, store, 0, 100)
    made.commit([FIRST])
    assert MANIFEST_KEY not in store.objects
    store.forget()
    made.close()

    assert store.calls == [("replace", MANIFEST_KEY), ("create", f"{CHAIN}{3:020d}.json"), ("put", f"{CHAIN}hint.json")]
    assert event(store, 3)["kind"] == "Close"


def test_a_merge_is_published_between_the_last_complete_and_the_first_delete() -> None:
    store = Bucket()
    made, removed = merged(store)
    files = [final(made, store, 10), final(made, store, 10)]
    store.forget()
    made.merge(files, removed, 19)

    assert store.names() == ["create", "complete_upload", "complete_upload", "replace", "get", "delete"]
    assert shown(store) == [file.key for file in files]


def test_nothing_is_deleted_when_publishing_fails() -> None:
    store = Bucket()
    made, removed = merged(store)
    files = [final(made, store, 10)]
    store.hook = at_each("replace", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match="did not answer in time"):
        made.merge(files, removed, 19)

    assert store.objects.keys() >= {file.key for file in removed}
    assert finals(store) > {files[0].key}


def test_a_fenced_writer_leaves_nothing_of_its_merge() -> None:
    store = Bucket()
    made, removed = merged(store)
    files = [final(made, store, 10)]
    writer(store, 2).open()
    with pytest.raises(Fenced, match="sync id 2"):
        made.merge(files, removed, 19)

    assert store.uploads == {}
    assert store.objects.keys() >= {file.key for file in removed}


def test_staged_files_that_no_block_names_can_be_dropped() -> None:
    store = Bucket()
    made, _ = merged(store)
    files = [final(made, store, 10), final(made, store, 10)]
    made.drop(files)

    assert store.uploads == {}


def test_final_files_say_their_schema_generation_and_rows() -> None:
    store = Bucket()
    made, removed = waiting(store)
    result = made.replace([final(made, store, 10)], removed)
    (file,) = made.live_files().of(FileKind.FINAL)

    assert (file.schema_id, file.generation_id, file.rows, file.upload_id) == (0, 5, 10, None)
    assert (result.sequence_number, result.rows, result.files, result.bytes, result.replayed) == (len(kinds(store)) - 1, 10, 1, 10, 0)
    assert made.live_files().pending is None
