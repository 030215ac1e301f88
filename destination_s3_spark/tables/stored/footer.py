"""Facts of an existing Parquet file from its footer, for publishers: files that an earlier version or destination-s3 wrote."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import pyarrow.parquet as pq

from destination_s3_spark.formats.file_statistics import FileStatistics
from destination_s3_spark.formats.parquet_statistics import footer_statistics
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.storage.ranged import RangedFile


class StoredFile(NamedTuple):
    """A file's number of rows, its size in bytes and its statistics."""

    rows: int
    bytes: int
    statistics: FileStatistics


def statistics_of(store: ObjectStore, key: str) -> StoredFile:
    """Read a Parquet file's footer by one HEAD and usually one GET.

    Raises ObjectNotFound, TransientError, or pa.ArrowInvalid for an object that is not a Parquet file.
    """
    info = store.head(key)
    if info is None:
        raise ObjectNotFound(key)
    with closing(RangedFile(store, key, info.size)) as source:
        footer = pq.ParquetFile(source).metadata
    return StoredFile(footer.num_rows, info.size, footer_statistics(footer))
