"""Files of the partitions that rows fall into, written by one task as staged uploads."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import ConfigError, DataError
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.formats.file_writer import FileColumns
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.storage.object_store import StagedUpload
from destination_s3_spark.storage.paths import MAX_KEY_BYTES
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink

MOST_PARTITIONS = 1_000
"""Most partitions that the records of a slice may fall into. Compaction joins small files, but not as fast as such a source makes them."""
UPLOADS_AT_ONCE = 8


def key_in(key: str, folder: str) -> str:
    """Return the key with a folder, "" or ending in "/", before the file's name. Raises ConfigError for a key longer than S3's limit."""
    path, slash, name = key.rpartition("/")
    found = f"{path}{slash}{folder}{name}"
    if len(found.encode()) > MAX_KEY_BYTES:
        raise ConfigError(f"The key '{found[:100]}…' is longer than S3's {MAX_KEY_BYTES} bytes. Shorten s3_bucket_path or s3_path_format.")
    return found


class PartitionedFiles:
    """Rows that wait in memory, and the files of their partitions. `key` is that of an unpartitioned file.

    A context manager that aborts all uploads when it is left with an error.
    """

    def __init__(
        self,
        kind: FileKind,
        key: str,
        columns: FileColumns,
        options: FileOptions,
        partitioning: Partitioning,
        metadata: Mapping[str, str],
        s3: S3Settings,
    ) -> None:
        self._kind = kind
        self._key = key
        self._columns = columns
        self._options = options
        self._partitioning = partitioning
        self._metadata = metadata
        self._s3 = s3
        self._stack = ExitStack()
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self.bytes = 0
        """Arrow memory of the rows."""

    def __enter__(self) -> PartitionedFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, rows: pa.RecordBatch) -> None:
        """Take over rows."""
        if not rows.num_rows:
            return
        for value, part in self._partitioning.split(rows):
            self._waiting.setdefault(value, []).append(part)
        self.bytes += rows.nbytes

    @property
    def partitions(self) -> int:
        """Number of partitions with rows."""
        return len(self._waiting)

    def require_few(self) -> None:
        """Raise DataError for rows of too many partitions."""
        if self.partitions > MOST_PARTITIONS:
            source, stream = self._partitioning.spec.source, self._columns.stream
            raise DataError(
                f"Stream '{stream}': the column '{source}' divides the records of one batch into more than {MOST_PARTITIONS:,} partitions, "
                "and each of them would be a small file. Choose another column or a coarser transform in tables.partition_by, and refresh "
                "the stream.",
                stream=stream,
            )

    def stage(self) -> tuple[FileEntry, ...]:
        """Write and upload a file for each partition, in the order of their values. None becomes visible."""
        with ThreadPoolExecutor(UPLOADS_AT_ONCE, "partitions") as pool:
            # Rows are encoded here, one partition after the other, while the files before are being uploaded.
            staged = [self._staged(value, pool) for value in sorted(self._waiting)]
            return tuple(file.file(self._kind) for file in staged)

    def _staged(self, value: str, pool: ThreadPoolExecutor) -> _Staged:
        key = key_in(self._key, self._partitioning.folder(value))
        sink = self._stack.enter_context(StagedFileSink(self._s3, key, self._metadata))
        file = self._options.open(sink, self._columns)
        try:
            for rows in self._waiting.pop(value):
                file.write(rows)
        except BaseException:
            file.abandon()
            raise
        written = file.close()
        return _Staged(pool.submit(sink.stage), written, value)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A file whose upload is under way."""

    upload: Future[StagedUpload]
    written: WrittenFile
    partition: str

    def file(self, kind: FileKind) -> FileEntry:
        return FileEntry.staged(kind, self.upload.result(), self.written, self.partition)
