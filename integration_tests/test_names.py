"""Keys of streams with hostile names, on the strictest store."""

from __future__ import annotations

from pathlib import Path

from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.hostile_names import expect_folders_of_their_own
from unit_tests.lake.lake import Lake


def test_a_real_store_takes_the_keys_of_hostile_names(strict_server: S3Server, tmp_path: Path) -> None:
    expect_folders_of_their_own(Lake(new_bucket(strict_server).settings, tmp_path))
