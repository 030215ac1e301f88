"""Streams of rows from sorted objects, within key bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.runs.merged_rows import RowStream
from destination_s3_spark.tables.runs.sorted_file import RUN_OPTIONS, MergeForm, SortedFile
from destination_s3_spark.tables.stored.presence import present
from destination_s3_spark.tables.updates.resources import TaskResources

READERS = 8
"""Sources of a task that are read in parallel: enough to hide the store's latency."""


PORTIONS_SHARE = 4
"""Divisor of the memory budget for the current portions of all sources. Reading ahead, merging and copying each take the same amount."""


ROUNDS_SHARE = 32
"""Divisor of the memory budget for rows of several rounds that are logged together. One call costs as much as thousands of rows."""


@dataclass(frozen=True, slots=True)
class Source:
    """A sorted object of `size` bytes without keys below `first`.

    A FINAL or STATE file holds rows of the table, a DELTA is a run, and a TOMBSTONE holds deleted keys. The arrivals of a DELTA count from
    `offset`.
    """

    kind: FileKind
    key: str
    size: int
    offset: int = 0
    first: bytes = b""


@contextmanager
def row_streams(
    sources: Sequence[Source], form: MergeForm, bounds: tuple[bytes, bytes | None], resources: TaskResources
) -> Iterator[list[RowStream]]:
    """Open the sources as streams of rows within the bounds.

    Each source is opened when its first key is reached, and its footer is dropped at its end, because the footers of many runs would take
    more memory than their rows.
    """
    portion_bytes = max(RUN_OPTIONS.row_group_bytes, resources.budget_bytes // PORTIONS_SHARE // max(1, len(sources)))
    with ThreadPoolExecutor(READERS, "merge-read") as pool:
        yield [
            RowStream(_read(source, form, bounds, portion_bytes, resources.s3), pool, max(bounds[0], source.first)) for source in sources
        ]


def _read(source: Source, form: MergeForm, bounds: tuple[bytes, bytes | None], portion_bytes: int, s3: S3Settings) -> Iterator[pa.Table]:
    with present(source.key, s3), closing(RangedFile(s3, source.key, source.size)) as file:
        yield from SortedFile(file, source.kind, form, source.offset).read(*bounds, portion_bytes)
