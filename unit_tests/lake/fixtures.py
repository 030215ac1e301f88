"""Fixtures of tests that begin with an empty bucket. The conftest.py of a folder takes them over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.chain_reader import lost_uploads
from unit_tests.lake.lake import Lake


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Iterator[Lake]:
    """An empty bucket, and syncs into it. Whatever they do, they leave no upload open that no later sync would abort."""
    made = Lake(s3_settings, tmp_path)
    yield made
    assert lost_uploads(made.bucket) == []


@pytest.fixture(scope="module")
def make_lake(make_bucket: Callable[[], S3Settings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Lake]]:
    """`make_lake()`: an empty bucket that tests of a module share, and syncs into it. No upload is lost there either."""
    made: list[Lake] = []

    def make() -> Lake:
        made.append(Lake(make_bucket(), tmp_path_factory.mktemp("lake")))
        return made[-1]

    yield make
    assert [key for lake in made for key in lost_uploads(lake.bucket)] == []
