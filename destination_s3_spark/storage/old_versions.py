"""Versions of objects in a versioned bucket that are not current: replaced or deleted ones, which readers with the right still see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from botocore.exceptions import ClientError

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.failures import status
from destination_s3_spark.storage.s3 import DELETE_BATCH, S3Store
from destination_s3_spark.wording import counted

Version: TypeAlias = tuple[str, str]
"""The key and the id of a version of an object."""


class OldVersions(NamedTuple):
    """Versions that are not current, and marks of deleted objects. Both are empty in a bucket that was never versioned."""

    versions: list[Version]
    markers: list[Version]

    def of(self, keys: Callable[[str], bool]) -> OldVersions:
        return OldVersions(*([one for one in found if keys(one[0])] for found in self))


def old_versions(store: S3Store, prefixes: Iterable[str]) -> OldVersions:
    """List what is not current under prefixes: nothing in a store without versions. Needs s3:ListBucketVersions.

    Raises ConfigError or TransientError.
    """
    versions: dict[Version, None] = {}
    markers: dict[Version, None] = {}
    bucket = store.settings.bucket
    for prefix in prefixes:
        with store.translated(f"Listing versions of objects under s3://{bucket}/{prefix}"):
            for page in _pages(store, prefix):
                versions.update({(one["Key"], one["VersionId"]): None for one in page.get("Versions", []) if not one["IsLatest"]})
                markers.update({(one["Key"], one["VersionId"]): None for one in page.get("DeleteMarkers", [])})
    return OldVersions(list(versions), list(markers))


def _pages(store: S3Store, prefix: str) -> Iterator[Any]:
    """Yield the answers of ListObjectVersions, none of a store that has no such call, as Garage and Cloudflare R2."""
    try:
        yield from store.client.get_paginator("list_object_versions").paginate(Bucket=store.settings.bucket, Prefix=prefix)
    except ClientError as error:
        if status(error) != 501:
            raise


def delete_versions(store: S3Store, old: OldVersions) -> None:
    """Delete versions of objects for good, and then the marks. Raises ConfigError or TransientError. Needs s3:DeleteObjectVersion."""
    bucket = store.settings.bucket
    for batch in (*_batches(old.versions), *_batches(old.markers)):
        with store.translated(f"Deleting {counted(len(batch), 'old version')} of objects of s3://{bucket} (s3:DeleteObjectVersion)"):
            objects: Any = [{"Key": key, "VersionId": version} for key, version in batch]
            answer = store.client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        failed = answer.get("Errors", [])
        if failed:
            raise ConfigError(
                f"{counted(len(failed), 'old version')} of objects of s3://{bucket} could not be deleted ({failed[0].get('Code', '')}). "
                "Allow s3:DeleteObjectVersion to the credentials in use, and remove locks of these objects, then run the command again."
            )


def _batches(versions: Sequence[Version]) -> Iterator[Sequence[Version]]:
    return (versions[start : start + DELETE_BATCH] for start in range(0, len(versions), DELETE_BATCH))
