"""Sorted objects as streams of rows within bounds of keys."""

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

READERS = 8
"""Sources of a task that are read side by side: enough to hide the store's latency."""


PORTIONS_SHARE = 4
"""One part in so many of the budget is for the portions the sources have; as much again is read ahead, merged and copied."""


ROUNDS_SHARE = 32
"""One part in so many of the budget is for rows of several rounds, which are logged together: each time costs like thousands of rows."""


@dataclass(frozen=True, slots=True)
class Source:
    """A sorted object of `size` bytes. FINAL or STATE: rows of the table; DELTA: a run, whose arrivals count from `offset`; TOMBSTONE.

    No key of it is below `first`.
    """

    kind: FileKind
    key: str
    size: int
    offset: int = 0
    first: bytes = b""


@contextmanager
def row_streams(
    sources: Sequence[Source], form: MergeForm, bounds: tuple[bytes, bytes | None], budget_bytes: int, s3: S3Settings
) -> Iterator[list[RowStream]]:
    """The sources' rows within the bounds. Each is opened when its first key is reached, and a footer is dropped at its end: those of many
    runs would take more memory than their rows.
    """
    portion_bytes = max(RUN_OPTIONS.row_group_bytes, budget_bytes // PORTIONS_SHARE // max(1, len(sources)))
    with ThreadPoolExecutor(READERS, "merge-read") as pool:
        yield [RowStream(_read(source, form, bounds, portion_bytes, s3), pool, max(bounds[0], source.first)) for source in sources]


def _read(source: Source, form: MergeForm, bounds: tuple[bytes, bytes | None], portion_bytes: int, s3: S3Settings) -> Iterator[pa.Table]:
    with present(source.key, s3), closing(RangedFile(s3, source.key, source.size)) as file:
        yield from SortedFile(file, source.kind, form, source.offset).read(*bounds, portion_bytes)
