"""Servers, buckets and readers for the integration tests. Every test runs the installed connector as a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.ceph_rgw import CephMissingError, ceph_or_skip, ensure_installed
from integration_tests.cluster_story import SYNCS, Tables, run_sync, tables_of
from integration_tests.fault_proxy import FaultProxy, fault_proxy
from integration_tests.lake import ProcessLake
from integration_tests.servers import moto_server
from integration_tests.spark_cluster import QUICK_JVM
from unit_tests.lake.buckets import BUCKETS, S3Server, new_bucket
from unit_tests.lake.chain_reader import lost_uploads


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The quick server."""
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The strict server: Ceph's gateway."""
    with ceph_or_skip(tmp_path_factory.mktemp("ceph")) as server:
        yield server


@pytest.fixture(scope="session")
def strict_server(request: pytest.FixtureRequest) -> S3Server:
    """The strictest server that there is: Ceph's gateway, or moto where Ceph cannot be installed."""
    try:
        ensure_installed()
        name = "ceph"
    except CephMissingError:
        name = "ceph" if os.environ.get("CI") == "true" else "moto"
    server: S3Server = request.getfixturevalue(name)
    return server


@pytest.fixture(scope="module", autouse=True)
def _buckets_of_the_module() -> Iterator[None]:
    yield
    BUCKETS.clear()


@pytest.fixture(autouse=True)
def _no_upload_is_lost() -> Iterator[None]:
    """Whatever a test does, it leaves no upload open that no later sync would abort."""
    before = len(BUCKETS)
    yield
    lost = {bucket.name: lost_uploads(bucket) for bucket in BUCKETS}
    del BUCKETS[before:]
    assert not any(lost.values()), lost


@pytest.fixture
def strict_lake(strict_server: S3Server, tmp_path: Path) -> ProcessLake:
    """An empty bucket on the strictest server: for what depends on how a store answers."""
    return ProcessLake.of(new_bucket(strict_server), tmp_path)


@pytest.fixture
def moto_lake(moto: S3Server, tmp_path: Path) -> ProcessLake:
    """An empty bucket on moto: for what does not depend on the store."""
    return ProcessLake.of(new_bucket(moto), tmp_path)


@pytest.fixture(scope="session")
def local_tables(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> list[Tables]:
    """The tables after each sync of the story of clusters, as Spark inside the connector makes them."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("local"))
    found = []
    for sync in SYNCS:
        run_sync(lake.connector(), sync, {"master": "local[2]"})
        found.append(tables_of(lake))
    return found


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of moto."""
    with fault_proxy(moto.endpoint) as running:
        yield running


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """A plain Spark of today, as a reader of our tables would start it; without the switch it has no TIME type."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (only the tests that read with Spark pay for it)

    settings: dict[str, bool | float | int | str | None] = {
        "spark.sql.timeType.enabled": True,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": False,
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
    }
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    yield session
    session.stop()
