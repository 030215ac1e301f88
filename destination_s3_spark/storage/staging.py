"""Writable file that becomes an S3 multipart upload and stays invisible until the upload is completed."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from destination_s3_spark.errors import Bug, SyncError
from destination_s3_spark.storage.object_store import StagedUpload, note_doubtful_upload
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.signing import SharedBeginning, SharedBody

logger = logging.getLogger(__name__)

FIRST_PART_BYTES = 10 * 2**20
"""Size of the first parts in bytes: most files of a small merged table are one part. S3 requires 5 MiB or more of all but the last."""

_PARTS_OF_A_SIZE = 1000
_PARTS_IN_FLIGHT = 2


def part_bytes(number: int) -> int:
    """Return the size in bytes of part `number` (from 1).

    It doubles every 1,000 parts, so that S3's limit of 10,000 parts holds more than the largest object.
    """
    return FIRST_PART_BYTES << ((number - 1) // _PARTS_OF_A_SIZE)


class StagedFileSink(io.RawIOBase):
    """Writable binary file for pyarrow and other writers. `stage()` returns the upload once all its parts are on S3.

    Memory: the part being filled and two in flight, at most three part sizes, and the bytes of one write. The next `write` or `stage`
    raises an upload error as ConfigError or TransientError. As a context manager the sink aborts unless `stage()` succeeded inside.
    `close()` only ends the writing, because writers close their file before the caller stages it. `copy` is a sink that gets the same
    bytes, part by part, until `end_copy`; the parts of both share their memory and are hashed once.
    """

    def __init__(
        self, settings: S3Settings, key: str, metadata: Mapping[str, str] | None = None, copy: StagedFileSink | None = None
    ) -> None:
        self.store = S3Store(settings)
        self.key = key
        self._metadata = dict(metadata or {})
        self._upload_id: str | None = None
        self._copy = copy
        self._shared: dict[int, SharedBeginning] = {} if copy is None else copy._shared
        self._pieces: list[bytes | memoryview] = []
        self._filled = 0
        self._size = 0
        self._parts: list[Future[str]] = []
        self._threads = ThreadPoolExecutor(_PARTS_IN_FLIGHT, thread_name_prefix="part-upload")
        self._staged: StagedUpload | None = None

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Append bytes (anything with the buffer protocol) and return their count."""
        if self.closed:
            raise ValueError("write to a closed file")
        for sent in self._parts[-_PARTS_IN_FLIGHT:]:
            if sent.done():
                sent.result()  # raises why it failed
        data = bytes(data)
        rest = memoryview(data)
        size = len(rest)
        while rest:
            taken = rest[: part_bytes(len(self._parts) + 1) - self._filled]
            self._pieces.append(data if len(taken) == size else taken)  # a part of one piece is not copied
            self._filled += len(taken)
            rest = rest[len(taken) :]
            if self._filled == part_bytes(len(self._parts) + 1):
                self._submit()
        self._size += size
        return size

    def end_copy(self, size: int) -> None:
        """Give the copy the bytes up to this size that it lacks, and none that follow."""
        if self._copy is None:
            return
        lacked = size - self._copy.tell()
        self._shared[len(self._parts) + 1] = SharedBeginning(max(0, lacked))
        for piece in self._pieces:
            self._copy.write(piece[: max(0, lacked)])
            lacked -= len(piece)
        self._copy = None

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return not self.closed

    def stage(self) -> StagedUpload:
        """Upload the rest and wait for all parts. Raises Bug for an empty file, which cannot be a multipart upload."""
        if self._staged is not None:
            return self._staged
        self.close()
        if self._size == 0:
            raise Bug(f"Nothing was written to '{self.key}'; do not stage empty files.")
        if self._pieces:
            self._submit()
        etags = tuple(part.result() for part in self._parts)
        self._threads.shutdown()
        if self._upload_id is None:
            raise Bug(f"'{self.key}' has bytes but no upload.")
        self._staged = StagedUpload(self.key, self._upload_id, etags, self._size)
        return self._staged

    def put(self) -> bool:
        """Make the file visible by one request. Return False for a file of several parts, which has to be staged."""
        self.close()
        if self._parts:
            return False
        self.store.put(self.key, b"".join(self._pieces), self._metadata)
        self._pieces.clear()  # a task may have many such files until it ends
        return True

    def abort(self) -> None:
        """Abort the upload without raising. If that fails, the end of the sync or the next opening of the table aborts it."""
        self.close()
        self._pieces.clear()
        # S3 may keep a part that arrives after the abort, so wait for the parts in flight first.
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._upload_id is None:
            return
        try:
            self.store.hasty().abort_upload(self.key, self._upload_id)
        except SyncError as error:
            logger.warning("An upload was left behind: %s", error)
            note_doubtful_upload()
        self._upload_id = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None or self._staged is None:
            self.abort()

    def _submit(self) -> None:
        """Upload the pieces as the next part. Wait while two parts are in flight."""
        if len(self._parts) >= _PARTS_IN_FLIGHT:
            self._parts[-_PARTS_IN_FLIGHT].result()
        if self._upload_id is None:
            with self.store.translated(f"Starting the upload of '{self.key}'"):
                self._upload_id = self.store.begin_upload(self.key, self._metadata)
        number, body = len(self._parts) + 1, b"".join(self._pieces)
        self._pieces, self._filled = [], 0
        if self._copy is not None:
            self._shared[number] = SharedBeginning(len(body))
            self._copy.write(body)
        beginning = self._shared.get(number)
        content = body if beginning is None else SharedBody(body, beginning)
        self._parts.append(self._threads.submit(self._upload_part, self._upload_id, number, content))

    def _upload_part(self, upload_id: str, number: int, body: bytes | SharedBody) -> str:
        with self.store.translated(f"Uploading part {number} of '{self.key}'"):
            answer = self.store.client.upload_part(
                Bucket=self.store.settings.bucket, Key=self.key, UploadId=upload_id, PartNumber=number, Body=body
            )
        return answer["ETag"]
