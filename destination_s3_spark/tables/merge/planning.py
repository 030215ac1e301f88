"""Planning of merges from the files of a table: their bounds, and the indexes in the footers of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.storage.ranged import RangedFile, opened
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.merge.plan import MergePlan, Run, Sizes, plan_merge
from destination_s3_spark.tables.merge.replaced_files import SortedTableFile
from destination_s3_spark.tables.runs.keys import KEY, KeySpec, keys_of, lower, partition_bounds, upper
from destination_s3_spark.tables.runs.sorted_file import index_of
from destination_s3_spark.tables.updates.inputs import MergeInputs

LOOK_CLOSELY_BELOW = 4
"""Divisor of the table's rows. Fewer rows in runs than that are examined key by key, to find the files that they really touch."""


def plan_of(
    inputs: MergeInputs,
    runs: Sequence[FileEntry],
    spec: KeySpec,
    sizes: Sizes,
    s3: S3Settings,
    map_files: MapCalls,
    some: Callable[[RangedFile], Sequence[int]] | None = None,
) -> MergePlan:
    """Plan the merge of sorted runs into the files of `inputs`. `some`: returns the row groups of a run to merge, by default all."""
    versions = (replace(table_file(file, file, spec), rows=0, bytes=0, of_history=True) for file in inputs.versions)
    files = [*(table_file(rows, final, spec) for rows, final in inputs.table), *versions]
    # If much of the table changes, nearly every file is touched, and examining keys would save nothing.
    closely = sum(file.rows for file in runs) * LOOK_CLOSELY_BELOW < sum(file.rows for file in files)

    def read(file: FileEntry) -> Run:
        with opened(file.key, file.bytes, s3) as source:
            groups = index_of(pq.ParquetFile(source).metadata)
            numbers = range(len(groups)) if some is None or file.kind is FileKind.TOMBSTONE else some(source)
            found = Run(file.key, file.bytes, file.offset or 0, tuple(groups[number] for number in numbers))
            if not closely:
                return found
            return found.divided(files, lambda place: pq.ParquetFile(source).read_row_group(numbers[place], columns=[KEY])[KEY])

    return plan_merge(files, list(map_files(read, runs)), list(map_files(read, inputs.tombstones)), sizes)


def table_file(rows: FileEntry, final: FileEntry, spec: KeySpec) -> SortedTableFile:
    first, last = lower(keys_of(rows)), upper(keys_of(rows))
    return SortedTableFile(rows.key, rows.bytes, first, last, rows.rows, final.bytes, *partition_bounds(first, spec))
