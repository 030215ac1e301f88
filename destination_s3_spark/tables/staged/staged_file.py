"""Files being written into multipart uploads, whatever their purpose and format: one, a series, or one for each partition of the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.settle import complete
from destination_s3_spark.errors import Bug, ConfigError, TransientError
from destination_s3_spark.formats.file_format import Content, FileColumns, FileOptions, FileWriter
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.storage.paths import MAX_KEY_BYTES
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink

MOST_PARTITIONS = 1_000
"""Most partitions that the records of a slice may fall into. Compaction joins small files, but not as fast as such a source makes them."""
UPLOADS_AT_ONCE = 8

SeriesKey = TypeVar("SeriesKey")
"""The key of a file in a series, or the keys of files with the same rows."""


class StagedFile(Generic[Content]):
    """A file that `writer` writes into `sink`. Leaving the context with an error, or before `stage`, aborts the upload."""

    def __init__(
        self, kind: FileKind, sink: StagedFileSink, writer: FileWriter[Content], partition: str | None = None, *, scratch: bool = False
    ) -> None:
        self._kind = kind
        self._sink = sink
        self._writer = writer
        self._partition = partition
        self._scratch = scratch
        self._written: WrittenFile | None = None

    def __enter__(self) -> StagedFile[Content]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._written is None:
            self._writer.abandon()
        self._sink.__exit__(kind, error, trace)

    @property
    def bytes(self) -> int:
        """The size of the file so far, without rows that wait for the end of their row group."""
        return self._sink.tell()

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
        """As `PartitionedFiles.stage_all`: the one file. A scratch file becomes visible, too."""
        return (self.publish() if self._scratch else self.stage(),)

    def publish(self) -> FileEntry:
        """Finish a scratch file and make it visible. Raises TransientError if its upload has gone."""
        written = self.close()
        if self._sink.put():
            return FileEntry.put(self._kind, self._sink.key, self._sink.tell(), written)
        staged = self.stage()
        if not complete(self._sink.store, [staged]):
            raise TransientError(f"The upload of '{staged.key}' has gone before it was complete. Try again.")
        return staged.visible()


def batches_of(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `size` bytes."""
    if len(rows):
        yield from rows.combine_chunks().to_batches(max_chunksize=max(1, len(rows) * size // max(rows.nbytes, 1)))


def key_in(key: str, folder: str) -> str:
    """Return the key with a folder, "" or ending in "/", before the file's name. Raises ConfigError for a key longer than S3's limit."""
    path, slash, name = key.rpartition("/")
    found = f"{path}{slash}{folder}{name}"
    if len(found.encode()) > MAX_KEY_BYTES:
        raise ConfigError(f"The key '{found[:100]}…' is longer than S3's {MAX_KEY_BYTES} bytes. Shorten s3_bucket_path or s3_path_format.")
    return found


class FileOfSeries(Protocol):
    """A file of a series, or several with the same rows. Its members are those of StagedFile."""

    @property
    def bytes(self) -> int: ...
    def write(self, batch: pa.RecordBatch, /) -> None: ...
    def stage_all(self) -> tuple[FileEntry, ...]: ...


class FileSeries(Generic[SeriesKey]):
    """Staged files of rows, each up to `full_bytes`. When keys run out, the last file grows.

    `start` begins the file of the next key, in a context that aborts what is not staged. `row_bytes`: the estimated size of a row that
    waits for the end of its row group. None lets rows count as much as they take in Arrow memory.
    """

    def __init__(
        self, keys: Iterable[SeriesKey], full_bytes: float, start: Callable[[SeriesKey], FileOfSeries], row_bytes: float | None = 0
    ) -> None:
        self._keys = deque(keys)
        self._full_bytes = full_bytes
        self._start = start
        self._row_bytes = row_bytes
        self._file: FileOfSeries | None = None
        self._expected_bytes = 0.0
        self._staged: list[FileEntry] = []

    def write(self, rows: pa.Table, piece_bytes: int) -> None:
        """Write the next rows in pieces of this size in Arrow memory."""
        for batch in batches_of(rows, piece_bytes):
            self.write_piece(batch)

    def write_piece(self, batch: pa.RecordBatch) -> None:
        """Write the next rows at once."""
        if not batch.num_rows:
            return
        if self._file is not None and self._keys and max(self._file.bytes, self._expected_bytes) >= self._full_bytes:
            self.stage()
        if self._file is None:
            if not self._keys:
                raise Bug("A merge has rows and no key to write them to; nothing was committed.")
            self._file, self._expected_bytes = self._start(self._keys.popleft()), 0
        self._file.write(batch)
        self._expected_bytes += batch.nbytes if self._row_bytes is None else batch.num_rows * self._row_bytes

    def stage(self) -> tuple[FileEntry, ...]:
        """Finish the open file, and return all files."""
        if self._file is not None:
            self._staged += self._file.stage_all()
            self._file = None
        return tuple(self._staged)


@dataclass(slots=True)
class PartitionedFiles:
    """Rows that wait in memory, and the files of their partitions.

    `key` is that of an unpartitioned file. `stack` aborts all uploads when it is left with an error. `bytes`: Arrow memory of the rows.
    """

    kind: FileKind
    key: str
    columns: FileColumns
    options: FileOptions
    partitioning: Partitioning
    metadata: Mapping[str, str]
    s3: S3Settings
    stack: ExitStack
    bytes: int = 0
    _waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        for value, part in self.partitioning.split(rows):
            self._waiting.setdefault(value, []).append(part)
        self.bytes += rows.nbytes

    @property
    def partitions(self) -> int:
        return len(self._waiting)

    def stage_all(self) -> tuple[FileEntry, ...]:
        """Write and upload a file for each partition, in the order of their values. None becomes visible."""
        with ThreadPoolExecutor(UPLOADS_AT_ONCE, "partitions") as pool:
            # Rows are encoded here, one partition after the other, while the files before are being uploaded.
            uploads = [pool.submit(self._written(value).stage) for value in sorted(self._waiting)]
            return tuple(upload.result() for upload in uploads)

    def _written(self, value: str) -> StagedFile[pa.RecordBatch]:
        sink = StagedFileSink(self.s3, key_in(self.key, self.partitioning.folder(value)), self.metadata)
        file = self.stack.enter_context(StagedFile(self.kind, sink, self.options.open(sink, self.columns), value))
        for rows in self._waiting.pop(value):
            file.write(rows)
        file.close()
        return file
