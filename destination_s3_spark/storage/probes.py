"""Probes of the bucket: an upload that is begun and aborted, so that no object becomes visible, and the store's answer with its clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from destination_s3_spark.storage.failures import explain
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink

_BODY = b"uploaded by the connection check of destination-s3-spark\n"


@dataclass(frozen=True, slots=True)
class UploadProbe:
    """Key and settings of a probe. No object is created at the key."""

    key: str
    s3: S3Settings


def try_upload(probe: UploadProbe) -> None:
    """Upload a part and abort the upload. Raises ConfigError with the change to make, or TransientError."""
    with StagedFileSink(probe.s3, probe.key) as sink:
        sink.write(_BODY)
        upload = sink.stage()
    sink.store.abort_upload(probe.key, upload.upload_id)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the store, which may be a refusal.

    `ahead_s`: seconds by which this machine's clock is ahead of the store's, to the second; None if the answer has no date.
    """

    seconds: float
    ahead_s: float | None


def ask(settings: S3Settings) -> Answer:
    """Send one request to the bucket. Raises ConfigError or TransientError if nothing answers."""
    store = S3Store(settings)
    begun = time.monotonic()
    try:
        metadata: Any = store.client.list_objects_v2(Bucket=settings.bucket, MaxKeys=1)["ResponseMetadata"]
    except ClientError as error:
        metadata = error.response.get("ResponseMetadata", {})
    except BotoCoreError as error:
        raise explain(error, f"Listing s3://{settings.bucket}", settings) from error
    return Answer(time.monotonic() - begun, _ahead(metadata.get("HTTPHeaders", {}).get("date")))


def _ahead(date: str | None) -> float | None:
    try:
        return None if date is None else (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    except (TypeError, ValueError):  # no date, or one without a time zone
        return None
