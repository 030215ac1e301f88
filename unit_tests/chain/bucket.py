"""The product's store over a bucket in memory, whose calls have the names that the store's methods have."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from itertools import count

from destination_s3_spark.storage.object_store import StagedUpload
from destination_s3_spark.storage.s3 import S3Store
from unit_tests.lake.memory_bucket import Fate, Hook, MemoryBucket, S3Call, Upload, Watch
from unit_tests.lake.memory_client import SERVER, QuietClient

CRASHES = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)
LOSSES = (Fate.LOST_BEFORE, Fate.LOST_AFTER)
FATES = (*CRASHES, *LOSSES)
_NAMES = {
    "AbortMultipartUpload": "abort_upload",
    "CompleteMultipartUpload": "complete_upload",
    "CreateMultipartUpload": "create_upload",
    "DeleteObject": "delete_version",
    "DeleteObjects": "delete",
    "GetObject": "get",
    "HeadObject": "head",
    "ListMultipartUploads": "list_uploads",
    "ListObjectVersions": "list_versions",
    "UploadPart": "upload_part",
    "UploadPartCopy": "copy_part",
}


def name_of(call: S3Call) -> str:
    """Return the name of the store's method that makes this call; a method of several calls has a name for each."""
    if call.action == "ListObjectsV2":
        return "list" if call.parameters["Delimiter"] is None else "folders"
    if call.action != "PutObject":
        return _NAMES[call.action]
    if call.parameters["IfMatch"] is None and call.parameters["IfNoneMatch"] is None:
        return "put"
    return "create" if call.parameters["Metadata"] is None else "replace"


def keys_of(call: S3Call) -> list[str]:
    """Return the keys, or the prefix, that a call names."""
    if call.action == "DeleteObjects":
        return [one["Key"] for one in call.parameters["Delete"]["Objects"]]
    if call.action == "UploadPartCopy":
        return [call.key, call.parameters["CopySource"]["Key"]]
    return [call.key]


def at_each(name: str, fate: Fate) -> Hook:
    """All calls with this name have this fate."""
    return lambda call: fate if name_of(call) == name else None


def at_calls(fates: Mapping[int, Fate]) -> Hook:
    """Each fate strikes once, at the call with its number."""
    left = dict(fates)
    return lambda call: left.pop(call.number, None)


class Objects(MutableMapping[str, bytes]):
    """The objects of a bucket by key, in order. Reads and changes are no calls."""

    def __init__(self, memory: MemoryBucket) -> None:
        self._memory = memory

    def __getitem__(self, key: str) -> bytes:
        body = self._memory.current(key).body
        assert body is not None
        return body

    def __setitem__(self, key: str, body: bytes) -> None:
        self._memory.put(key, body)

    def __delitem__(self, key: str) -> None:
        self._memory.remove(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory.objects)

    def __len__(self) -> int:
        return len(self._memory.objects)


class Bucket(S3Store):
    """A bucket of its own and the store over it. `watch(key, body, +1 or -1)` sees uploads appear and files go."""

    def __init__(self, *, completes_again: bool = True, watch: Watch | None = None) -> None:
        super().__init__(SERVER.create())
        self.memory = SERVER.buckets[self.settings.bucket]
        SERVER.buckets[self.settings.bucket] = weakref.proxy(self.memory)  # else no bucket of all the schedules would ever go
        self.memory.completes_again = completes_again
        self.memory.watch = watch
        self.objects = Objects(self.memory)
        weakref.finalize(self, SERVER.buckets.pop, self.settings.bucket, None)

    @property
    def uploads(self) -> dict[str, Upload]:
        """The open uploads by their id."""
        return self.memory.open_uploads

    @property
    def hook(self) -> Hook | None:
        """What decides the fate of each call. Whoever has crashed lives again with another hook."""
        return self.memory.hook

    @hook.setter
    def hook(self, hook: Hook | None) -> None:
        self.memory.hook = hook

    def restart(self) -> None:
        """Begin another process, which has the same hook."""
        self.memory.hook = self.memory.hook

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The name and the key of each call so far; the keys of one deletion are joined by commas."""
        return [(name_of(call), ",".join(keys_of(call)) if call.action == "DeleteObjects" else call.key) for call in self.memory.calls]

    def names(self) -> list[str]:
        return [name_of(call) for call in self.memory.calls]

    def forget(self) -> None:
        """Forget the calls so far."""
        self.memory.calls.clear()

    @cached_property
    def quiet(self) -> S3Store:
        """The same bucket, for looks that do not count and that no hook sees."""
        store = S3Store(self.settings)
        store.client = QuietClient()  # type: ignore[assignment]
        return store

    def stage(self, key: str, body: bytes) -> StagedUpload:
        """Stage as a task does that dies of any failure: two calls, and a failure in between leaves the upload behind."""
        with self.translated(f"Staging '{key}'"):
            upload_id = self.begin_upload(key, {})
            part = self.client.upload_part(Bucket=self.settings.bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=body)
        return StagedUpload(key, upload_id, (part["ETag"],), len(body))

    def copy(self) -> Bucket:
        """Return another bucket with the same objects and uploads."""
        other = Bucket(completes_again=self.memory.completes_again)
        other.memory.versions = {key: [*versions] for key, versions in self.memory.versions.items()}
        other.memory.open_uploads = {
            upload_id: Upload(upload.key, upload.metadata, dict(upload.parts)) for upload_id, upload in self.uploads.items()
        }
        other.memory.completed = dict(self.memory.completed)
        other.memory.ids = count(next(self.memory.ids))
        return other
