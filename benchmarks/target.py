"""The S3 server a benchmark writes to: a moto server of its own, or one that is given; and the config that leads there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo import server


@contextmanager
def endpoint(given: str | None, bucket: str, directory: Path) -> Iterator[str]:
    """The endpoint to use. With a given one, the bucket must exist and the keys come from AWS's environment variables."""
    if given is not None:
        yield given
        return
    for variable, value in (
        ("AWS_ACCESS_KEY_ID", "benchmark"),
        ("AWS_SECRET_ACCESS_KEY", "benchmark"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        os.environ[variable] = value
    local = server.start(bucket, directory / "moto.log")
    try:
        yield local.endpoint
    finally:
        local.stop()


def config(address: str, bucket: str, path: str, raw_tables: str) -> dict[str, Any]:
    """The connector's configuration for a benchmark: Parquet with Snappy, raw tables `on` or `off`."""
    return {
        "s3_bucket_name": bucket,
        "s3_bucket_path": path,
        "s3_bucket_region": os.environ.get("AWS_DEFAULT_REGION", "us-east-1"),
        "s3_endpoint": address,
        "access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "format": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
        "tables": {"raw_tables": raw_tables == "on"},
    }
