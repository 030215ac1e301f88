"""Consistent view of a table for readers while another process writes to it.

Data blocks up to `settled` are final. One unsettled data block may follow. If all its files are visible, nobody can take the block back
any more, so it belongs to the view. If any file is not visible, the view is the table before that block.
"""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.settle import MapCalls, is_visible
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Readable:
    """A table as readers see it. `left_out`: the number of the unsettled data block that this view excludes, if any."""

    contents: Contents
    live: LiveFiles
    left_out: int | None


def readable(chain: Chain, store: ObjectStore, map_files: MapCalls = map) -> Readable:
    """Return the readable table at the head of a chain already read. Sends a HEAD per file of an unsettled block and writes nothing."""
    undo = chain.head.unsettled
    if undo is None or undo.voided or all(list(map_files(lambda file: is_visible(store, file), undo.files))):
        return Readable(chain.head.contents, chain.live_files(), None)
    return Readable(undo.before, chain.live_files_before(), undo.sequence_number)
