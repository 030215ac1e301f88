"""What tests of whole syncs have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    """An empty bucket, and syncs into it."""
    return Lake(s3_settings, tmp_path)
