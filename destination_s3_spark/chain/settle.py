"""Settling a data block: complete the uploads it names, or take the block back.

The block is the commit, so completing may be repeated by anyone at any time. It fails for good only when an upload has gone (aborted by
a lifecycle rule or another tool); then the block is voided. Its STATE was never emitted, so the source sends the records again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from destination_s3_spark.chain.events import Void
from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.storage.object_store import ObjectStore, OutcomeUnknown, UploadFailed

COMPLETE_TRIES = 3
"""How often a complete is repeated whose outcome was unknown and whose object is not there. Then the upload counts as gone: the store may
answer 500 for an aborted upload, and the abort that a roll-back begins with makes the outcome certain."""

Publish = Callable[[Chain], None]
"""Shows readers outside of the chain the table at its head, whose files are all visible. Raises BlockTaken."""

T = TypeVar("T")
R = TypeVar("R")


class MapCalls(Protocol):
    """Like `map`. A thread pool's `map` makes the store calls side by side."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]:
        """The function's results, in the order of the items."""


def complete(store: ObjectStore, files: Iterable[FileEntry], map_files: MapCalls = map) -> bool:
    """Complete the uploads, the largest ones first; false when one of them has gone and left no object."""
    # A store puts a large object together for as long as it does many small ones: they go on side by side.
    return all(list(map_files(lambda file: _complete_one(store, file), sorted(files, key=lambda file: -file.bytes))))


def finish(chain: Chain, store: ObjectStore, publish: Publish) -> None:
    """All uploads of the unsettled data block are complete: show readers the new table, then delete what the block removed.

    May be repeated at any time. Raises BlockTaken when another writer is found to have opened the table.
    """
    undo = chain.head.unsettled
    if undo is not None and undo.removed is not None:
        publish(chain)
        store.delete(undo.removed)
    chain.mark_settled()


def take_back(chain: Chain, store: ObjectStore) -> bool:
    """Take back the unsettled data block of the chain; false when its uploads turn out to be complete after all.

    The uploads are aborted first: from then on nobody, not even a paused writer, can make another file of the block visible.
    Raises BlockTaken when another writer opened the table meanwhile; it decides then.
    """
    undo = chain.head.unsettled
    if undo is None:
        return False
    for file in undo.files:
        store.abort_upload(file.key, file.upload().upload_id)
    if all(is_visible(store, file) for file in undo.files):
        return False
    chain.append(Void(undo.sequence_number))
    delete_voided(chain, store)
    return True


def delete_voided(chain: Chain, store: ObjectStore) -> None:
    """Delete the files of the data block the unsettled Void took back. Their keys are never used again, so this can be repeated."""
    undo = chain.head.unsettled
    if undo is not None:
        store.delete([file.key for file in undo.files])
    chain.mark_settled()


def is_visible(store: ObjectStore, file: FileEntry) -> bool:
    """Whether the file's object is there, with the size of its upload."""
    info = store.head(file.key)
    return info is not None and info.size == file.bytes


def _complete_one(store: ObjectStore, file: FileEntry) -> bool:
    for _ in range(COMPLETE_TRIES):
        try:
            store.complete_upload(file.upload())
        except UploadFailed:
            # It may have been completed before, by an earlier try or another writer; only the object tells.
            return is_visible(store, file)
        except OutcomeUnknown:
            if is_visible(store, file):
                return True
        else:
            return True
    return False
