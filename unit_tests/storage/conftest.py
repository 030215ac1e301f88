"""A store on the shared server, one behind a proxy that scripts its answers, and buckets of all servers that the contract is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from integration_tests.ceph_rgw import ceph_or_skip
from unit_tests.lake.buckets import MEMORY, Bucket, S3Server
from unit_tests.lake.memory_client import SERVER
from unit_tests.storage.contract import Place
from unit_tests.storage.limits import ONCE
from unit_tests.storage.seaweedfs import seaweedfs as seaweedfs_server


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


@pytest.fixture(scope="session")
def memory() -> S3Server:
    return MEMORY


@pytest.fixture(scope="session")
def moto(moto_endpoint: str) -> S3Server:
    return S3Server("moto", moto_endpoint, "test-key", "test-secret")


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with ceph_or_skip(tmp_path_factory.mktemp("ceph")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def make_place(request: pytest.FixtureRequest) -> Callable[[str], Place]:
    """`make_place(name)`: an empty bucket on the server of this name."""

    def make(name: str) -> Place:
        server: S3Server = request.getfixturevalue(name)
        bucket = Bucket(server, f"contract-{uuid4().hex}")
        server.client().create_bucket(Bucket=bucket.name)
        return Place(name, S3Store(replace(bucket.settings, limits=replace(ONCE, read_timeout_s=30, patience_s=60))))

    return make


@pytest.fixture(params=["memory", "moto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ceph", "seaweedfs"))])
def place(request: pytest.FixtureRequest, make_place: Callable[[str], Place]) -> Iterator[Place]:
    """An empty bucket on each server in turn."""
    made = make_place(request.param)
    yield made
    SERVER.buckets.pop(made.bucket, None)
