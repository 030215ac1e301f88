"""Facts of Parquet files from their footers: rows, bounds of keys, statistics.

Blocks do not have the last two, because they are values of records. The session that wrote a file knows them, and so does the hint.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.parquet as pq
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.bounded import DAMAGE, reading
from destination_s3_spark.formats.file_statistics import FileStatistics
from destination_s3_spark.formats.parquet_statistics import footer_statistics
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.tables.runs.sorted_file import keys_in
from destination_s3_spark.tables.stored.rewrite import damaged_file


def read_footer(store: ObjectStore, file: FileEntry) -> pq.FileMetaData:
    """Read the footer of a Parquet file, usually by one GET.

    Raises ObjectNotFound, TransientError, or pa.ArrowInvalid for an object that is not a Parquet file.
    """
    with RangedFile(store, file.key, file.bytes) as source:
        return pq.ParquetFile(source).metadata


def statistics_of(store: ObjectStore, file: FileEntry) -> FileStatistics:
    """Return the statistics in the footer of a file. Raises as `read_footer`."""
    return footer_statistics(read_footer(store, file))


def with_keys(files: Iterable[FileEntry], store: ObjectStore, map_files: MapCalls = map) -> list[FileEntry]:
    """Return the files with the bounds of their keys, if they are sorted. Reads the footer of each sorted file without bounds.

    Raises DataError for a file that is gone, TransientError, or Bug.
    """
    return list(map_files(lambda file: file if file.keys is not None or file.sorted_by is None else _with_keys(file, store), list(files)))


def with_statistics(files: Iterable[FileEntry], store: ObjectStore, map_files: MapCalls = map) -> list[FileEntry]:
    """Return the files with their statistics, if some were gathered. Reads the footer of each such file without statistics.

    A file that is gone or cannot be read stays without. Raises TransientError.
    """

    def read(file: FileEntry) -> FileEntry:
        if file.statistics is not None or file.unbounded is None:
            return file
        try:
            return replace(file, statistics=statistics_of(store, file))
        except (ObjectNotFound, *DAMAGE):
            return file  # nothing is lost but the statistics

    return list(map_files(read, list(files)))


def _with_keys(file: FileEntry, store: ObjectStore) -> FileEntry:
    try:
        with reading(lambda fault: damaged_file(file.key, fault)):
            footer = read_footer(store, file)
            known = replace(file, keys=keys_in(footer))
            # A publisher may need these later, and should not have to read the footer again.
            return known if known.unbounded is None else replace(known, statistics=footer_statistics(footer))
    except ObjectNotFound:
        raise DataError(
            f"'{file.key}' is gone, but the table needs its rows. Nothing was changed. Did something else delete it? Restore it from a "
            "backup or a bucket version, or refresh the stream."
        ) from None
