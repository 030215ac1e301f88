"""Protocol of the S3 bucket operations that the connector needs, so that commit code can be tested over a store that fails on demand.

Keys are full object keys (no bucket, no leading slash). Every call is one S3 request, which the client retries until its budget is used up.
Refusals that the user must act on (permission, credentials, bucket, region, clock) raise `ConfigError`. Unless stated otherwise, a store
that does not answer raises `TransientError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Protocol

from destination_s3_spark.errors import DataError, TransientError

MOST_BYTES = 2**30
"""Largest object that is read as a whole, if the reader knows no lower limit. An object takes its size in memory, and more when decoded."""
CREATE_TRIES = 8
"""Attempts to create an object while the outcome is unknown and the object does not exist."""
_COUNTING = Lock()
_doubtful = 0


class ObjectNotFound(Exception):
    """No object exists at this key (404)."""


class ObjectTooLarge(DataError):
    """The object is larger than any that this connector writes at such a key."""

    def __init__(self, key: str, size: int, most_bytes: int) -> None:
        super().__init__(
            f"'{key}' has {size:,} bytes, and such an object may have {most_bytes:,} at most, so it was not read. Did something else write "
            "to it? Restore it from a backup or an older version."
        )


class ObjectChanged(Exception):
    """`replace` found another object than expected, or none. `now` is the object it found."""

    def __init__(self, key: str, now: ObjectInfo | None) -> None:
        super().__init__(key)
        self.now = now


class ObjectExists(Exception):
    """`create` found an object at the key (412, or a persistent 409). Another writer or an earlier attempt of ours wrote it."""


class OutcomeUnknown(Exception):
    """The request may or may not have taken effect (timeout, lost connection, 5xx after all retries). Check the store before deciding."""


class UploadFailed(Exception):
    """Completing an upload was refused (404 NoSuchUpload, 500 after an abort, …). The error code proves nothing: HEAD the key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as HEAD or LIST returns it.

    `size` is in bytes. `metadata` is the user metadata (`x-amz-meta-*`) by names in small letters, and `etag` the ETag without quotes; only
    HEAD returns these two. `modified` is the time of its last write by the store's clock; only LIST returns it.
    """

    key: str
    size: int
    metadata: Mapping[str, str] = field(default_factory=dict, compare=False)
    etag: str = field(default="", compare=False)
    modified: datetime | None = field(default=None, compare=False)


LEAST_PART_BYTES = 5 * 2**20
"""Smallest part of a multipart upload except the last one, by S3's rules."""


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """The bytes `start` to `end` (exclusive) of an object."""

    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """A multipart upload with all parts uploaded but not completed: invisible until `complete_upload`."""

    key: str
    upload_id: str
    part_etags: tuple[str, ...]
    size: int


class ObjectStore(Protocol):
    """S3 operations of the driver. Executors use only `storage.staging`."""

    @property
    def may_overwrite(self) -> bool:
        """Whether `create` may overwrite an object, for all that is known: old releases of Ceph do, in a bucket that keeps versions."""

    def get(self, key: str, most_bytes: int = MOST_BYTES) -> bytes:
        """Return the object's bytes. Raises ObjectNotFound. Raises ObjectTooLarge, without reading it, for a larger object."""

    def get_range(self, key: str, start: int, end: int, size: int) -> bytes:
        """Return the bytes from `start` (inclusive) to `end` (exclusive), at least one, of an object of `size` bytes.

        Raises ObjectNotFound. Raises DataError if the object has another size, because it is then not the object that was written.
        """

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size, user metadata and ETag, or None if there is no object."""

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Write or overwrite the object."""

    def create(self, key: str, body: bytes) -> None:
        """Create the object with `If-None-Match: *`. Raises ObjectExists or OutcomeUnknown."""

    def restore(self, key: str, wanted: Callable[[bytes], bool]) -> None:
        """Delete the versions of an object that are newer than the one with the wanted bytes, in a bucket that keeps versions.

        If none has them, delete the newest one alone.
        """

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        """Write the object if the current one has this ETag, or if there is none (None), and return the new ETag. Raises ObjectChanged.

        A store without conditional puts overwrites any object: check afterwards whether another writer wrote.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects. An object that is already gone is fine."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield all objects under the prefix in key order."""

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the folders directly under the prefix, each with the prefix and a `/` at its end, in order. Takes no request per object."""

    def stage_copy(self, source: str, key: str, metadata: Mapping[str, str] | None = None) -> StagedUpload:
        """Stage a server-side copy of an object (UploadPartCopy), without transferring its bytes. Raises ObjectNotFound."""

    def stage_joined(self, ranges: Sequence[ObjectRange], tail: bytes, key: str, metadata: Mapping[str, str]) -> StagedUpload:
        """Stage an object of these ranges, copied inside the store, followed by `tail`. Raises ObjectNotFound.

        Each range must have LEAST_PART_BYTES or more, and no more than 5 GiB. `tail` must not be empty.
        """

    def complete_upload(self, upload: StagedUpload) -> None:
        """Make the upload's object visible. Raises UploadFailed or OutcomeUnknown."""

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Abort the upload and drop its parts. An upload that is already gone is fine."""

    def list_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield (key, upload id) of every open multipart upload under the prefix."""

    def hasty(self) -> ObjectStore:
        """Return the same bucket with short limits, for cleanup after a failure: an unresponsive store is given up soon."""


def create_or_read(store: ObjectStore, key: str, body: bytes, most_bytes: int, *, what: str) -> bytes:
    """Create an object with bytes that no other writer has, unless there is one. Return the bytes that it has then.

    Raises TransientError, which names the object as `what`, when the store does not report the outcome.
    """
    for _ in range(CREATE_TRIES):
        try:
            store.create(key, body)
        except (ObjectExists, OutcomeUnknown):
            # Our own earlier attempt may have created the object. Only the bytes tell whose it is.
            with suppress(ObjectNotFound):
                return store.get(key, most_bytes)
        else:
            return body
    raise TransientError(f"The store did not say whether {what} was written ({key}). Nothing is lost: try again.")


def note_doubtful_upload() -> None:
    """Count an upload that this process may have left open without anyone knowing of it, so that only a listing finds it.

    Either an attempt to begin an upload had no response, and the store may have begun one; or an upload that nobody needs could not be
    aborted.
    """
    global _doubtful  # noqa: PLW0603 (one count per process, because clients are shared too)
    with _COUNTING:
        _doubtful += 1


def doubtful_uploads() -> int:
    """Return the number of such uploads of this process so far."""
    return _doubtful
