"""The methods of boto3's S3 client over buckets in memory."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from uuid import uuid4

from destination_s3_spark.storage.settings import AccessKey, S3Settings
from unit_tests.lake.memory_bucket import ENDPOINT, REGION, MemoryBucket, Part, Upload, Version, refusal


@dataclass
class MemoryS3:
    """The server: buckets by name."""

    buckets: dict[str, MemoryBucket] = field(default_factory=dict)

    def create(self, name: str | None = None) -> S3Settings:
        """Create a bucket, and return settings for it."""
        settings = S3Settings(name or f"test-{uuid4().hex}", REGION, ENDPOINT, AccessKey("test-key", "test-secret"))
        self.buckets[settings.bucket] = MemoryBucket(settings.bucket)
        return settings


SERVER = MemoryS3()
"""The server of this process."""


def bucket_of(settings: S3Settings) -> MemoryBucket:
    """Return the bucket in memory that these settings name."""
    assert settings.endpoint == ENDPOINT, f"{settings.endpoint} is not in memory"
    return SERVER.buckets[settings.bucket]


@dataclass(frozen=True)
class _Meta:
    region_name: str = REGION
    endpoint_url: str = ENDPOINT


class MemoryClient:
    """The methods of boto3's S3 client that the connector and its tests call."""

    meta = _Meta()

    def _answered(
        self, bucket: MemoryBucket, action: str, key: str, parameters: Mapping[str, Any], effect: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        return bucket.answered(action, key, parameters, effect)

    def create_bucket(self, Bucket: str, **_: Any) -> dict[str, Any]:
        SERVER.create(Bucket)
        return _answer()

    def put_bucket_versioning(self, Bucket: str, VersioningConfiguration: Mapping[str, str]) -> dict[str, Any]:
        _bucket(Bucket, "PutBucketVersioning").versioning = VersioningConfiguration["Status"]
        return _answer()

    def get_object(
        self, Bucket: str, Key: str, Range: str | None = None, IfMatch: str | None = None, VersionId: str | None = None, **more: Any
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "GetObject")

        def effect() -> dict[str, Any]:
            version = _found(bucket, Key, VersionId, "GetObject", "NoSuchKey")
            if IfMatch is not None and IfMatch.strip('"') != version.etag.strip('"'):
                raise refusal(412, "PreconditionFailed", "GetObject")
            body, about = version.body or b"", _about(bucket, version)
            if Range is None:
                return _answer(Body=_Body(body), ContentLength=len(body), **about)
            first, end = _span(Range, len(body))
            part = body[first:end]
            return _answer(Body=_Body(part), ContentLength=len(part), ContentRange=f"bytes {first}-{end - 1}/{len(body)}", **about)

        return self._answered(bucket, "GetObject", Key, {"Range": Range, "VersionId": VersionId, **more}, effect)

    def head_object(self, Bucket: str, Key: str, VersionId: str | None = None, **more: Any) -> dict[str, Any]:
        bucket = _bucket(Bucket, "HeadObject")

        def effect() -> dict[str, Any]:
            version = _found(bucket, Key, VersionId, "HeadObject", "404")
            return _answer(ContentLength=len(version.body or b""), **_about(bucket, version))

        return self._answered(bucket, "HeadObject", Key, more, effect)

    def put_object(
        self,
        Bucket: str,
        Key: str,
        Body: Any = b"",
        Metadata: Mapping[str, str] | None = None,
        IfNoneMatch: str | None = None,
        IfMatch: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        bucket, body = _bucket(Bucket, "PutObject"), _bytes(Body)

        def effect() -> dict[str, Any]:
            if (IfNoneMatch is not None or IfMatch is not None) and bucket.has_conditions(Key):
                _require(bucket, Key, IfNoneMatch, IfMatch)
            version = Version(bucket.new_id(), body, _metadata(Metadata))
            bucket.write(Key, version)
            return _answer(ETag=version.etag, **_version(bucket, version))

        parameters = {"Metadata": Metadata, "IfNoneMatch": IfNoneMatch, "IfMatch": IfMatch, **more}
        return self._answered(bucket, "PutObject", Key, parameters, effect)

    def delete_object(self, Bucket: str, Key: str, VersionId: str | None = None, **more: Any) -> dict[str, Any]:
        bucket = _bucket(Bucket, "DeleteObject")

        def effect() -> dict[str, Any]:
            _delete(bucket, Key, VersionId)
            return _answer(204)

        return self._answered(bucket, "DeleteObject", Key, {"VersionId": VersionId, **more}, effect)

    def delete_objects(self, Bucket: str, Delete: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        bucket, named = _bucket(Bucket, "DeleteObjects"), list(Delete["Objects"])

        def effect() -> dict[str, Any]:
            if not 0 < len(named) <= 1000:
                raise refusal(400, "MalformedXML", "DeleteObjects")
            for one in named:
                _delete(bucket, one["Key"], one.get("VersionId"))
            return _answer() if Delete.get("Quiet") else _answer(Deleted=[{"Key": one["Key"]} for one in named])

        return self._answered(bucket, "DeleteObjects", named[0]["Key"] if named else "", {"Delete": Delete, **more}, effect)

    def list_objects_v2(
        self,
        Bucket: str,
        Prefix: str = "",
        Delimiter: str | None = None,
        MaxKeys: int | None = None,
        StartAfter: str = "",
        ContinuationToken: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "ListObjectsV2")

        def effect() -> dict[str, Any]:
            after = ContinuationToken if ContinuationToken is not None else StartAfter
            keys = [key for key in sorted(bucket.versions) if key.startswith(Prefix) and bucket.versions[key][-1].body is not None]
            names = [name for name in _grouped(keys, Prefix, Delimiter) if name > after]
            page = names[: min(MaxKeys or bucket.page_size, bucket.page_size)]
            more_follow = len(names) > len(page)
            found = {"IsTruncated": more_follow, "KeyCount": len(page), **({"NextContinuationToken": page[-1]} if more_follow else {})}
            objects = [name for name in page if name in bucket.versions]
            prefixes = [name for name in page if name not in bucket.versions]
            contents = [_listed(name, bucket.versions[name][-1]) for name in objects]
            answer = _answer(
                **found,
                **({"Contents": contents} if contents else {}),
                **({"CommonPrefixes": [{"Prefix": name} for name in prefixes]} if prefixes else {}),
            )
            answer["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(time.time(), usegmt=True)  # what a look at the clocks asks for
            return answer

        return self._answered(bucket, "ListObjectsV2", Prefix, {"Delimiter": Delimiter, "MaxKeys": MaxKeys, **more}, effect)

    def list_object_versions(
        self, Bucket: str, Prefix: str = "", KeyMarker: str = "", VersionIdMarker: str = "", MaxKeys: int | None = None, **more: Any
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "ListObjectVersions")

        def effect() -> dict[str, Any]:
            keys = [key for key in sorted(bucket.versions) if key.startswith(Prefix) and key >= KeyMarker]
            every = [(key, one, one is bucket.versions[key][-1]) for key in keys for one in reversed(bucket.versions[key])]
            before = [index for index, (key, one, _) in enumerate(every, 1) if key == KeyMarker and VersionIdMarker in ("", one.id)]
            rest = every[before[-1] :] if before else every
            page = rest[: min(MaxKeys or bucket.page_size, bucket.page_size)]
            versions = [{**_listed(key, one), "VersionId": one.id, "IsLatest": last} for key, one, last in page if one.body is not None]
            markers = [{"Key": key, "VersionId": one.id, "IsLatest": last} for key, one, last in page if one.body is None]
            return _answer(
                IsTruncated=len(rest) > len(page),
                **({"NextKeyMarker": page[-1][0], "NextVersionIdMarker": page[-1][1].id} if len(rest) > len(page) else {}),
                **({"Versions": versions} if versions else {}),
                **({"DeleteMarkers": markers} if markers else {}),
            )

        return self._answered(bucket, "ListObjectVersions", Prefix, more, effect)

    def create_multipart_upload(self, Bucket: str, Key: str, Metadata: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
        bucket = _bucket(Bucket, "CreateMultipartUpload")

        def effect() -> dict[str, Any]:
            upload_id = f"upload-{next(bucket.ids)}"
            bucket.open_uploads[upload_id] = Upload(Key, _metadata(Metadata))
            return _answer(UploadId=upload_id)

        return self._answered(bucket, "CreateMultipartUpload", Key, more, effect)

    def upload_part(self, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: Any, **more: Any) -> dict[str, Any]:
        bucket, body = _bucket(Bucket, "UploadPart"), _bytes(Body)

        def effect() -> dict[str, Any]:
            parts = _upload(bucket, Key, UploadId, "UploadPart").parts
            parts[PartNumber] = Part.of(body)
            return _answer(ETag=parts[PartNumber].etag)

        return self._answered(bucket, "UploadPart", Key, {"UploadId": UploadId, "PartNumber": PartNumber, **more}, effect)

    def upload_part_copy(
        self, Bucket: str, Key: str, UploadId: str, PartNumber: int, CopySource: Mapping[str, str], CopySourceRange: str, **more: Any
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "UploadPartCopy")

        def effect() -> dict[str, Any]:
            upload = _upload(bucket, Key, UploadId, "UploadPartCopy")
            source = _found(_bucket(CopySource["Bucket"], "UploadPartCopy"), CopySource["Key"], None, "UploadPartCopy", "NoSuchKey")
            body = source.body or b""
            first, last = map(int, CopySourceRange.removeprefix("bytes=").split("-"))
            if last >= len(body):
                raise refusal(400, "InvalidArgument", "UploadPartCopy")
            upload.parts[PartNumber] = Part.of(body[first : last + 1])
            return _answer(CopyPartResult={"ETag": upload.parts[PartNumber].etag})

        return self._answered(bucket, "UploadPartCopy", Key, {"CopySource": CopySource, "CopySourceRange": CopySourceRange, **more}, effect)

    def complete_multipart_upload(
        self, Bucket: str, Key: str, UploadId: str, MultipartUpload: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "CompleteMultipartUpload")

        def effect() -> dict[str, Any]:
            if bucket.completes_again and UploadId in bucket.completed:
                return _answer(ETag=bucket.completed[UploadId])
            upload = _upload(bucket, Key, UploadId, "CompleteMultipartUpload")
            named = [(part["PartNumber"], part["ETag"]) for part in MultipartUpload["Parts"]]
            if [number for number, _ in named] != sorted({number for number, _ in named}):
                raise refusal(400, "InvalidPartOrder", "CompleteMultipartUpload")
            parts = [upload.parts[number] for number, etag in named if number in upload.parts and upload.parts[number].etag == etag]
            if len(parts) < len(named) or not parts:
                raise refusal(400, "InvalidPart", "CompleteMultipartUpload")
            if any(len(part.body) < bucket.least_part_bytes for part in parts[:-1]):
                raise refusal(400, "EntityTooSmall", "CompleteMultipartUpload")
            del bucket.open_uploads[UploadId]
            whole = b"".join(part.body for part in parts)
            version = Version(bucket.new_id(), whole, upload.metadata, parts=tuple(part.digest for part in parts))
            bucket.completed[UploadId] = version.etag
            bucket.write(Key, version)
            if bucket.watch is not None:
                bucket.watch(Key, whole, 1)
            return _answer(ETag=version.etag, **_version(bucket, version))

        return self._answered(bucket, "CompleteMultipartUpload", Key, {"UploadId": UploadId, **more}, effect)

    def abort_multipart_upload(self, Bucket: str, Key: str, UploadId: str, **more: Any) -> dict[str, Any]:
        bucket = _bucket(Bucket, "AbortMultipartUpload")

        def effect() -> dict[str, Any]:
            _upload(bucket, Key, UploadId, "AbortMultipartUpload")
            del bucket.open_uploads[UploadId]
            return _answer(204)

        return self._answered(bucket, "AbortMultipartUpload", Key, {"UploadId": UploadId, **more}, effect)

    def list_multipart_uploads(
        self, Bucket: str, Prefix: str = "", KeyMarker: str = "", UploadIdMarker: str = "", MaxUploads: int | None = None, **more: Any
    ) -> dict[str, Any]:
        bucket = _bucket(Bucket, "ListMultipartUploads")

        def effect() -> dict[str, Any]:
            every = sorted((upload.key, upload_id) for upload_id, upload in bucket.open_uploads.items() if upload.key.startswith(Prefix))
            found = [one for one in every if one[0] > KeyMarker or (UploadIdMarker and one > (KeyMarker, UploadIdMarker))]
            page = found[: min(MaxUploads or bucket.page_size, bucket.page_size)]
            return _answer(
                IsTruncated=len(found) > len(page),
                **({"NextKeyMarker": page[-1][0], "NextUploadIdMarker": page[-1][1]} if len(found) > len(page) else {}),
                **({"Uploads": [{"Key": key, "UploadId": upload_id} for key, upload_id in page]} if page else {}),
            )

        return self._answered(bucket, "ListMultipartUploads", Prefix, more, effect)

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages(getattr(self, operation))


_MARKERS = ("ContinuationToken", "KeyMarker", "UploadIdMarker", "VersionIdMarker")


@dataclass(frozen=True)
class _Pages:
    operation: Callable[..., dict[str, Any]]

    def paginate(self, **parameters: Any) -> Iterator[dict[str, Any]]:
        page = self.operation(**parameters)
        yield page
        while page["IsTruncated"]:
            page = self.operation(**parameters, **{name: page[f"Next{name}"] for name in _MARKERS if f"Next{name}" in page})
            yield page


class QuietClient(MemoryClient):
    """A client for the tests' own looks at a bucket: its calls are not counted, and no hook sees them."""

    def _answered(
        self, bucket: MemoryBucket, action: str, key: str, parameters: Mapping[str, Any], effect: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        return bucket.unseen(effect)


class _Body(io.BytesIO):
    """The body of an answer."""

    def iter_chunks(self, chunk_size: int = 1024) -> Iterator[bytes]:
        yield from iter(lambda: self.read(chunk_size), b"")


def _bucket(name: str, action: str) -> MemoryBucket:
    if name not in SERVER.buckets:
        raise refusal(404, "NoSuchBucket", action)
    return SERVER.buckets[name]


def _found(bucket: MemoryBucket, key: str, version: str | None, action: str, code: str) -> Version:
    try:
        return bucket.current(key, version)
    except KeyError:
        raise refusal(404, code, action) from None
    except StopIteration:
        raise refusal(404, "NoSuchVersion", action) from None


def _require(bucket: MemoryBucket, key: str, if_none_match: str | None, if_match: str | None) -> None:
    """Raise if a put does not find what its conditions ask for."""
    try:
        now = bucket.current(key)
    except KeyError:
        if if_match is None:
            return
        raise refusal(404, "NoSuchKey", "PutObject") from None
    if if_none_match is not None or (if_match is not None and if_match.strip('"') != now.etag.strip('"')):
        raise refusal(412, "PreconditionFailed", "PutObject")


def _upload(bucket: MemoryBucket, key: str, upload_id: str, action: str) -> Upload:
    upload = bucket.open_uploads.get(upload_id)
    if upload is None or upload.key != key:
        raise refusal(404, "NoSuchUpload", action)
    return upload


def _delete(bucket: MemoryBucket, key: str, version: str | None) -> None:
    if version is None:
        bucket.remove_current(key)
        return
    kept = [one for one in bucket.versions.get(key, []) if one.id != version]
    if kept:
        bucket.versions[key] = kept
    else:
        bucket.versions.pop(key, None)


def _about(bucket: MemoryBucket, version: Version) -> dict[str, Any]:
    return {"Metadata": dict(version.metadata), "ETag": version.etag, "LastModified": version.modified, **_version(bucket, version)}


def _version(bucket: MemoryBucket, version: Version) -> dict[str, str]:
    is_told = bucket.versioning is not None and (bucket.tells_null or version.id != "null")
    return {"VersionId": version.id} if is_told else {}


def _listed(key: str, version: Version) -> dict[str, Any]:
    return {"Key": key, "Size": len(version.body or b""), "LastModified": version.modified, "ETag": version.etag}


def _grouped(keys: Iterable[str], prefix: str, delimiter: str | None) -> list[str]:
    """The keys, and for those with the delimiter after the prefix what comes before it."""
    if not delimiter:
        return [*keys]
    ends = ((key, key.find(delimiter, len(prefix))) for key in keys)
    return list(dict.fromkeys(key if end < 0 else key[: end + len(delimiter)] for key, end in ends))


def _span(text: str, size: int) -> tuple[int, int]:
    first, last = text.removeprefix("bytes=").split("-")
    if int(first) >= size:
        raise refusal(416, "InvalidRange", "GetObject")
    return int(first), min(int(last) + 1, size)


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (metadata or {}).items()}


def _bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else bytes(body.read())


def _answer(status: int = 200, /, **content: Any) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}, **content}
