"""Executors on YARN: addresses in the configuration alone, and jars that the cluster has already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from destination_s3_spark.engine.environment import PACKAGES
from integration_tests.cluster_story import Tables, marks_on, run_sync, tables_of
from integration_tests.fault_proxy import Fault, FaultProxy, fault_proxy
from integration_tests.lake import ProcessLake
from integration_tests.maven import NoMavenError, class_path
from integration_tests.servers import free_port
from integration_tests.spark_cluster import SPARK_HOME, interpreter
from integration_tests.yarn.cluster import YarnCluster, yarn_cluster
from unit_tests.lake.buckets import S3Server, new_bucket

pytestmark = marks_on("yarn")

POM = Path(__file__).parent / "yarn" / "pom.xml"
HADOOP = "spark.hadoop."


@dataclass(frozen=True)
class Rig:
    """A cluster, the bucket's server, and the `spark` group of a configuration that runs there."""

    cluster: YarnCluster
    proxy: FaultProxy
    moto: S3Server
    spark: dict[str, Any]
    directory: Path

    def with_conf(self, **conf: str) -> dict[str, Any]:
        return {**self.spark, "conf": {**self.spark["conf"], **{key.replace("__", "."): value for key, value in conf.items()}}}


def archive_of(jars: Path, archive: Path) -> Path:
    """All jars in one file, as they are: to compress them again takes 20 s and saves nothing."""
    with ZipFile(archive, "w") as together:
        for jar in jars.glob("*.jar"):
            together.write(jar, jar.name)
    return archive


@pytest.fixture(scope="module")
def rig(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("yarn")
    with ExitStack() as stack:
        try:
            jars = class_path(POM, directory)
        except NoMavenError as missing:
            pytest.skip(str(missing))
        cluster = stack.enter_context(yarn_cluster(directory / "cluster", jars))
        archive = archive_of(SPARK_HOME / "jars", directory / "spark.zip")
        conf = {
            **{f"{HADOOP}{name}": value for name, value in cluster.properties.items()},
            "spark.yarn.archive": cluster.put(archive, "/spark.zip"),
            "spark.pyspark.python": str(interpreter(directory / "python", PACKAGES)),
            "spark.executor.memory": "512m",
            "spark.executor.instances": "2",
            "spark.authenticate": "true",
            "spark.network.crypto.enabled": "true",
        }
        spark = {"master": "yarn", "executor_credentials": "forward", "conf": conf}
        yield Rig(cluster, stack.enter_context(fault_proxy(moto.endpoint)), moto, spark, directory)


def test_addresses_are_enough_and_a_killed_executor_costs_time_alone(rig: Rig, local_tables: list[Tables]) -> None:
    lake = ProcessLake.of(new_bucket(rig.moto), rig.directory / "story")
    connector = lake.connector(rig.proxy.endpoint)

    for sync in (1, 2, 3):
        if sync == 2:
            merging = Fault("CreateMultipartUpload", "/shop/orders/", status=None, times=1, effect=lambda _: rig.cluster.kill_one())
            rig.proxy.inject(merging)
        outcome = run_sync(connector, sync, rig.spark)
        assert tables_of(lake) == local_tables[sync - 1]
        assert not [line for line in outcome.stderr.splitlines() if line.lstrip().startswith("at ")] or sync == 2, outcome.stderr
    assert merging.seen
    assert rig.cluster.leftovers() == []


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"spark__yarn__queue": "other"}, "unknown queue: other"),
        pytest.param({"spark__executor__memory": "8g"}, "above the max threshold", marks=pytest.mark.clusters),
        pytest.param({"spark__pyspark__python": "/nowhere/python3.11"}, "cannot start Python", marks=pytest.mark.clusters),
        ({"spark__hadoop__yarn__resourcemanager__address": f"127.0.0.1:{free_port()}"}, "No YARN ResourceManager answers at 127.0.0.1:"),
    ],
)
def test_what_is_wrong_is_named(rig: Rig, tmp_path: Path, conf: dict[str, str], said: str) -> None:
    outcome = ProcessLake.of(new_bucket(rig.moto), tmp_path).connector(rig.proxy.endpoint).check(spark=rig.with_conf(**conf))

    assert outcome.connection_status["status"] == "FAILED"
    assert said in outcome.connection_status["message"]
    assert "\n" not in outcome.connection_status["message"]
