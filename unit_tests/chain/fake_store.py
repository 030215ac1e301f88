"""An S3 bucket in memory that crashes its caller, times out or loses uploads when told to. It stands in for `ObjectStore` and staging."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import TypeVar

from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.object_store import (
    MOST_BYTES,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRange,
    ObjectTooLarge,
    OutcomeUnknown,
    StagedUpload,
    UploadFailed,
)

Result = TypeVar("Result")


def _etag(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


class Crash(BaseException):
    """The process is gone: nothing of it runs any more."""


class Fault(Enum):
    """What happens to a call, before or after it took effect."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    TIMEOUT_BEFORE = "timeout before"
    TIMEOUT_AFTER = "timeout after"


class Completes(Enum):
    """What stores answer to a repeated CompleteMultipartUpload: AWS says it is fine, MinIO knows no such upload."""

    REPEATABLE = "repeatable"
    ONCE = "once"


WITH_UNKNOWN_OUTCOME = {"create", "complete_upload"}

Hook = Callable[[int, str], Fault | None]
Watch = Callable[[str, bytes, int], None]


class FakeStore:
    """The bucket. `hook(number, name)` decides the fate of each call; `watch(key, body, +1 or -1)` sees uploads appear and files go."""

    def __init__(self, completes: Completes = Completes.REPEATABLE, watch: Watch | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, tuple[str, bytes]] = {}
        self.metadata: dict[str, Mapping[str, str]] = {}
        self.modified: dict[str, datetime] = {}
        """Times that LIST tells."""
        self.may_overwrite = False
        self.keeps_versions = False
        """Whether it keeps versions, as a bucket of an old Ceph: it overwrites on `create`, and its answer tells that it may."""
        self.replaced: dict[str, list[bytes]] = {}
        self.conditional = True
        """Whether `replace` looks at the ETag."""
        self.hook: Hook | None = None
        self.calls: list[tuple[str, str]] = []
        self._completes = completes
        self._completed: dict[str, str] = {}
        self._watch = watch
        self._upload_count = 0

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def get(self, key: str, most_bytes: int = MOST_BYTES) -> bytes:
        def effect() -> bytes:
            if key not in self.objects:
                raise ObjectNotFound(key)
            if len(self.objects[key]) > most_bytes:
                raise ObjectTooLarge(key, len(self.objects[key]), most_bytes)
            return self.objects[key]

        return self._call("get", key, effect)

    def get_range(self, key: str, start: int, end: int, size: int) -> bytes:
        return self.get(key)[start:end]

    def head(self, key: str) -> ObjectInfo | None:
        return self._call("head", key, lambda: self._info(key))

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        def effect() -> None:
            self.objects[key], self.metadata[key] = body, metadata or {}

        self._call("put", key, effect)

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        def effect() -> str:
            now = self._info(key)
            if self.conditional and (now and now.etag) != etag:
                raise ObjectChanged(key, now)
            self.objects[key], self.metadata[key] = body, metadata
            return _etag(body)

        return self._call("replace", key, effect)

    def hasty(self) -> FakeStore:
        return self

    def create(self, key: str, body: bytes) -> None:
        def effect() -> None:
            if self.keeps_versions:
                self.may_overwrite = True
                self.replaced.setdefault(key, []).extend([self.objects[key]] if key in self.objects else [])
            elif key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body

        self._call("create", key, effect)

    def restore(self, key: str, wanted: Callable[[bytes], bool]) -> None:
        while not wanted(self.objects[key]):
            self.objects[key] = self.replaced[key].pop()

    def delete(self, keys: Sequence[str]) -> None:
        def effect() -> None:
            for key in keys:
                body = self.objects.pop(key, None)
                if body is not None and self._watch is not None:
                    self._watch(key, body, -1)

        self._call("delete", ",".join(keys), effect)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = [
            ObjectInfo(key, len(body), modified=self.modified.get(key))
            for key, body in sorted(self.objects.items())
            if key.startswith(prefix)
        ]
        return iter(self._call("list", prefix, lambda: found))

    def folders(self, prefix: str) -> Iterator[str]:
        rest = [key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)]
        found = sorted({f"{prefix}{name.partition('/')[0]}/" for name in rest if "/" in name})
        return iter(self._call("folders", prefix, lambda: found))

    def stage_copy(self, source: str, key: str, metadata: Mapping[str, str] | None = None) -> StagedUpload:
        return self.stage(key, self.get(source))

    def stage_joined(self, ranges: Sequence[ObjectRange], tail: bytes, key: str, metadata: Mapping[str, str]) -> StagedUpload:
        return self.stage(key, b"".join(self.get(part.key)[part.start : part.end] for part in ranges) + tail)

    def complete_upload(self, upload: StagedUpload) -> None:
        def effect() -> None:
            if self._completed.get(upload.upload_id) == upload.key and self._completes is Completes.REPEATABLE:
                return
            if upload.upload_id not in self.uploads:
                raise UploadFailed(upload.key)
            key, body = self.uploads.pop(upload.upload_id)
            self._completed[upload.upload_id] = key
            self.objects[key] = body
            if self._watch is not None:
                self._watch(key, body, 1)

        self._call("complete_upload", upload.key, effect)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._call("abort_upload", key, lambda: self.uploads.pop(upload_id, None))

    def list_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        found = [(key, upload_id) for upload_id, (key, _) in self.uploads.items() if key.startswith(prefix)]
        return iter(self._call("list_uploads", prefix, lambda: found))

    def _info(self, key: str) -> ObjectInfo | None:
        body = self.objects.get(key)
        return None if body is None else ObjectInfo(key, len(body), self.metadata.get(key, {}), _etag(body))

    def stage(self, key: str, body: bytes) -> StagedUpload:
        """What a task does: create an upload and send one part. Two calls; a failure in between leaves the upload behind."""

        def begin() -> str:
            self._upload_count += 1
            self.uploads[f"upload-{self._upload_count}"] = (key, b"")
            return f"upload-{self._upload_count}"

        upload_id = self._call("create_upload", key, begin)

        def part() -> None:
            if upload_id not in self.uploads:
                raise TransientError(f"no such upload of {key}")
            self.uploads[upload_id] = (key, body)

        self._call("upload_part", key, part)
        return StagedUpload(key, upload_id, ("etag",), len(body))

    def _call(self, name: str, key: str, effect: Callable[[], Result]) -> Result:
        self.calls.append((name, key))
        fault = self.hook(len(self.calls), name) if self.hook is not None else None
        if fault is None:
            return effect()
        if fault is Fault.CRASH_BEFORE:
            raise Crash
        if fault is not Fault.TIMEOUT_BEFORE:
            with suppress(
                ObjectChanged, ObjectExists, ObjectNotFound, UploadFailed, TransientError
            ):  # the answer is lost with the connection
                effect()
        if fault is Fault.CRASH_AFTER:
            raise Crash
        raise OutcomeUnknown(key) if name in WITH_UNKNOWN_OUTCOME else TransientError(f"timeout: {name} {key}")
