"""Search for the tables of a bucket path by the first blocks of their chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock

from destination_s3_spark.chain.blocks import MOST_BLOCK_BYTES, UnreadableBlock, block_name, decode
from destination_s3_spark.chain.events import Seed
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.state import Identity
from destination_s3_spark.chain.territory import CHAIN_FOLDER, Table
from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER, changes_root, history_root, internal_root, root_flaw, table_id
from destination_s3_spark.stream_id import StreamId


def without_schema(stream: StreamId) -> ConfigError:
    """Return the error for a table whose first sync ended before it recorded a schema."""
    return ConfigError(f"The table of stream {stream} has no schema yet: no record of it was ever committed.", stream=stream)


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """A table that could not be read, by its stream or its folder, and why."""

    table: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundTables:
    """The tables of a bucket path in the order of their keys, and the folders whose chain has no good beginning."""

    tables: tuple[Table, ...]
    unread: tuple[UnreadTable, ...] = ()
    folders: frozenset[str] = frozenset()
    """The internal folders that there are, with a table or not."""

    @property
    def roots(self) -> dict[StreamId, str]:
        return {found.stream: found.final_root for found in self.tables}

    def choose(self, name: str | None, namespace: str | None, place: str) -> list[Table]:
        """Choose the tables of the streams with this name, or that match it as a pattern with * and ?, and with this namespace if given.

        An empty namespace is that of streams without one. Without a name, all are chosen, of the namespace if given. Raises ConfigError
        when there are none of the name or the namespace.
        """
        if name is None and namespace is None:
            return list(self.tables)
        name = "*" if name is None else name
        tables = [table for table in self.tables if namespace is None or table.stream.namespace == (namespace or None)]
        chosen = [table for table in tables if table.stream.name == name] or [table for table in tables if table.stream.matches(name)]
        if not chosen:
            known = ", ".join(sorted(str(table.stream) for table in self.tables)) or "none"
            unread = "".join(f" {table.table} cannot be read: {table.reason}" for table in self.unread)
            stream = f"{StreamId.of(namespace, name)}{' without a namespace' if namespace == '' else ''}"
            raise ConfigError(f"There is no table of stream {stream} under {place}. Tables there: {known}.{unread}")
        return chosen


def find_tables(store: ObjectStore, template: PathTemplate, map_calls: MapCalls = map) -> FoundTables:
    """Find the tables with chains below the template's bucket path.

    A folder whose chain does not begin with a Seed of its own is not a table: one damaged folder must not stop the work on all others.
    Takes one GET per table, regardless of the number of its objects. `map_calls` may send them in parallel.
    """
    folders = list(store.folders(f"{template.base}{INTERNAL_FOLDER}/"))
    seeds = dict(zip(folders, map_calls(partial(_seed, store, template), folders), strict=True))
    roots = {seed.stream: seed.final_root for seed in seeds.values() if isinstance(seed, Seed)}
    tables, unread = [], []
    for folder, seed in seeds.items():
        found = seed if seed is None or isinstance(seed, str) else _placed(seed, template, roots)
        if isinstance(found, Table):
            tables.append(found)
        elif found is not None:
            unread.append(UnreadTable(folder.removeprefix(template.base).rstrip("/"), found))
    return FoundTables(tuple(tables), tuple(unread), frozenset(folders))


class KnownTables:
    """The tables of a bucket path, looked up when they are asked for, and once. Thread-safe."""

    def __init__(self, look_up: Callable[[], FoundTables]) -> None:
        self._look_up = look_up
        self._lock = Lock()
        self._found: FoundTables | None = None

    def __call__(self) -> FoundTables:
        with self._lock:
            if self._found is None:
                self._found = self._look_up()
            return self._found

    def lack(self, folder: str) -> bool:
        """Tell whether they have been looked up and none had this internal folder. Looks nothing up itself."""
        found = self._found
        return found is not None and folder not in found.folders


def located(stream: StreamId, template: PathTemplate, root: str) -> Table:
    """Return the location of a stream's table with this final root."""
    return Table(
        stream,
        table_id(stream),
        internal_root(template, stream),
        root,
        changes=changes_root(template, stream),
        history=history_root(template, stream),
        pattern=partial(template.key_pattern, stream),
    )


def _placed(seed: Seed, template: PathTemplate, roots: Mapping[StreamId, str]) -> Table | str:
    """Return the location of the table of a Seed, or why the Seed cannot be that of a table here."""
    table = located(seed.stream, template, seed.final_root)
    identity = Identity(seed.stream, seed.table_id, seed.table_number, seed.final_root, seed.format_version)
    flaw = table.flaw(identity) or root_flaw(seed.final_root, seed.stream, template, lambda: roots)
    return table if flaw is None else _refused(f"{table.chain_prefix}{block_name(0)}", flaw)


def _seed(store: ObjectStore, template: PathTemplate, folder: str) -> Seed | str | None:
    """Return the Seed in a folder, why there is none, or None if the folder has no chain."""
    key = f"{folder}{CHAIN_FOLDER}{block_name(0)}"
    try:
        seed = decode(store.get(key, MOST_BLOCK_BYTES)).event
    except ObjectNotFound:
        return None
    except (DataError, ConfigError) as error:
        return error.message
    except UnreadableBlock:
        seed = None
    if not isinstance(seed, Seed):
        return _refused(key, "it is damaged, or another kind of block")
    # The folder follows from the stream, so two Seeds cannot claim one stream.
    if internal_root(template, seed.stream) != folder:
        return _refused(key, f"it is that of stream {seed.stream}, whose table is in another folder")
    return seed


def _refused(key: str, flaw: str) -> str:
    return f"{key} is not the first block of a chain: {flaw}. Only this connector may write there; restore an older version of it."
