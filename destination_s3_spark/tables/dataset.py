"""Reading a table from Python: its head as an Arrow dataset, which pyarrow, DuckDB and Polars scan lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import CHAIN_FOLDER
from destination_s3_spark.chain.readable import readable
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.registry import chosen_format, format_of
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, schema_from_text
from destination_s3_spark.storage.arrow_filesystem import arrow_filesystem
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.table_paths import internal_root
from destination_s3_spark.stream_id import StreamId

HEADS_AT_ONCE = 16
PARQUET = ds.ParquetFileFormat()


def read(config: Mapping[str, Any], name: str, namespace: str | None = None) -> ds.Dataset:
    """The table of a stream, as the newest commit left it. `config` is the connector's configuration, as for `write`.

    Its columns are the table's of today; files written before a column came have nulls there. A deduplicated table in CSV or JSON Lines
    comes as rows with `_airbyte_data`, the record's JSON text, in place of columns. A later commit may delete files of this dataset: then
    scanning it raises OSError (NO_SUCH_KEY), and reading again helps.

    Raises ConfigError where there is no such table, or where its files are of a format that Arrow cannot read; DataError when its chain
    is damaged; TransientError when the store does not answer.
    """
    parsed = Config.parse(config)
    settings = s3_settings(parsed)
    store = S3Store(settings)
    stream = StreamId.of(namespace, name)
    folder = internal_root(path_template(parsed, datetime.now(UTC), sync_id=0), stream)
    chain = Chain(store, f"{folder}{CHAIN_FOLDER}", stream)
    chain.read()
    chain.catch_up()
    if chain.state is None:
        raise ConfigError(f"There is no table of stream '{stream}' at s3://{settings.bucket}/{folder}. Check the name and the bucket path.")
    with ThreadPoolExecutor(HEADS_AT_ONCE, "heads") as pool:
        live = readable(chain, store, pool.map).live
    files, of_text = _parquet_files(live, parsed, f"s3://{settings.bucket}/{chain.head.identity.final_root}")
    schema = RAW_SCHEMA if of_text else _typed_schema(chain, files)
    return _dataset(files, schema, arrow_filesystem(settings), settings.bucket)


def _parquet_files(live: LiveFiles, config: Config, folder: str) -> tuple[list[FileEntry], bool]:
    """Find the Parquet files that hold the table's rows, and whether the final files they stand for are of text.

    That is the final file itself, or else the merge state it was rendered from: the one with the same key range.
    """
    adopted = [FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted]
    finals = [*adopted, *(file for file in live.of(FileKind.FINAL) if not live.is_pending(file))]
    # A file name pattern may leave out the extension; then the configured format is all there is to go by.
    formats = {file.key: format_of(file.key) or chosen_format(config.format) for file in finals}
    ranges = {file.keys for file in finals if not formats[file.key].sorted_rows and file.keys is not None}
    states = [file for file in live.of(FileKind.STATE) if file.keys in ranges]
    covered = {file.keys for file in states}
    unreadable = [file.key for file in finals if not formats[file.key].sorted_rows and file.keys not in covered]
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
    """The table's columns; None where no schema is recorded yet.

    While a table is on its way to other types, all its files still have those of the schema before.
    """
    state = chain.head
    ids = [-1 if file.schema_id is None else file.schema_id for file in files if file.kind is not FileKind.ADOPTED]
    payload = state.schema
    if ids and -1 < max(ids) < state.types_since:
        payload = chain.schemas([max(ids)])[max(ids)]
    return None if payload is None else schema_from_text(payload["arrowSchema"])


def _dataset(files: Sequence[FileEntry], schema: pa.Schema | None, filesystem: S3FileSystem, bucket: str) -> ds.Dataset:
    # The chain knows the sizes, so that no file has to be asked for its own before it is read.
    fragments = [PARQUET.make_fragment(f"{bucket}/{file.key}", filesystem, file_size=file.bytes or None) for file in files]
    if schema is None:
        schema = fragments[0].physical_schema if fragments else pa.schema(META_FIELDS)
    return ds.FileSystemDataset(fragments, schema, PARQUET, filesystem)
