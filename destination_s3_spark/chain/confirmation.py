"""Confirmation by blocks of what a hint says, before a file is deleted for that reason alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.fold import files_kept
from destination_s3_spark.chain.hint import HINT_NAME
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import Leaving
from destination_s3_spark.errors import DataError


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
