"""Files of the partitions that rows fall into, written by one task as staged uploads."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_format import FileColumns, FileOptions
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.storage.paths import MAX_KEY_BYTES
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.staged.staged_file import StagedFile

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
        self.columns = columns
        self._options = options
        self.partitioning = partitioning
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
        for value, part in self.partitioning.split(rows):
            self._waiting.setdefault(value, []).append(part)
        self.bytes += rows.nbytes

    @property
    def partitions(self) -> int:
        """Number of partitions with rows."""
        return len(self._waiting)

    def stage_all(self) -> tuple[FileEntry, ...]:
        """Write and upload a file for each partition, in the order of their values. None becomes visible."""
        with ThreadPoolExecutor(UPLOADS_AT_ONCE, "partitions") as pool:
            # Rows are encoded here, one partition after the other, while the files before are being uploaded.
            uploads = [pool.submit(self._written(value).stage) for value in sorted(self._waiting)]
            return tuple(upload.result() for upload in uploads)

    def _written(self, value: str) -> StagedFile[pa.RecordBatch]:
        sink = StagedFileSink(self._s3, key_in(self._key, self.partitioning.folder(value)), self._metadata)
        file = self._stack.enter_context(StagedFile(self._kind, sink, self._options.open(sink, self.columns), value))
        for rows in self._waiting.pop(value):
            file.write(rows)
        file.close()
        return file
