"""The S3 servers that the contract is tried on, and in what they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from destination_s3_spark.storage.failures import code, status
from destination_s3_spark.storage.object_store import StagedUpload
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.staging import StagedFileSink

LEAST_PART_BYTES = 5 * 2**20


@dataclass(frozen=True, slots=True)
class Traits:
    """How a server answers. AWS and the one in memory do as the defaults say."""

    checks_copied_ranges: bool = True
    """It refuses to copy a range beyond an object's end. Else it copies what there is."""
    checks_order_of_parts: bool = True
    """It says InvalidPartOrder. Else it calls the parts wrong or too small."""
    creates_once_among_versions: bool = True
    """A create does not overwrite in a bucket that keeps versions."""
    decodes_sources_once: bool = True
    """It finds the source of a copy whose key has a percent sign."""
    is_quiet: bool = True
    """It does not list what was deleted if it is asked not to."""
    keeps_old_versions_when_suspended: bool = True
    limits_deletions: bool = True
    """It takes no more than a thousand keys at a time."""
    lists_in_order_of_keys: bool = True
    """Else objects are in the order of folders, and uploads in any."""
    names_missing_sources: bool = True
    """Its error for a missing source of a copy is NoSuchKey."""
    pages_uploads: bool = True
    """It lists no more uploads at a time than it is asked for."""
    refuses_replaced_parts: bool = True
    """It completes no upload with a part that was sent again since. Else the object has the old part."""
    refuses_unknown_buckets: bool = True
    """Else a put creates the bucket, at least for an administrator."""
    says_that_uploads_are_gone: bool = True
    """Its answer for one is 404. Else it may be 500."""


TRAITS = {
    "memory": Traits(),
    "moto": Traits(
        checks_copied_ranges=False,
        checks_order_of_parts=False,
        is_quiet=False,
        keeps_old_versions_when_suspended=False,
        limits_deletions=False,
        names_missing_sources=False,
        pages_uploads=False,
        says_that_uploads_are_gone=False,
    ),
    "ceph": Traits(  # release 16
        checks_order_of_parts=False,
        creates_once_among_versions=False,
        decodes_sources_once=False,
        says_that_uploads_are_gone=False,
    ),
    "seaweedfs": Traits(lists_in_order_of_keys=False, refuses_replaced_parts=False, refuses_unknown_buckets=False),
}


@dataclass(frozen=True, slots=True)
class Place:
    """An empty bucket on a server of this name."""

    server: str
    store: S3Store

    @property
    def traits(self) -> Traits:
        return TRAITS[self.server]

    @property
    def client(self) -> Any:
        return self.store.client

    @property
    def bucket(self) -> str:
        return self.store.settings.bucket

    def staged(self, key: str, body: bytes = b"staged") -> StagedUpload:
        """Stage an object by the sink that tasks use."""
        with StagedFileSink(self.store.settings, key) as sink:
            sink.write(body)
            return sink.stage()

    def again(self) -> S3Store:
        """Return the store of another process, which knows nothing of the bucket yet."""
        return S3Store(self.store.settings)

    def begun(self, key: str) -> str:
        """Begin an upload, and return its id."""
        return self.store.begin_upload(key, {})

    def part(self, key: str, upload_id: str, number: int, body: bytes) -> str:
        """Send a part by the client, and return its ETag."""
        answer = self.client.upload_part(Bucket=self.bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=body)
        etag: str = answer["ETag"]
        return etag

    def keep_versions(self, how: str = "Enabled") -> None:
        self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": how})

    def refusal(self, action: str, **parameters: Any) -> tuple[int, str]:
        """Return the status and the code with which the server refuses a call of the client; 0 if it does not."""
        try:
            getattr(self.client, action)(Bucket=self.bucket, **parameters)
        except ClientError as error:
            return status(error), code(error)
        return 0, ""
