"""A sorted file or a change log file being written into a multipart upload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.settle import complete
from destination_s3_spark.errors import Bug, TransientError
from destination_s3_spark.formats.file_writer import FileWriter
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.runs.sorted_file import SortedFileWriter, tombstone_schema


class StagedFile:
    """A file being written into a multipart upload. Leaving the context with an error or before `stage` aborts the upload."""

    def __init__(self, kind: FileKind, sink: StagedFileSink, writer: FileWriter | SortedFileWriter) -> None:
        self.kind = kind
        self.sink = sink
        self.writer = writer

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.writer.abandon()
        self.sink.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch, keys: pa.BinaryArray | None = None) -> None:
        """Append rows. A sorted file also needs their keys."""
        if not isinstance(self.writer, SortedFileWriter):
            self.writer.write(batch)
        elif keys is not None:
            self.writer.write(batch, keys)
        else:
            raise Bug("Rows of a sorted file came without their keys; nothing was committed.")

    def stage(self) -> FileEntry:
        """Finish the file, which must have rows, and stage its upload."""
        written = self.writer.close()
        return FileEntry.staged(self.kind, self.sink.stage(), written)


def tombstone_file(key: str, spec: KeySpec, s3: S3Settings, metadata: Mapping[str, str]) -> StagedFile:
    """Start a tombstone file. Its rows are the `tombstones` of winners."""
    sink = StagedFileSink(s3, key, metadata)
    return StagedFile(FileKind.TOMBSTONE, sink, SortedFileWriter(sink, tombstone_schema(spec), spec.of_deletions))


def tombstones(batch: pa.RecordBatch, spec: KeySpec) -> pa.RecordBatch:
    """Return the columns of a tombstone file from deletions in merge form."""
    return columns(batch, tombstone_schema(spec))


def pieces(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `size` bytes."""
    if len(rows):
        yield from rows.combine_chunks().to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1)))


def columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Select the columns of the schema from the batch."""
    return pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)


def visible_run(staged: FileEntry, s3: S3Settings) -> FileEntry:
    """Complete the upload of a staged scratch run, so that it can be read. Raises TransientError if the upload is gone."""
    if not complete(S3Store(s3), [staged]):
        raise TransientError(f"The upload of s3://{s3.bucket}/{staged.key} has gone before it was complete. Try again.")
    return staged.visible()
