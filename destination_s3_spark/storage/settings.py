"""S3 settings as plain values, which travel to Spark workers inside a task's payload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Encryption = Literal["AES256", "aws:kms", "aws:kms:dsse"]
"""Server-side encryption that is requested on every write: S3's `x-amz-server-side-encryption`."""
Addressing = Literal["path", "virtual"]
"""Where requests to an endpoint name the bucket: in the path, or in the host name."""
Checksums = Literal["when_supported", "when_required"]
"""Values of botocore's `request_checksum_calculation` and `response_checksum_validation`."""


@dataclass(frozen=True, slots=True)
class AccessKey:
    """Access key to sign with. `repr` and `str` show none of it, so that it cannot reach a log by accident."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on time, retries and connections for requests to a store.

    `patience_s` bounds the seconds of waiting for a failing store, over all attempts and calls. `attempts` bounds the attempts of one call
    within that time. Timeouts are seconds per attempt. `connections` is the size of the pool. `copy_part_bytes` is the size of one
    server-side copy call, small enough for a store to finish within the read timeout.
    """

    patience_s: float = 200
    attempts: int = 1000
    connect_timeout_s: float = 10
    read_timeout_s: float = 60
    connections: int = 32
    copy_part_bytes: int = 128 * 2**20


USUAL_LIMITS = ClientLimits()
"""With these limits a sync ends within five minutes of a store's failure: patience, one attempt of the next request, and cleanup."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One bucket and the way to connect to it.

    `region` is AWS's, for its other services too; empty means the environment's. `endpoint` None means AWS. `endpoint_region` is that of
    the store behind the endpoint, if it is not `region`. `addressing` is for an endpoint: AWS gets host names. `credentials` None means
    `role_arn` if given, else AWS's default chain. `checksums` None means `when_required` with an endpoint, because many S3-compatible
    stores refuse boto3's newer checksum headers, and `when_supported` without. `single_writer` gives up conditional creates for stores that
    ignore them. The user then guarantees that no second sync writes to the same tables, because no fence protects them. `ca_certificate`
    has authorities as PEM text, which are trusted besides the usual ones. `limits` apply wherever the settings are used.
    """

    bucket: str
    region: str = ""
    endpoint: str | None = None
    credentials: AccessKey | None = None
    role_arn: str | None = None
    endpoint_region: str | None = None
    addressing: Addressing = "path"
    sse: Encryption | None = None
    kms_key_id: str | None = None
    expected_bucket_owner: str | None = None
    checksums: Checksums | None = None
    single_writer: bool = False
    ca_certificate: str | None = field(default=None, repr=False)
    limits: ClientLimits = USUAL_LIMITS

    @property
    def signing_region(self) -> str:
        """The region for which requests to the store are signed; empty means the environment's.

        A signature needs one, though many stores behind an endpoint take any.
        """
        return (self.endpoint_region or self.region or "us-east-1") if self.endpoint else self.region

    @property
    def is_virtual(self) -> bool:
        """Whether requests to the endpoint name the bucket in the host name."""
        return self.endpoint is not None and self.addressing == "virtual"

    @property
    def equal_parts(self) -> bool:
        """Whether the store wants all parts of an upload but the last in one size, as Cloudflare R2 does."""
        return f".{urlsplit(self.endpoint or '').hostname}".endswith(".r2.cloudflarestorage.com")
