"""Where the bucket is and how to reach it: plain values that travel to Spark workers inside a task's payload."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Encryption(Enum):
    """Server-side encryption asked for on every write; the value is S3's `x-amz-server-side-encryption`."""

    NONE = "none"
    S3 = "AES256"
    KMS = "aws:kms"
    KMS_DSSE = "aws:kms:dsse"


class Checksums(Enum):
    """botocore's `request_checksum_calculation` and `response_checksum_validation`."""

    WHEN_SUPPORTED = "when_supported"
    WHEN_REQUIRED = "when_required"


@dataclass(frozen=True, slots=True)
class AccessKey:
    """Credentials to sign with. Nothing of it shows in `repr` or `str`, so that it cannot reach a log by accident."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much a store may ask of us: the seconds its trouble is waited out, over all attempts and calls, and how many attempts of a call
    fit into them at most; timeouts per attempt in seconds, pooled connections, and the bytes a server-side copy moves per call, few
    enough that a store is done with them within the read timeout.
    """

    patience_s: float = 200
    attempts: int = 1000
    connect_timeout_s: float = 10
    read_timeout_s: float = 60
    connections: int = 32
    copy_part_bytes: int = 128 * 2**20


USUAL_LIMITS = ClientLimits()
"""With them a sync ends within five minutes of trouble: the patience, one attempt of what is tried next, and clearing up."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One bucket and the way to it.

    `region` may be empty: the environment's, or any when there is an endpoint. `endpoint` None means AWS itself. `credentials` None
    means `role_arn` if given, else AWS's default chain. `checksums` None means `when_required` with an endpoint (many S3 compatibles
    refuse boto3's newer checksum headers) and `when_supported` without. `single_writer` gives up conditional creates for stores that
    ignore them: the user promises that no second sync writes to the same tables, nothing fences it. `limits` go wherever the settings
    go.
    """

    bucket: str
    region: str = ""
    endpoint: str | None = None
    credentials: AccessKey | None = None
    role_arn: str | None = None
    sse: Encryption = Encryption.NONE
    kms_key_id: str | None = None
    expected_bucket_owner: str | None = None
    checksums: Checksums | None = None
    single_writer: bool = False
    limits: ClientLimits = USUAL_LIMITS
