"""Fixtures every group may use: moto as a real S3 endpoint, with a bucket of its own for each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

from destination_s3_spark.storage.client import s3_client
from destination_s3_spark.storage.settings import AccessKey, ClientLimits, S3Settings

REGION = "us-east-1"


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The URL of an S3 server of this test session. It accepts any credentials."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(moto_endpoint: str) -> str:
    """The name of an empty bucket that no other test uses."""
    name = f"test-{uuid4().hex}"
    admin = S3Settings("any", REGION, moto_endpoint, AccessKey("test-key", "test-secret"))
    s3_client(admin, ClientLimits()).create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_settings(moto_endpoint: str, bucket: str) -> S3Settings:
    """Settings of the test's bucket."""
    return S3Settings(bucket, REGION, moto_endpoint, AccessKey("test-key", "test-secret"))
