"""Access to a table from Python: its current rows as an Arrow dataset, which pyarrow, DuckDB and Polars scan lazily."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar, overload

import pyarrow as pa
import pyarrow.dataset as ds
from msgspec.structs import replace
from pyarrow.fs import S3FileSystem

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.settle import readable
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.registry import chosen_format, format_of
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA
from destination_s3_spark.schema.schema_event import arrow_from_event, from_event
from destination_s3_spark.storage import credentials
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import table_factory
from destination_s3_spark.tables.fresh import ARROW_PARQUET, FreshRows, FreshTable, MergeOnRead

T = TypeVar("T")
R = TypeVar("R")

CALLS_AT_ONCE = 16


@overload
def read(config: Mapping[str, Any], name: str, namespace: str | None = None, *, fresh: Literal[False] = False) -> ds.Dataset: ...


@overload
def read(config: Mapping[str, Any], name: str, namespace: str | None = None, *, fresh: Literal[True]) -> FreshTable: ...


def read(config: Mapping[str, Any], name: str, namespace: str | None = None, *, fresh: bool = False) -> ds.Dataset | FreshTable:
    """Return a stream's table as of its newest commit. `config` is the connector's configuration, as for `write`.

    The dataset has the table's current columns. Files written before a column was added yield nulls for it. A deduplicated table in CSV or
    JSON Lines has one column `_airbyte_data` with the record's JSON text instead of data columns. A later commit may delete files of the
    dataset. Scanning it then raises OSError (NO_SUCH_KEY); call `read` again.

    With `fresh`, rows that wait for the table's next merge are merged while the table is read. Without it, the table is that of its last
    merge.

    Raises ConfigError when the table does not exist or Arrow cannot read the format of its files. Raises DataError when its chain is
    damaged, and TransientError when the store does not answer.
    """
    parsed = Config.parse(config)
    stream = StreamId.of(namespace, name)
    if fresh:
        return FreshTable(partial(_fresh_rows, parsed, stream))
    chain, live, s3 = _found(parsed, stream)
    files, of_text = _parquet_files(live, parsed, f"s3://{s3.bucket}/{chain.head.identity.final_root}")
    schema = RAW_SCHEMA if of_text else _typed_schema(chain, files)
    return _dataset(files, schema, credentials.arrow_filesystem(s3), s3.bucket)


def _found(config: Config, stream: StreamId) -> tuple[Chain, LiveFiles, S3Settings]:
    """Read the chain of a stream's table, and list the files that readers see."""
    s3 = s3_settings(config)
    factory = table_factory(config)
    chain = factory.chain_of(stream)
    store = TableStore(factory.store, chain)
    if chain.state is None:
        place = f"s3://{s3.bucket}/{chain.table.folder}"
        raise ConfigError(f"There is no table of stream '{stream}' at {place}. Check the name and the bucket path.")
    live = readable(chain, store, in_parallel).live
    list(in_parallel(store.require, live.adopted))
    return chain, live, s3


def _fresh_rows(config: Config, stream: StreamId) -> FreshRows:
    """Find the rows of a stream's table, those that wait for a merge included."""
    chain, everything, s3 = _found(config, stream)
    replaced = everything.pending is not None and everything.pending.complete  # a merge would show the generation that is pending
    shown = tuple(file for file in everything.files if everything.is_pending(file) == replaced)
    live = replace(everything, adopted=() if replaced else everything.adopted, files=shown, pending=None)
    files, of_text = _parquet_files(live, config, f"s3://{s3.bucket}/{chain.head.identity.final_root}")
    waiting = live.of(FileKind.DELTA)
    schema = _typed_schema(chain, [*files, *waiting])
    refreshed = everything.pending is not None and not replaced
    merge = _merge_on_read(config, chain, live, everything, s3, refreshed=refreshed) if waiting else None
    if waiting and merge is None:
        files = [*files, *waiting]
    if of_text or (merge is not None and merge.of_text):
        schema = RAW_SCHEMA
    made = _dataset(files, schema, credentials.arrow_filesystem(s3), s3.bucket)
    return FreshRows(chain.head.block_hash, made.schema, merge, partial(_without, made, s3.bucket))


def _merge_on_read(
    config: Config, chain: Chain, live: LiveFiles, everything: LiveFiles, s3: S3Settings, *, refreshed: bool
) -> MergeOnRead | None:
    """Prepare the merge of the runs, or return None if the table is not deduplicated.

    While a refresh runs, or other types are recorded of which no row has come, the table is that of the newest schema among its files.
    """
    newest = max(file.schema_id or 0 for file in live.of(FileKind.FINAL, FileKind.STATE, FileKind.DELTA))
    state = chain.state_of_rows()
    payload, types_since = state.schema or {}, state.types_since
    if refreshed or newest < types_since:
        payload, types_since = chain.schema_at(newest)
    factory = dataclasses.replace(table_factory(config), map_files=in_parallel)
    return MergeOnRead.of(factory.of_chain(chain, payload), from_event(payload), types_since, live, everything, s3)


def _parquet_files(live: LiveFiles, config: Config, folder: str) -> tuple[list[FileEntry], bool]:
    """Find the Parquet files that hold the table's rows, and tell whether the final files have a text format.

    A final file in Parquet is read directly. Any other was rendered from a merge state, the one with the same key range, which is read
    instead.
    """
    adopted = [FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted]
    finals = [*adopted, *live.settled(FileKind.FINAL)]
    # Names of destination-s3 may lack the extension. Only the configured format then tells the format of a file.
    formats = {file.key: format_of(file.key) or chosen_format(config.format) for file in finals}
    others = {file.key for file in finals if not formats[file.key].sorted_rows}
    states = [file for file in live.of(FileKind.STATE) if file.copy_of in others]
    covered = {file.copy_of for file in states}
    unreadable = [file.key for file in finals if file.key in others - covered]
    of_text = {not found.typed for found in formats.values()}
    if unreadable or len(of_text) > 1:
        titles = " and ".join(sorted({found.title for found in formats.values()}))
        raise ConfigError(
            f"The table's files are {titles}, and Arrow can only read a table of Parquet files, or one that is deduplicated. Read the "
            f"files under {folder} with a reader of their format."
        )
    readable_as_they_are = [file for file in finals if formats[file.key].sorted_rows]
    return [*readable_as_they_are, *states], True in of_text


def _typed_schema(chain: Chain, files: Sequence[FileEntry]) -> pa.Schema | None:
    """Return the table's columns, or None when no schema is recorded yet.

    As long as a change of types is recorded and no file has been rewritten, the columns are those of the newest schema among the files.
    """
    state = chain.head
    ids = [-1 if file.schema_id is None else file.schema_id for file in files if file.kind is not FileKind.ADOPTED]
    payload = state.schema
    if ids and -1 < max(ids) < state.types_since:
        payload = chain.schemas([max(ids)])[max(ids)]
    return None if payload is None else arrow_from_event(payload)


def in_parallel(function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]:
    """Return the function's results in the order of the items, from several threads."""
    with ThreadPoolExecutor(CALLS_AT_ONCE, "files") as pool:
        return list(pool.map(function, items))


def _without(table: ds.FileSystemDataset, bucket: str, keys: Collection[str]) -> ds.FileSystemDataset:
    paths = {f"{bucket}/{key}" for key in keys}
    fragments = [fragment for fragment in table.get_fragments() if fragment.path not in paths]
    return ds.FileSystemDataset(fragments, table.schema, ARROW_PARQUET, table.filesystem)


def _dataset(files: Sequence[FileEntry], schema: pa.Schema | None, filesystem: S3FileSystem, bucket: str) -> ds.FileSystemDataset:
    # The sizes come from the chain and save a HEAD request per file.
    fragments = [ARROW_PARQUET.make_fragment(f"{bucket}/{file.key}", filesystem, file_size=file.bytes or None) for file in files]
    if schema is None:
        schema = fragments[0].physical_schema if fragments else pa.schema(META_FIELDS)
    return ds.FileSystemDataset(fragments, schema, ARROW_PARQUET, filesystem)
