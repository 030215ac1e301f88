"""What a test knows of an S3 server and of a bucket there."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config

from destination_s3_spark.storage.settings import AccessKey, S3Settings
from unit_tests.lake.memory_bucket import ENDPOINT
from unit_tests.lake.memory_client import QuietClient

REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Server:
    """One S3 endpoint and the keys of a user who may do everything there."""

    name: str
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)

    def client(self) -> Any:
        """A boto3 client for the tests' own looks at the server. It never retries, so that a fault shows."""
        return _client(self)

    def through(self, endpoint: str) -> S3Server:
        """The same server as reached by another address, such as a proxy's."""
        return replace(self, endpoint=endpoint)


MEMORY = S3Server("memory", ENDPOINT, "test-key", "test-secret")
"""The server in this process."""


@lru_cache(maxsize=64)
def _client(server: S3Server) -> Any:
    if server.endpoint == ENDPOINT:
        return QuietClient()
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


@dataclass(frozen=True, slots=True)
class Bucket:
    """One empty bucket of a test."""

    server: S3Server
    name: str

    @classmethod
    def of(cls, settings: S3Settings) -> Bucket:
        """The bucket that settings of the connector name."""
        keys = settings.credentials
        assert settings.endpoint is not None
        assert keys is not None
        return cls(S3Server("", settings.endpoint, keys.access_key_id, keys.secret_access_key), settings.bucket)

    @property
    def settings(self) -> S3Settings:
        """The connector's settings for the bucket."""
        return S3Settings(self.name, REGION, self.server.endpoint, AccessKey(self.server.access_key, self.server.secret_key))

    def list_keys(self, prefix: str = "") -> list[str]:
        """All keys under the prefix, sorted."""
        return list(self.list_etags(prefix))

    def list_etags(self, prefix: str = "") -> dict[str, str]:
        """The ETags of all objects under the prefix, sorted by key."""
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return dict(sorted((entry["Key"], entry["ETag"]) for page in pages for entry in page.get("Contents", ())))

    @lru_cache(maxsize=4096)  # noqa: B019 (buckets are small, and the cache is bounded)
    def read_version(self, key: str, etag: str) -> bytes:
        """The object with this ETag, fetched once."""
        body: bytes = self.server.client().get_object(Bucket=self.name, Key=key, IfMatch=etag)["Body"].read()
        return body

    def read(self, key: str) -> bytes:
        body: bytes = self.server.client().get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def open_uploads(self) -> list[str]:
        """Keys of the multipart uploads that are neither completed nor aborted."""
        return [upload["Key"] for upload in self.server.client().list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def through(self, endpoint: str) -> Bucket:
        """The same bucket as reached by another address."""
        return replace(self, server=self.server.through(endpoint))


BUCKETS: list[Bucket] = []
"""The buckets of the test module that runs."""


def new_bucket(server: S3Server) -> Bucket:
    bucket = Bucket(server, f"it-{secrets.token_hex(6)}")
    server.client().create_bucket(Bucket=bucket.name)
    BUCKETS.append(bucket)
    return bucket
