"""`ObjectStore` over boto3, with every failure translated into an error that names the remedy.

Stores differ (AWS, MinIO, Ceph, moto), so decisions rest on two facts only: HTTP 412 for a conditional PutObject, and the result of HEAD.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from destination_s3_spark.errors import Bug, DataError, SyncError, TransientError
from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.failures import code, denied, explain, no_answer, refused_for_good, status
from destination_s3_spark.storage.object_store import (
    MOST_BYTES,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRange,
    ObjectStore,
    ObjectTooLarge,
    OutcomeUnknown,
    StagedUpload,
    UploadFailed,
    note_doubtful_upload,
)
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.wording import counted

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, PutObjectOutputTypeDef

DELETE_BATCH = 1000
"""Keys per DeleteObjects, S3's limit."""

_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses before retries that botocore does not make: a conditional put with 409, a failed key of a batch, a body cut short."""

_CONDITION_FAILED = {404, 409, 412}
"""Statuses of a conditional put if the condition failed: another object is there, or none (404)."""
_CONDITION_UNKNOWN = {400, 501}
"""Statuses of a conditional put if the store rejects the condition itself. The put may succeed without it."""

_CONTENT_TYPE = "application/octet-stream"

_HASTY = ClientLimits(patience_s=10, connect_timeout_s=3, read_timeout_s=10)


class S3Store(ObjectStore):
    """`ObjectStore` over one bucket. Thread-safe; all instances in a process share one client per settings."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        # One client serves all buckets of an endpoint.
        self.client: S3Client = s3_client(replace(settings, bucket="", single_writer=False))
        self._bucket = settings.bucket
        self._has_versions = False

    @property
    def may_overwrite(self) -> bool:
        return self._has_versions and self.settings.endpoint is not None

    def get(self, key: str, most_bytes: int = MOST_BYTES) -> bytes:
        return self._read(key, most_bytes)

    def get_range(self, key: str, start: int, end: int, size: int) -> bytes:
        return self._read(key, end - start, f"{start}-{end - 1}", size)

    def _read(self, key: str, most_bytes: int, span: str | None = None, size: int = 0) -> bytes:
        """Return the bytes of an object, or those of a span (first and last) of an object of this size."""
        limits = self.settings.limits
        last = time.monotonic() + limits.patience_s - limits.read_timeout_s
        for wait in (*_WAITS_S, None):
            with self.translated(f"Reading {self._url(key)}"):
                body = self._open(key, most_bytes, span, size)
                try:
                    return body.read()
                except BotoCoreError:
                    # botocore retries the request but not the read of its body.
                    if wait is None or time.monotonic() > last:
                        raise
            _pause(wait)
        raise Bug("The last try of a read neither returned nor raised.")

    def _open(self, key: str, most_bytes: int, span: str | None, size: int) -> StreamingBody:
        part: Any = {} if span is None else {"Range": f"bytes={span}"}
        try:
            answer = self.client.get_object(Bucket=self._bucket, Key=key, **part)
        except ClientError as error:
            if status(error) == 404 and code(error) != "NoSuchBucket":
                raise ObjectNotFound(key) from error
            if status(error) != 416:
                raise
            raise self._other_size(key) from error
        if "VersionId" in answer:  # it is "null" for an object from before the bucket kept versions
            self._has_versions = True
        if span is None and answer["ContentLength"] > most_bytes:
            answer["Body"].close()
            raise ObjectTooLarge(key, answer["ContentLength"], most_bytes)
        if span is not None and answer.get("ContentRange") != f"bytes {span}/{size}":
            answer["Body"].close()
            raise self._other_size(key)
        return answer["Body"]

    def _other_size(self, key: str) -> DataError:
        return DataError(
            f"Reading {self._url(key)}: the object is not as long as the one that was written there. "
            "Did something else write to it? Restore it from a backup or a bucket version, or refresh the stream."
        )

    def head(self, key: str) -> ObjectInfo | None:
        with self.translated(f"Looking up {self._url(key)}"):
            try:
                answer = self.client.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if status(error) == 404:
                    return None
                raise
        # A reverse proxy may capitalize the names of headers, and S3 has them in small letters.
        metadata = {name.lower(): value for name, value in answer["Metadata"].items()}
        return ObjectInfo(key, answer["ContentLength"], metadata, _bare(answer.get("ETag", "")))

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        with self.translated(f"Writing {self._url(key)}"):
            self.client.put_object(Bucket=self._bucket, Key=key, Body=body, Metadata=metadata or {})

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        with self.translated(f"Writing {self._url(key)}"):
            put = partial(self.client.put_object, Bucket=self._bucket, Key=key, Body=body, Metadata=metadata)
            if not self.settings.single_writer:
                written = self._put_if_unchanged(put, key, etag)
                if written is not None:
                    return written
            return _bare(put()["ETag"])

    def _put_if_unchanged(self, put: Callable[..., PutObjectOutputTypeDef], key: str, etag: str | None) -> str | None:
        """Return the new ETag, or None from a store without conditional puts. Raises ObjectChanged."""
        # Ceph before release 19 expects the ETag unquoted, stores that follow RFC 9110 expect quotes, most accept both.
        conditions = [{"IfNoneMatch": "*"}] if etag is None else [{"IfMatch": etag}, {"IfMatch": f'"{etag}"'}]
        for condition in conditions:
            try:
                return _bare(_without_conflict(partial(put, **condition))["ETag"])
            except ClientError as error:
                if status(error) in _CONDITION_UNKNOWN:
                    continue
                if status(error) not in _CONDITION_FAILED or code(error) == "NoSuchBucket":
                    raise
            now = self.head(key)
            if (now and now.etag) != etag:
                raise ObjectChanged(key, now)
        return None

    def create(self, key: str, body: bytes) -> None:
        """Create the object with `If-None-Match: *`. Raises ObjectExists or OutcomeUnknown.

        With `single_writer` this is HEAD and then PUT. It silently overwrites a second writer in between, so it is no fence.
        """
        try:
            if not self.settings.single_writer:
                self._create_if_none(key, body)
            elif self.head(key) is None:
                self.client.put_object(Bucket=self._bucket, Key=key, Body=body)
            else:
                raise ObjectExists(key)
        except (BotoCoreError, ClientError) as error:
            if no_answer(error):
                raise OutcomeUnknown(f"Creating {self._url(key)}: {type(error).__name__}") from error
            raise explain(error, f"Creating {self._url(key)}", self.settings) from error

    def _create_if_none(self, key: str, body: bytes) -> None:
        try:
            answer = _without_conflict(partial(self.client.put_object, Bucket=self._bucket, Key=key, Body=body, IfNoneMatch="*"))
        except ClientError as error:
            if status(error) not in {409, 412}:
                raise
            raise ObjectExists(key) from error
        self._has_versions = self._has_versions or "VersionId" in answer

    def restore(self, key: str, wanted: Callable[[bytes], bool]) -> None:
        with self.translated(f"Restoring a version of {self._url(key)} (s3:ListBucketVersions, s3:DeleteObjectVersion)"):
            found = self.client.list_object_versions(Bucket=self._bucket, Prefix=key).get("Versions", [])
            versions = [one["VersionId"] for one in found if one["Key"] == key]  # the newest one comes first
            bodies = (self.client.get_object(Bucket=self._bucket, Key=key, VersionId=one)["Body"].read() for one in versions)
            newer = next((number for number, body in enumerate(bodies) if wanted(body)), 1)
            for version in versions[:newer]:
                self.client.delete_object(Bucket=self._bucket, Key=key, VersionId=version)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects. One that is already gone is fine. Raises TransientError naming the first that could not be deleted."""
        for start in range(0, len(keys), DELETE_BATCH):
            self._delete_batch(keys[start : start + DELETE_BATCH])

    def _delete_batch(self, keys: Sequence[str]) -> None:
        doing = f"Deleting {counted(len(keys), 'object')} from bucket '{self._bucket}'"
        for wait in (*_WAITS_S, None):
            with self.translated(doing):
                answer = self.client.delete_objects(Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
            errors = [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]
            if not errors:
                return
            if any(error.get("Code") == "AccessDenied" for error in errors):
                raise denied("DeleteObjects", doing, self.settings)
            keys = [error["Key"] for error in errors]
            _pause(wait)
        first = errors[0]
        named = f"first '{first.get('Key')}' ({first.get('Code')})"
        raise TransientError(f"{doing}: {len(keys)} could not be deleted, {named}. Try again.")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self.translated(f"Listing {self._url(prefix)}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    yield ObjectInfo(item["Key"], item["Size"], modified=item["LastModified"])

    def folders(self, prefix: str) -> Iterator[str]:
        with self.translated(f"Listing {self._url(prefix)}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix, Delimiter="/"):
                for item in page.get("CommonPrefixes", []):
                    yield item["Prefix"]

    def stage_copy(self, source: str, key: str, metadata: Mapping[str, str] | None = None) -> StagedUpload:
        info = self.head(source)
        if info is None:
            raise ObjectNotFound(source)
        if info.size == 0:
            raise Bug(f"{self._url(source)} is empty; a multipart upload cannot hold an empty object.")
        size, step = info.size, self.settings.limits.copy_part_bytes
        ranges = [ObjectRange(source, start, min(start + step, size)) for start in range(0, size, step)]
        with self._uploading(f"Copying {self._url(source)} to '{key}'", key, metadata or {}) as upload_id:
            etags = tuple(self._copy_part(part, key, upload_id, number) for number, part in enumerate(ranges, start=1))
        return StagedUpload(key, upload_id, etags, size)

    def stage_joined(self, ranges: Sequence[ObjectRange], tail: bytes, key: str, metadata: Mapping[str, str]) -> StagedUpload:
        with self._uploading(f"Joining {len(ranges)} objects as '{key}'", key, metadata) as upload_id:
            etags = [self._copy_part(part, key, upload_id, number) for number, part in enumerate(ranges, start=1)]
            answer = self.client.upload_part(Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=len(ranges) + 1, Body=tail)
        size = sum(part.end - part.start for part in ranges) + len(tail)
        return StagedUpload(key, upload_id, (*etags, answer["ETag"]), size)

    @contextmanager
    def _uploading(self, doing: str, key: str, metadata: Mapping[str, str]) -> Iterator[str]:
        """Begin an upload and give its id. Abort it after an error, which is translated."""
        with self.translated(doing):
            upload_id = self.begin_upload(key, metadata)
        try:
            with self.translated(doing):
                yield upload_id
        except BaseException:
            try:
                self.abort_upload(key, upload_id)
            except SyncError:  # the first failure is the one to report
                note_doubtful_upload()
            raise

    def begin_upload(self, key: str, metadata: Mapping[str, str]) -> str:
        """Begin a multipart upload and return its id. Raises botocore's exceptions."""
        try:
            answer = self.client.create_multipart_upload(Bucket=self._bucket, Key=key, Metadata=metadata, ContentType=_CONTENT_TYPE)
        except Exception:
            note_doubtful_upload()
            raise
        if answer["ResponseMetadata"]["RetryAttempts"]:
            note_doubtful_upload()
        return answer["UploadId"]

    def _copy_part(self, source: ObjectRange, key: str, upload_id: str, number: int) -> str:
        try:
            answer = self.client.upload_part_copy(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": source.key},
                CopySourceRange=f"bytes={source.start}-{source.end - 1}",
            )
        except ClientError as error:
            if code(error) == "NoSuchKey":
                raise ObjectNotFound(source.key) from error
            raise
        return answer["CopyPartResult"]["ETag"]

    def complete_upload(self, upload: StagedUpload) -> None:
        doing = f"Completing the upload of {self._url(upload.key)}"
        parts: list[CompletedPartTypeDef] = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(upload.part_etags, start=1)]
        try:
            self.client.complete_multipart_upload(
                Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id, MultipartUpload={"Parts": parts}
            )
        except ClientError as error:
            if refused_for_good(error):
                raise explain(error, doing, self.settings) from error
            # Ceph answers 500 for an aborted upload; 503 and similar come from a proxy in front of the store.
            if no_answer(error) and status(error) != 500:
                raise OutcomeUnknown(f"{doing}: {code(error)}") from error
            raise UploadFailed(f"{doing}: {code(error)}") from error
        except BotoCoreError as error:
            if no_answer(error):
                raise OutcomeUnknown(f"{doing}: {type(error).__name__}") from error
            raise explain(error, doing, self.settings) from error

    def abort_upload(self, key: str, upload_id: str) -> None:
        with self.translated(f"Aborting an upload of {self._url(key)}"):
            try:
                self.client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
            except ClientError as error:
                if status(error) != 404 or code(error) == "NoSuchBucket":
                    raise

    def list_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        with self.translated(f"Listing uploads under {self._url(prefix)}"):
            for page in self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix):
                for upload in page.get("Uploads", []):
                    yield upload["Key"], upload["UploadId"]

    def hasty(self) -> S3Store:
        return S3Store(replace(self.settings, limits=_HASTY))

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Translate botocore's exceptions inside into ConfigError or TransientError. `doing` starts the message ("Reading s3://…")."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise explain(error, doing, self.settings) from error

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def _without_conflict(put: Callable[[], PutObjectOutputTypeDef]) -> PutObjectOutputTypeDef:
    """Send a conditional put. Repeat it while another write of the key is in flight (409 ConditionalRequestConflict)."""
    for wait in _WAITS_S:
        try:
            return put()
        except ClientError as error:
            if status(error) != 409:
                raise
        _pause(wait)
    return put()


def _bare(etag: str) -> str:
    return etag.strip('"')


def _pause(seconds: float | None) -> None:
    # Jitter keeps writers that collided once from colliding again.
    if seconds is not None:
        time.sleep(seconds * random.uniform(0.5, 1.5))  # noqa: S311
