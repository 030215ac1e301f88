"""What the product needs of an S3 bucket, as a Protocol, so that the commit code can be tested over a store that fails at will.

Keys are full object keys (no bucket, no leading slash). Every call is one S3 request, retried by the client until its budget is used up.
Refusals the user must act on (permission, credentials, bucket, region, clock) are `ConfigError`; where nothing else is said, a store that
does not answer is `TransientError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class ObjectNotFound(Exception):
    """There is no object at this key (404)."""


class ObjectChanged(Exception):
    """`replace` found another object than it was to replace, or none. `now` is what it found."""

    def __init__(self, key: str, now: ObjectInfo | None) -> None:
        super().__init__(key)
        self.now = now


class ObjectExists(Exception):
    """`create` found an object at the key (412, or 409 that did not clear): somebody else wrote it, or an earlier try of ours did."""


class OutcomeUnknown(Exception):
    """The request may or may not have taken effect (timeout, connection lost, 5xx after all retries). Ask the store before deciding."""


class UploadFailed(Exception):
    """Completing an upload was refused (404 NoSuchUpload, 500 after an abort, …). The error name proves nothing: HEAD the key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as HEAD or LIST show it. `size` in bytes; `metadata` is the user metadata (`x-amz-meta-*`), which only HEAD returns, as
    it alone does the `etag`, without its quotes.
    """

    key: str
    size: int
    metadata: Mapping[str, str] = field(default_factory=dict, compare=False)
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """A multipart upload whose parts are all uploaded and which is not completed: invisible until `complete_upload`."""

    key: str
    upload_id: str
    part_etags: tuple[str, ...]
    size: int


class ObjectStore(Protocol):
    """The S3 calls of the driver. Executors only use `storage.staging`."""

    def get(self, key: str) -> bytes:
        """The object's bytes. Raises ObjectNotFound."""

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and user metadata, or None when there is none."""

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Write or overwrite the object."""

    def create(self, key: str, body: bytes) -> None:
        """PutObject with `If-None-Match: *`. Raises ObjectExists or OutcomeUnknown."""

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        """Write the object if the one there has this ETag, or if there is none (None). Returns the new ETag. Raises ObjectChanged.

        A store without conditional puts overwrites whatever is there: look again afterwards who else wrote.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects; one that is already gone is fine."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects under the prefix, in key order."""

    def stage_copy(self, source: str, key: str, metadata: Mapping[str, str] | None = None) -> StagedUpload:
        """Stage a server-side copy of an object (UploadPartCopy): its bytes never pass through here. Raises ObjectNotFound."""

    def complete_upload(self, upload: StagedUpload) -> None:
        """Make the upload's object visible. Raises UploadFailed or OutcomeUnknown."""

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop the upload and its parts; one that is already gone is fine."""

    def list_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        """(key, upload id) of every open multipart upload under the prefix."""

    def hasty(self) -> ObjectStore:
        """The same bucket for clearing up after a failure: a store that does not answer soon is let be."""
