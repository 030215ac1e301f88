"""Files of valid versions that are written together with the final files of the same rows.

Both files of a pair have the same pages, which are encoded once. The final file lacks those of the columns of a history at its end, and its
footer lists none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from io import BytesIO

import pyarrow as pa
from msgspec.structs import replace as with_fields

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_statistics import FileStatistics, WrittenFile
from destination_s3_spark.formats.parquet import ParquetFile, ParquetOptions
from destination_s3_spark.formats.parquet_footer import Footer, narrowed_footer, narrowed_pages_end, read_footer
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.columns.validity import VALIDITY
from destination_s3_spark.tables.history.form import HistoryForm
from destination_s3_spark.tables.history.output import VersionTask
from destination_s3_spark.tables.runs.sorted_file import SortedFileWriter
from destination_s3_spark.tables.runs.table_format import FileKeys
from destination_s3_spark.tables.staged.staged_file import StagedFile


class SoftlyDeleted(Exception):
    """A row of a final file is softly deleted, so the file of valid versions has not the same rows."""


class TwinFile:
    """A file of valid versions, and the final file with the same rows. Both are aborted unless `stage_all` was called within the stack."""

    def __init__(self, task: VersionTask, keys: FileKeys, partition: str | None, s3: S3Settings, stack: ExitStack) -> None:
        """Begin the files. `partition`: that of the final file, if it has one."""
        if keys.versions is None:
            raise Bug("There is no key for the versions beside a final file; nothing was committed.")
        form = self._form = task.form
        self._number = task.number
        self._partition = partition
        self._final = stack.enter_context(StagedFileSink(s3, keys.final, form.metadata))
        sink = StagedFileSink(s3, keys.versions, form.metadata, copy=self._final)
        self._file = stack.enter_context(StagedFile(FileKind.CURRENT, sink, _TwinWriter(sink, self._final, form)))

    @property
    def bytes(self) -> int:
        """The size of the files so far, without rows that wait for the end of their row group."""
        return self._file.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append live rows in merge form, with the columns of a history. Raise SoftlyDeleted for others."""
        if not self._form.is_live(batch).all():
            raise SoftlyDeleted
        self._file.write(batch)

    def stage_all(self) -> tuple[FileEntry, ...]:
        """Finish both files and their uploads. Return the final file, and that of versions."""
        versions = self._file.stage()
        written = _of_final(self._file.close())
        final = FileEntry.staged(FileKind.FINAL, self._final.stage(), written, in_partition=self._partition is not None)
        return final, with_fields(versions, history=self._number, copy_of=final.key)


class _TwinWriter(SortedFileWriter):
    """Writer of a file of versions whose sink gives all pages to that of a final file, too."""

    def __init__(self, sink: StagedFileSink, final: StagedFileSink, form: HistoryForm) -> None:
        self._sink = sink
        self._held = _HeldFooter(sink)
        self._final = final
        self._form = form
        super().__init__(self._held, form.columns, form.spec, form.options)

    def close(self, metadata: Mapping[str, str] | None = None) -> WrittenFile:
        self.end_pages()
        own = self._held.hold()
        written = super().close(metadata)
        footer, empty = read_footer(bytes(own), self._sink.tell() + len(own)), _empty(self._form.columns, self._form.options)
        self._sink.end_copy(narrowed_pages_end(footer, empty))
        self._sink.write(own)
        self._final.write(narrowed_footer(footer, empty))
        return written


class _HeldFooter:
    """A sink of a Parquet file that passes its pages on, and keeps the footer."""

    def __init__(self, sink: StagedFileSink) -> None:
        self._sink = sink
        self._footer: bytearray | None = None

    def write(self, data: bytes | memoryview) -> int:
        if self._footer is None:
            return self._sink.write(data)
        self._footer += data
        return len(data)

    def hold(self) -> bytearray:
        """Return the buffer that takes all further bytes."""
        self._footer = bytearray()
        return self._footer


@lru_cache(maxsize=8)
def _empty(columns: pa.Schema, options: ParquetOptions) -> Footer:
    """Return the footer of a final file without rows, given the columns of its history."""
    file = BytesIO()
    ParquetFile(file, pa.schema(list(columns)[: -len(VALIDITY)]), options).close()
    return read_footer(file.getvalue(), len(file.getvalue()))


def _of_final(written: WrittenFile) -> WrittenFile:
    """Return what a file of versions says of its rows without the columns of a history."""
    if written.statistics is None:
        return written
    own = {field.name for field in VALIDITY}
    trees = (written.statistics.min, written.statistics.max, written.statistics.nulls)
    return replace(written, statistics=FileStatistics(*({name: one for name, one in tree.items() if name not in own} for tree in trees)))
