"""Sources of a table's rows: for each file, whether to read the file itself or its raw rows, as rows of the current columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing

import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.generation import NOTHING, Kept
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.stored.rewrite import Stored
from destination_s3_spark.tables.stored.rows import Misfits


def replaced_by_pending(live: LiveFiles, kept: Kept = NOTHING, lasting: Collection[FileEntry] = ()) -> list[FileEntry]:
    """List the files that the pending generation replaces: all but its raw files, the kept raw and adopted files, and `lasting`."""
    adopted = [FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted if key not in kept.adopted]
    stay = {file.key for file in (*kept.raw, *lasting)}
    old = [file for file in live.files if file.key not in stay and not (file.kind is FileKind.RAW and live.is_pending(file))]
    return [*adopted, *old, *live.dropped]


def raw_twins(live: LiveFiles, files: Sequence[FileEntry]) -> dict[str, FileEntry | None]:
    """Return, by the key of each file, the raw file with exactly its rows in the same order, or None if there is none.

    A file of a partition has none, because its offset does not tell which rows it has.
    """
    raw: dict[tuple[int | None, int], FileEntry] = {}
    for twin in live.of(FileKind.RAW):
        raw.setdefault((twin.offset, twin.rows), twin)
    placed = {file.key for file in files if file.offset is not None and file.partition is None}
    return {file.key: raw.get((file.offset, file.rows)) if file.key in placed else None for file in files}


def raw_covers(table: OpenTable, live: LiveFiles) -> bool:
    """Tell whether the raw table has every row that landed in the table since it was last replaced."""
    state = table.writer.state
    raw = [file for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    return state is not None and not live.adopted and sum(file.rows for file in raw) == state.contents.landed


def stored(table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], misfits: Misfits, s3: S3Settings) -> list[Stored]:
    """Choose how each file is read as rows of the current columns: from its raw rows if they were kept, else by cast.

    Raises ConfigError for a file that needs raw rows which were not kept.
    """
    twins = raw_twins(live, files)
    own = list(table.writer.map_files(lambda file: twins[file.key] is None and _has_raw_rows(file, s3), files))
    raw = {file.key: twins[file.key] or file for file, has_raw_rows in zip(files, own, strict=True) if has_raw_rows or twins[file.key]}
    cast = [file for file in files if file.key not in raw]
    unreadable = next((file for file in cast if table.layout.of_text or not file.key.endswith(ParquetOptions.extension)), None)
    if unreadable is not None:
        raise table.refuse(
            f"its file '{unreadable.key}' has to be rewritten with other columns. Files of this format can only be rewritten from the raw "
            "table, and the file's raw rows were not kept. Run a refresh that removes the records."
        )
    schemas = table.writer.schemas({file.schema_id for file in files if file.schema_id is not None})
    return [
        Stored(raw[file.key], table.plan_of(schemas[file.schema_id or 0]), None, table.schema, misfits)
        if file.key in raw
        else Stored(file, table.plan, schemas[file.schema_id or 0], table.schema, misfits)
        for file in files
    ]


def _has_raw_rows(file: FileEntry, s3: S3Settings) -> bool:
    """Tell whether the file holds raw rows, like runs and merge states of a table that has, or had, a text format."""
    if file.kind is FileKind.FINAL or not file.key.endswith(ParquetOptions.extension):
        return False
    with present(file.key, s3), closing(RangedFile(s3, file.key, file.bytes)) as source:
        return set(RAW_SCHEMA.names) <= set(pq.read_schema(source).names)


def extension(file: FileEntry) -> str:
    """Return the extension of the file's name, from its first dot on."""
    name = file.key.rsplit("/", 1)[-1]
    return name[name.index(".") :]
