"""`check` on the strict server: what it says follows from the answers of a store that knows its users and their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.lake import Lake


@pytest.fixture
def lake(ceph: S3Server, tmp_path: Path) -> Lake:
    """An empty bucket on Ceph."""
    return Lake(new_bucket(ceph).settings, tmp_path)


def failure(lake: Lake, **options: Any) -> str:
    """What a failing check says."""
    outcome = lake.connector().check(**options)
    assert outcome.connection_status["status"] == "FAILED", outcome.describe()
    return str(outcome.connection_status["message"])


def test_a_good_setup_passes_and_leaves_nothing_behind(lake: Lake) -> None:
    assert lake.connector().check().connection_status["status"] == "SUCCEEDED"
    assert (lake.bucket.list_keys(), lake.bucket.open_uploads()) == ([], [])


def test_wrong_keys_and_buckets_are_named_by_their_option(lake: Lake) -> None:
    message = failure(lake, secret_access_key="a-secret-that-is-wrong")
    assert "secret_access_key" in message
    assert "a-secret-that-is-wrong" not in message
    assert "access_key_id" in failure(lake, access_key_id="AKIANOBODYKNOWSTHIS")
    message = failure(lake, s3_bucket_name="no-such-bucket-here")
    assert "no-such-bucket-here" in message
    assert "s3_bucket_name" in message
