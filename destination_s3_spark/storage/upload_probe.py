"""Probe of write access to the bucket: an upload that is begun and aborted, so that no object becomes visible."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink

_BODY = b"uploaded by the connection check of destination-s3-spark\n"


@dataclass(frozen=True, slots=True)
class UploadProbe:
    """Key, settings and limits of a probe. No object is created at the key."""

    key: str
    s3: S3Settings
    limits: ClientLimits


def try_upload(probe: UploadProbe) -> None:
    """Upload a part and abort the upload. Raises ConfigError with the change to make, or TransientError."""
    with StagedFileSink(probe.s3, probe.key, limits=probe.limits) as sink:
        sink.write(_BODY)
        upload = sink.stage()
    S3Store(probe.s3, probe.limits).abort_upload(probe.key, upload.upload_id)
