"""A file being written into a multipart upload, whatever its purpose and its format."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.formats.file_format import Content, FileWriter
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.storage.staging import StagedFileSink


class StagedFile(Generic[Content]):
    """A file that `writer` writes into `sink`. Leaving the context with an error, or before `stage`, aborts the upload."""

    def __init__(self, kind: FileKind, sink: StagedFileSink, writer: FileWriter[Content], partition: str | None = None) -> None:
        self._kind = kind
        self._sink = sink
        self._writer = writer
        self._partition = partition
        self._written: WrittenFile | None = None

    def __enter__(self) -> StagedFile[Content]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._written is None:
            self._writer.abandon()
        self._sink.__exit__(kind, error, trace)

    @property
    def bytes(self) -> int:
        """The approximate size of the file so far. Rows that will be compressed count once they are."""
        return self._sink.tell() + self._writer.buffered_bytes

    def write(self, content: Content) -> None:
        """Append what the writer takes, mostly rows."""
        self._writer.write(content)

    def close(self) -> WrittenFile:
        """Finish the content. Its end may still have to be uploaded."""
        if self._written is None:
            self._written = self._writer.close()
        return self._written

    def stage(self) -> FileEntry:
        """Finish the file and its upload."""
        written = self.close()
        return FileEntry.staged(self._kind, self._sink.stage(), written, in_partition=self._partition is not None)

    def stage_all(self) -> tuple[FileEntry, ...]:
        """As `PartitionedFiles.stage_all`: the one file."""
        return (self.stage(),)


def batches_of(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `size` bytes."""
    if len(rows):
        yield from rows.combine_chunks().to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1)))
