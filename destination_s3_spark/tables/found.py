"""Search for the tables of a bucket path by the first blocks of their chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from destination_s3_spark.chain.blocks import UnreadableBlock, block_name, decode
from destination_s3_spark.chain.events import Seed
from destination_s3_spark.chain.opening import CHAIN_FOLDER
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.stream_id import StreamId


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the bucket path: its own folder and the Seed of its chain."""

    folder: str
    seed: Seed

    @property
    def stream(self) -> StreamId:
        """The stream that the table holds."""
        return self.seed.stream

    @property
    def chain_prefix(self) -> str:
        """The prefix of the blocks' keys."""
        return f"{self.folder}{CHAIN_FOLDER}"


def find_tables(store: ObjectStore, folder: str, map_calls: MapCalls = map) -> list[FoundTable]:
    """Find the tables with chains in the folder, in the order of their keys. Raises DataError when a chain does not begin with a Seed.

    Takes one GET per table, regardless of the number of its objects. `map_calls` may send them in parallel.
    """
    folders = list(store.folders(folder))
    seeds = map_calls(lambda table: _seed(store, f"{table}{CHAIN_FOLDER}{block_name(0)}"), folders)
    return [FoundTable(table, seed) for table, seed in zip(folders, seeds, strict=True) if seed is not None]


def choose(found: Sequence[FoundTable], name: str, namespace: str | None, place: str) -> list[FoundTable]:
    """Choose the tables of the streams with this name, and this namespace if given. Raises ConfigError when there are none."""
    chosen = [table for table in found if table.stream.name == name and namespace in (None, table.stream.namespace)]
    if not chosen:
        known = ", ".join(sorted(str(table.stream) for table in found)) or "none"
        raise ConfigError(f"There is no table of stream {StreamId(namespace, name)} under {place}. Tables there: {known}.")
    return chosen


def _seed(store: ObjectStore, seed_key: str) -> Seed | None:
    try:
        seed = decode(store.get(seed_key)).event
    except ObjectNotFound:
        return None
    except UnreadableBlock:
        seed = None
    if not isinstance(seed, Seed):
        raise DataError(
            f"{seed_key} is not the first block of a chain. Only this connector may write there; restore an older version of it."
        )
    return seed
