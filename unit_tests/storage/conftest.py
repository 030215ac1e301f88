"""A store on the shared server, and one behind a proxy that scripts its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.storage.limits import ONCE


@pytest.fixture
def store(s3_settings: S3Settings) -> S3Store:
    return S3Store(replace(s3_settings, limits=ONCE))


@pytest.fixture
def behind_proxy(s3_settings: S3Settings, s3_proxy: Any) -> S3Store:
    return S3Store(replace(s3_settings, endpoint=s3_proxy.endpoint, limits=ONCE))


@pytest.fixture
def s3_settings(served_settings: S3Settings) -> S3Settings:
    """Settings of the test's bucket, which is on a server: these tests are about requests."""
    return served_settings
