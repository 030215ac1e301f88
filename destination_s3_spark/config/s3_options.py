"""The `s3` part of the configuration: how requests to the store are made. Users read titles and docstrings."""

from __future__ import annotations

import ssl
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from destination_s3_spark.config.settings_model import Applies, Settings, Shape, documented


class S3(Settings):
    """Encryption, ownership and compatibility of the requests to S3."""

    region: Annotated[str, Shape(r"^[a-z0-9-]+$", "fr-par")] | None = Field(
        None, title="Region of the endpoint", examples=["fr-par", "gra", "garage"]
    )
    """The region of the store behind the S3 endpoint. By default s3_bucket_region, else us-east-1."""
    addressing: Literal["path", "virtual"] = Field(
        "path",
        title="Addressing",
    )
    """Where requests to an S3 endpoint name the bucket: path, or virtual (in the host name), as Alibaba OSS, Huawei OBS and Tencent COS
    want it.
    """
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = Field(
        None, title="Server-side encryption", json_schema_extra=documented(Applies.NEW_FILES)
    )
    """The encryption asked for with every object. By default the bucket's own setting decides."""
    kms_key_id: str | None = Field(
        None,
        validate_default=True,
        title="KMS key",
        examples=["alias/lake"],
        # Airbyte stores an option as a secret if its schema has the word airbyte_secret, even with false, and restores only true ones.
        json_schema_extra={"airbyte_secret": True, **documented(Applies.NEW_FILES, page="iam-policy.md")},
    )
    """The key for server-side encryption with KMS: its ID, ARN or alias. By default AWS's own key for S3."""
    expected_bucket_owner: Annotated[str, Shape(r"^[0-9]{12}$", "a 12-digit AWS account ID")] | None = Field(
        None, title="Expected bucket owner", examples=["111122223333"]
    )
    """The AWS account that must own the bucket; requests to a bucket of anyone else are refused by S3."""
    checksums: Literal["when_supported", "when_required"] | None = Field(
        None,
        title="Checksums",
    )
    """When requests carry a checksum. By default when_supported on AWS, and when_required with an S3 endpoint set."""
    ca_certificate: str | None = Field(
        None,
        title="CA certificate",
        examples=["-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----"],
        json_schema_extra={"multiline": True},
    )
    """Certificates of your own authorities as PEM text, trusted besides the public ones by all connections. AWS_CA_BUNDLE in the
    environment names a file that replaces the public ones.
    """
    single_writer: bool = Field(False, title="Single writer", json_schema_extra=documented(page="guarantees.md#what-it-rests-on"))
    """Only for a store without conditional writes (If-None-Match): states that no two syncs ever write the same table at the same time.
    Nothing checks it, and data is lost if it is not true.
    """

    @field_validator("ca_certificate")
    @classmethod
    def _is_certificate(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if "PRIVATE KEY" in text:
            raise ValueError("has a private key. Only the certificates belong here, and the key is known now: replace it")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, TypeError, ValueError):
            raise ValueError("is not a certificate in PEM form. Paste all of the file, with its line ends") from None
        return text

    @field_validator("kms_key_id")
    @classmethod
    def _key_needs_kms(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key is not None and not str(info.data.get("sse")).startswith("aws:kms"):
            raise ValueError("needs s3.sse to be aws:kms or aws:kms:dsse. Set it, or remove the key")
        return key
