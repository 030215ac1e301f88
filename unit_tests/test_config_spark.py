"""The `spark` part of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.config.config import Config, Spark
from destination_s3_spark.errors import ConfigError


def parse(options: dict[str, Any]) -> Spark:
    needed = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**needed, "spark": options}).spark


def refusal(options: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(options)
    return caught.value.message


@pytest.mark.parametrize("master", ["local", "local[*]", "local[1]", "local[16]"])
def test_local_masters_are_accepted(master: str) -> None:
    assert parse({"master": master}).master == master


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "spark://one:7077,two:7077", "spark://[::1]:7077", "yarn", "k8s://https://host:443"]
)
def test_clusters_are_accepted_and_their_executors_have_credentials_of_their_own(master: str) -> None:
    assert parse({"master": master}).master == master
    assert parse({"master": master}).executor_credentials == "own"


@pytest.mark.parametrize(
    "master",
    ["mesos://host:5050", "k8s://", "spark://host", "spark://:7077", "spark://a:1,", "local[0]", "local[]", "local[2,3]", "local[*]\n"],
)
def test_other_masters_are_refused(master: str) -> None:
    assert "spark.master: must look like" in refusal({"master": master})


ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
TLS = {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local[*]", {}),
        ("spark://127.0.0.1:7077", {}),
        ("spark://localhost:7077,[::1]:7078", {}),
        ("spark://host:7077", ENCRYPTED),
        ("spark://host:7077", TLS),
        ("yarn", ENCRYPTED),
    ],
)
def test_credentials_are_forwarded_where_nobody_else_can_read_them(master: str, conf: dict[str, str]) -> None:
    chosen = parse({"master": master, "conf": conf, "executor_credentials": "forward"})
    assert chosen.executor_credentials == "forward"


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("spark://host:7077", {}),
        ("spark://localhost:7077,host:7077", {}),
        ("spark://localhost.example.com:7077", {}),
        ("spark://host:7077", {"spark.authenticate": "true"}),
        ("spark://host:7077", {"spark.network.crypto.enabled": "true"}),
        ("spark://host:7077", {**ENCRYPTED, "spark.authenticate": "false"}),
        ("spark://host:7077", {**TLS, "spark.ssl.enabled": "false"}),
        ("yarn", {}),
        ("k8s://https://127.0.0.1:443", {}),
    ],
)
def test_credentials_are_not_forwarded_over_an_open_network(master: str, conf: dict[str, str]) -> None:
    message = refusal({"master": master, "conf": conf, "executor_credentials": "forward"})

    assert "spark.executor_credentials: forward would send credentials over the network in the open" in message


def test_the_interpreter_of_executors_is_the_users_on_a_cluster_alone() -> None:
    conf = {"spark.pyspark.python": "/opt/python/bin/python3.11"}

    assert parse({"master": "spark://host:7077", "conf": conf}).conf == conf
    assert "`spark.pyspark.python` is refused" in refusal({"conf": conf})
    assert "`spark.pyspark.driver.python` is refused" in refusal(
        {"master": "spark://host:7077", "conf": {"spark.pyspark.driver.python": "python3"}}
    )


@pytest.mark.parametrize("memory", ["1", "1gb", "0m", "-1g", "1 g"])
def test_memory_that_spark_would_misread_is_refused(memory: str) -> None:
    assert "spark.driver_memory: must look like 512m or 1g" in refusal({"driver_memory": memory})


@pytest.mark.parametrize(
    "key",
    [
        "spark.master",
        "spark.driver.memory",
        "spark.submit.pyFiles",
        "spark.submit.deployMode",
        "spark.remote",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.ivySettings",
        "spark.files",
        "spark.archives",
        "spark.plugins",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.driver.extraJavaOptions",
        "spark.executor.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.executor.userClassPathFirst",
        "spark.driver.extraLibraryPath",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.eventLog.enabled",
        "spark.eventLog.dir",
        "spark.metrics.conf",
        "spark.metrics.conf.*.sink.csv.class",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.python.worker.module",
        "spark.authenticate.secret",
        "spark.speculation",
        "spark.speculation.quantile",
        "spark.executorEnv.PYTHONPATH",
        "spark.hadoop.fs.s3a.secret.key",
        "hadoop.fs.something",
        "master",
    ],
)
def test_spark_properties_that_bring_code_or_leak_are_refused_by_name(key: str) -> None:
    assert f"spark.conf: `{key}`" in refusal({"conf": {"spark.task.cpus": "1", key: "x"}})


@pytest.mark.parametrize("key", ["spark.local.dir", "spark.python.worker.memory", "spark.network.timeout", "spark.ui.enabled"])
def test_other_spark_properties_pass(key: str) -> None:
    assert parse({"conf": {key: "x"}}).conf == {key: "x"}
