"""What it means when a file that the chain names is not there: somebody else deleted it, and only the user can get it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.settings import S3Settings


@contextmanager
def present(key: str, s3: S3Settings) -> Iterator[None]:
    """ObjectNotFound inside becomes a DataError that names this object, which is being read."""
    try:
        yield
    except ObjectNotFound:
        raise DataError(
            f"s3://{s3.bucket}/{key} is gone, a file with rows of the table; nothing was changed. Did something else delete it? "
            "Restore it from a backup or a bucket version, or refresh the stream."
        ) from None
