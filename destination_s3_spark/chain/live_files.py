"""Which files a table consists of: the second fold of a chain, made only when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData, Seed, Snapshot, Void
from destination_s3_spark.chain.files import FileEntry


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files of a table in the order they were added, and the keys of earlier destination-s3 files it adopted."""

    adopted: tuple[str, ...]
    files: tuple[FileEntry, ...]


def live_files(blocks: Iterable[Block]) -> LiveFiles:
    """Fold the blocks from the last Snapshot, or from the Seed, to the head. The state says whether the last data block is settled."""
    adopted: tuple[str, ...] = ()
    files: dict[str, FileEntry] = {}
    last: tuple[FileEntry, ...] = ()
    for block in blocks:
        match block.event:
            case Seed(adopted=keys):
                adopted = keys
            case Snapshot(adopted=keys, files=entries):
                adopted, files = keys, {entry.key: entry for entry in entries}
            case AddData(files=entries):
                last = entries
                files.update((entry.key, entry.visible()) for entry in entries)
            case Void():
                # Void always takes back the last AddData before it.
                for entry in last:
                    del files[entry.key]
    return LiveFiles(adopted, tuple(files.values()))
