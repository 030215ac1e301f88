"""Settlement of a data block: completing the uploads it names, or taking the block back.

The block is the commit, so anyone can complete its uploads, at any time and more than once. Completion becomes impossible only when an
upload no longer exists, because a lifecycle rule or another tool aborted it. The block is then voided. Its STATE was never emitted, so the
source sends the records again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from destination_s3_spark.chain.events import Void
from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.fold import files_kept
from destination_s3_spark.chain.hint import HINT_NAME
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import Contents, Leaving
from destination_s3_spark.errors import DataError, TransientError
from destination_s3_spark.storage.object_store import ObjectStore, OutcomeUnknown, UploadFailed
from destination_s3_spark.stream_id import StreamId

COMPLETE_TRIES = 3
"""Attempts to complete an upload while the outcome is unknown and the object does not exist. After them the upload counts as gone: a store
may answer 500 for an aborted upload, and a roll-back starts with an abort, which makes the outcome certain."""

Publish = Callable[[Chain], None]
"""Shows the table at the chain's head to readers that do not read the chain. All files at the head must be visible. Raises BlockTaken
when another writer has opened the table."""

T = TypeVar("T")
R = TypeVar("R")


class MapCalls(Protocol):
    """The signature of `map`. A thread pool's `map` runs the store calls in parallel."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]:
        """Return the function's results in the order of the items."""


def complete(store: ObjectStore, files: Iterable[FileEntry], map_files: MapCalls = map) -> bool:
    """Complete the uploads, largest first. Return False if an upload is gone and its object does not exist."""
    # A store takes as long to assemble one large object as many small ones, so the large ones start first and run beside the small ones.
    return all(list(map_files(lambda file: _complete_one(store, file), sorted(files, key=lambda file: -file.bytes))))


def finish(chain: Chain, store: ObjectStore, publish: Publish) -> None:
    """Publish the table, then delete the files that the unsettled data block removed and does not keep for a while.

    All uploads of the block must be complete.

    May be repeated at any time. Raises BlockTaken when another writer has opened the table.
    """
    undo = chain.head.unsettled
    if undo is not None and undo.removed is not None:
        publish(chain)
        kept = chain.head.contents.kept_keys
        store.delete([key for key in undo.removed if key not in kept])
    chain.mark_settled()


def sweep(chain: Chain, store: ObjectStore, *, all_of_them: bool = False) -> datetime | None:
    """Delete the replaced files that need not stay any longer. Return the time for the Close that records it, or None if there are none.

    `all_of_them`: also those that should have stayed. Without that Close, the next session deletes the files again, which changes nothing.
    """
    now = max([chain.now(), *(one.until for one in chain.head.contents.leaving if all_of_them)])
    expired = expired_files(chain, now)
    if not expired:
        return None
    store.delete(expired)
    return now


def take_back(chain: Chain, store: ObjectStore) -> bool:
    """Take back the unsettled data block. Return False if there is none or its uploads turn out to be complete.

    Abort the uploads first: after that nobody, not even a paused writer, can make another file of the block visible.
    Raises BlockTaken when another writer has opened the table; settling the block is then up to that writer.
    """
    undo = chain.head.unsettled
    if undo is None:
        return False
    for file in undo.files:
        store.abort_upload(file.key, file.upload.upload_id)
    if all(is_visible(store, file) for file in undo.files):
        return False
    chain.append(Void(undo.sequence_number))
    delete_voided(chain, store)
    return True


def taken_back(stream: StreamId, number: int) -> TransientError:
    """Return the error for a writer that has taken its own block back."""
    return TransientError(
        f"Uploads of table {stream} disappeared before they were complete, so block {number} was taken back. Nothing is lost: try again. "
        "If it happens again, look for a bucket lifecycle rule that aborts incomplete uploads early.",
        stream=stream,
    )


def delete_voided(chain: Chain, store: ObjectStore) -> None:
    """Delete the files of the data block that the unsettled Void took back. Repeatable, because keys are never reused."""
    undo = chain.head.unsettled
    if undo is not None:
        store.delete([file.key for file in undo.files])
    chain.mark_settled()


def is_visible(store: ObjectStore, file: FileEntry) -> bool:
    """Return whether the file's object exists and has the size of its upload."""
    info = store.head(file.key)
    return info is not None and info.size == file.bytes


def _complete_one(store: ObjectStore, file: FileEntry) -> bool:
    for _ in range(COMPLETE_TRIES):
        try:
            store.complete_upload(file.upload)
        except UploadFailed:
            # An earlier attempt or another writer may have completed the upload; only the object tells.
            return is_visible(store, file)
        except OutcomeUnknown:
            if is_visible(store, file):
                return True
        else:
            return True
    return False


def expired_files(chain: Chain, now: datetime) -> tuple[str, ...]:
    """Return the keys of replaced files that need not stay any longer. Takes one GET per block that only the hint names.

    Raises DataError if the hint contradicts the block.
    """
    expired = [one for one in chain.head.contents.leaving if one.until <= now]
    for one in expired:
        if not chain.confirmed and one.block <= (chain.hint_number or 0):
            _require_replaced(chain, one)
    return tuple(key for one in expired for key in one.keys)


def confirm_removal(chain: Chain, removed: Sequence[FileEntry], added: Sequence[FileEntry]) -> None:
    """Confirm the table's files before a block removes some without others in their place, or removes those of a generation given up."""
    if removed and (not added or chain.live_files().dropped):
        confirm_files(chain)


def confirm_files(chain: Chain) -> None:
    """Raise DataError if the table's files are known from a hint and the blocks name others. One GET per block since the last Snapshot."""
    if chain.confirmed:
        return
    read = chain.of_blocks_alone()
    if read.head.sequence_number > chain.head.sequence_number:
        return  # another writer has taken the table over, so the next block of this one fails
    if not _agree(read.live_files(), chain.live_files()):
        raise _wrong_hint(chain, "the table's files")
    chain.confirmed = True


def _agree(read: LiveFiles, hinted: LiveFiles) -> bool:
    """Tell whether a hint has the files that the blocks have, with the same days."""
    ours, theirs = ((set(live.adopted), _dated(live.files), _dated(live.dropped)) for live in (read, hinted))
    return ours == theirs


def _dated(files: Iterable[FileEntry]) -> set[tuple[str, int | None]]:
    return {(file.key, file.landed_on) for file in files}


def _require_replaced(chain: Chain, leaving: Leaving) -> None:
    (block,) = chain.blocks([leaving.block])
    if tuple(file.key for file in files_kept(block.event)) != leaving.keys:
        raise _wrong_hint(chain, f"the files that block {leaving.block} replaced")


def _wrong_hint(chain: Chain, what: str) -> DataError:
    stream = chain.table.stream
    return DataError(
        f"The hint of table {stream} contradicts its chain about {what}, so nothing was deleted. Delete the object "
        f"{chain.prefix}{HINT_NAME}, which is only a copy, and find out who wrote it; then run `verify` and the sync again.",
        stream=stream,
    )


@dataclass(frozen=True, slots=True)
class Readable:
    """A table as readers see it. `left_out`: the number of the unsettled data block that this view excludes, if any.

    Data blocks up to `settled` are final. One unsettled data block may follow. If all its files are visible, nobody can take the block back
    any more, so it belongs to the view. If any file is not visible, the view is the table before that block.
    """

    contents: Contents
    live: LiveFiles
    left_out: int | None


def readable(chain: Chain, store: ObjectStore, map_files: MapCalls = map) -> Readable:
    """Return the readable table at the head of a chain already read. Sends a HEAD per file of an unsettled block and writes nothing."""
    undo = chain.head.unsettled
    if undo is None or undo.voided or all(list(map_files(lambda file: is_visible(store, file), undo.files))):
        return Readable(chain.head.contents, chain.live_files(), None)
    return Readable(undo.before, chain.live_files_before(), undo.sequence_number)
