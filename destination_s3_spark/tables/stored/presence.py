"""The report of a missing data file as a DataError: something else deleted the file, and only the user can restore it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.settings import S3Settings


@contextmanager
def present(key: str, s3: S3Settings) -> Iterator[None]:
    """Convert ObjectNotFound within the context to a DataError that names the object being read."""
    try:
        yield
    except ObjectNotFound:
        raise DataError(
            f"s3://{s3.bucket}/{key} is gone, but the table needs its rows. Nothing was changed. Did something else delete it? "
            "Restore it from a backup or a bucket version, or refresh the stream."
        ) from None
