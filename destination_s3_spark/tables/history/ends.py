"""Ends of the last versions of keys that have no valid version, looked up in the files of versions that have ended.

A record of such a key is a new row as a rule: it is newer than all that has ended. Then the statistics in the footers say so, and no row
is read. Otherwise the key's row was deleted, and the record may be older than that, although the table has forgotten it at a refresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.storage.ranged import opened
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.columns.validity import VALID_TO
from destination_s3_spark.tables.runs.keys import KEY, META, RAW_ID
from destination_s3_spark.tables.runs.merged_rows import RowSource
from destination_s3_spark.tables.runs.refreshed import micros
from destination_s3_spark.tables.runs.sorted_file import MergeForm, SortedFile
from destination_s3_spark.tables.runs.winners import EXTRACTED_AT, Indices

NEVER = np.iinfo(np.int64).min
"""The end of the last version of a key that has none, or none that ended after its records."""


class Ends:
    """The ends of versions in files, in order of their keys. Ask for ascending keys. Use it in one thread."""

    def __init__(self, sources: Sequence[RowSource], form: MergeForm, s3: S3Settings) -> None:
        self._sources = sources
        self._form = form.narrowed({RAW_ID, META, EXTRACTED_AT, VALID_TO, *(field.name for field in form.spec.fields)})
        self._s3 = s3
        self._latest: dict[str, int] = {}

    def of(self, keys: pa.BinaryArray, earliest: Indices) -> Indices:
        """Return when the last version of each key ended, in microseconds since 1970. `keys` are distinct and ascending.

        NEVER for a key without versions, or if no version of any of the keys ended after its time in `earliest`.
        """
        found = np.full(len(keys), NEVER)
        low, high, least = keys[0].as_py(), keys[-1].as_py(), int(earliest.min())
        self._sources = [source for source in self._sources if source.last is None or source.last >= low]
        for source in self._sources:
            if source.first <= high and self._latest_of(source) > least:
                for rows in self._rows(source, low, high, least):
                    places = np.asarray(pc.index_in(contiguous(rows[KEY]), keys).fill_null(-1))
                    ends = np.asarray(contiguous(rows[VALID_TO]).cast(pa.int64()))
                    np.maximum.at(found, places[places >= 0], ends[places >= 0])
        return found

    def _latest_of(self, source: RowSource) -> int:
        """Return the latest end of a version in the source. Only it stays in memory, because footers are large."""
        if source.key not in self._latest:
            with opened(source.key, source.size, self._s3) as file:
                footer = pq.ParquetFile(file).metadata
                self._latest[source.key] = max(_latest_end(footer.row_group(number)) for number in range(footer.num_row_groups))
        return self._latest[source.key]

    def _rows(self, source: RowSource, low: bytes, high: bytes, least: int) -> Iterator[pa.Table]:
        with opened(source.key, source.size, self._s3) as file:
            stored = SortedFile(file, source.kind, self._form)
            yield from stored.read(low, high + b"\0", wanted=lambda group: _latest_end(group) > least)


def _latest_end(group: pq.RowGroupMetaData) -> int:
    """Return the latest end of a version in a row group, in microseconds since 1970."""
    columns = (group.column(number) for number in range(group.num_columns))
    statistics = next(column.statistics for column in columns if column.path_in_schema == VALID_TO)
    if statistics is None or not statistics.has_min_max:
        return int(np.iinfo(np.int64).max)
    return micros(statistics.max)
