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
    if any(_is_hearsay(chain, one) and one.block is None for one in expired):
        return chain.of_blocks_alone().head.contents.expired(now)
    for one in expired:
        if one.block is not None and _is_hearsay(chain, one):
            _require_replaced(chain, one, one.block)
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
    """Tell whether a hint has the files that the blocks have, none of them older. An earlier version dated files later than the blocks."""
    same = all(
        set(ours) == set(theirs)
        for ours, theirs in (
            (read.adopted, hinted.adopted),
            (_keys(read.files), _keys(hinted.files)),
            (_keys(read.dropped), _keys(hinted.dropped)),
        )
    )
    days = {file.key: file.landed_on or 0 for file in read.files}
    return same and all((file.landed_on or 0) >= days[file.key] for file in hinted.files)


def _keys(files: Iterable[FileEntry]) -> list[str]:
    return [file.key for file in files]


def _is_hearsay(chain: Chain, leaving: Leaving) -> bool:
    """Return whether only a hint says that these files are to be deleted."""
    return not chain.confirmed and (leaving.block is None or leaving.block <= (chain.hint_number or 0))


def _require_replaced(chain: Chain, leaving: Leaving, number: int) -> None:
    (block,) = chain.blocks([number])
    if tuple(file.key for file in files_kept(block.event)) != leaving.keys:
        raise _wrong_hint(chain, f"the files that block {number} replaced")


def _wrong_hint(chain: Chain, what: str) -> DataError:
    stream = chain.table.stream
    return DataError(
        f"The hint of table {stream} contradicts its chain about {what}, so nothing was deleted. Delete the object "
        f"{chain.prefix}{HINT_NAME}, which is only a copy, and find out who wrote it; then run `verify` and the sync again.",
        stream=stream,
    )
