"""What a reader may trust of a table while somebody else writes it.

Blocks up to `settled` are done. Of the one data block that may follow, either all files are there, and then nobody can take it back; or
some are not, and then the table is still what it was before it.
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
    """A table as readers see it. `left_out`: the number of the data block that is in the chain and not in here, if there is one."""

    contents: Contents
    live: LiveFiles
    left_out: int | None


def readable(chain: Chain, store: ObjectStore, map_files: MapCalls = map) -> Readable:
    """The table at the head of a chain that was read: a HEAD for each file of an unsettled block, no writes."""
    undo = chain.head.unsettled
    if undo is None or undo.voided or all(list(map_files(lambda file: is_visible(store, file), undo.files))):
        return Readable(chain.head.contents, chain.live_files(), None)
    return Readable(undo.before, chain.live_files_before(), undo.sequence_number)
