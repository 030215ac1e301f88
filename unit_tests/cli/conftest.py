"""What tests of operator commands have in common."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.fixtures import lake, make_lake

__all__ = ["lake", "make_lake"]


@pytest.fixture
def store(s3_settings: S3Settings) -> S3Store:
    """The test's bucket."""
    return S3Store(s3_settings)


@pytest.fixture
def config(s3_settings: S3Settings, tmp_path: Path) -> Path:
    """A configuration file for it."""
    path = tmp_path / "config.json"
    options = {
        "s3_bucket_name": s3_settings.bucket,
        "s3_bucket_path": "lake",
        "s3_bucket_region": "us-east-1",
        "s3_endpoint": s3_settings.endpoint,
        "access_key_id": "test-key",
        "secret_access_key": "hidden-secret",
        "format": {"format_type": "Parquet"},
    }
    path.write_text(json.dumps(options))
    return path
