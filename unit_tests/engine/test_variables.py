"""What Spark's processes on this machine know of the environment: the JVM what it needs, the workers all of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.jvm import Jvm
from destination_s3_spark.engine.kubernetes import Kubernetes
from destination_s3_spark.engine.session import DriverSession, SparkSettings
from destination_s3_spark.engine.startup import shortcuts
from destination_s3_spark.engine.variables import of_jvm, of_workers
from destination_s3_spark.engine.yarn import MANAGER, Yarn
from destination_s3_spark.errors import ConfigError
from unit_tests.cases import each

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIA-of-the-platform",
    "AWS_SECRET_ACCESS_KEY": "secret of the platform",
    "AWS_SESSION_TOKEN": "token of the platform",
    "AWS_ASSUME_ROLE_EXTERNAL_ID": "id of the platform",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN": "another token",
    "DATABASE_URL": "postgresql://u:p@h/d",
    "PYTHONPATH": "/somewhere",
    "SHOP_PORT_5432_TCP_ADDR": "10.0.0.1",
}
HARMLESS = {"PATH": "/bin", "HOME": "/home/x", "JAVA_HOME": "/java", "TMPDIR": "/tmp", "LANG": "C", "LC_TIME": "C", "SPARK_USER": "airbyte"}


def test_the_jvm_gets_what_it_needs_and_workers_the_rest() -> None:
    environ = {**SECRETS, **HARMLESS, "LC_ALL": "de_DE", "SPARK_CONNECT_MODE": "1", "NOT_UTF8": "\udcff"}

    assert of_jvm(environ) == {**HARMLESS, "LC_ALL": "C.UTF-8", "SPARK_CONNECT_MODE": "0"}
    assert of_workers(environ) == SECRETS


def launched_with(monkeypatch: pytest.MonkeyPatch, directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that spark-submit is started with."""
    seen: list[dict[str, str]] = []

    def popen(*_: Any, env: dict[str, str], **__: Any) -> Any:
        seen.append(env)
        raise OSError("not started")

    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(OSError, match="not started"):
        Jvm({}, (), directory, environment)
    return seen[0]


def test_the_jvm_is_launched_without_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = launched_with(monkeypatch, tmp_path, {"HADOOP_CONF_DIR": "/x"})

    assert set(SECRETS).isdisjoint(found)
    assert found["PATH"] == os.environ["PATH"]
    assert (found["HADOOP_CONF_DIR"], found["LC_ALL"]) == ("/x", "C.UTF-8")
    assert Path(found["SPARK_HOME"], "bin", "spark-submit").exists()


def test_kubernetes_and_yarn_add_what_their_clients_need(tmp_path: Path) -> None:
    service = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    proxies = {"HTTPS_PROXY": "http://proxy:1", "no_proxy": "10.0.0.0/8"}
    environ = {**service, **proxies, **SECRETS, "KUBECONFIG": "/x"}
    assert Kubernetes(Cluster("k8s://https://h", "python3", 1), {}, tmp_path, environ).environment() == {**service, **proxies}

    hadoop = {"HADOOP_CONF_DIR": "/etc/hadoop", "HADOOP_USER_NAME": "shop"}
    assert Yarn(Cluster("yarn", "python3", 1), {}, tmp_path, {**hadoop, **SECRETS}).environment() == hadoop


@each("key", [f"{MANAGER}hostname", "spark.hadoop.fs.defaultFS", "spark.yarn.stagingDir"])
def test_files_of_hadoop_are_uploaded_to_no_server_that_the_configuration_names(tmp_path: Path, key: str) -> None:
    environ = {"HADOOP_CONF_DIR": "/etc/hadoop", "YARN_CONF_DIR": "/etc/hadoop", "HADOOP_USER_NAME": "shop"}
    found = Yarn(Cluster("yarn", "python3", 1), {key: "hdfs://name-node:8020/x"}, tmp_path, environ).environment()

    assert list(found) == ["HADOOP_USER_NAME", "HADOOP_CONF_DIR"]
    assert list(Path(found["HADOOP_CONF_DIR"]).iterdir()) == []


@each("value", ["${env:AWS_SECRET_ACCESS_KEY}", "a${b}"])
def test_no_property_of_any_origin_has_another_value_put_in(tmp_path: Path, value: str) -> None:
    session = DriverSession(SparkSettings(1, 512, tmp_path, {"spark.kubernetes.executor.label.airbyte": value}), "os")
    with pytest.raises(ConfigError, match=r"spark\.kubernetes\.executor\.label\.airbyte holds \$\{") as caught:
        session.ready()
    assert "AWS" not in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["on", "off"])
def test_workers_know_the_whole_environment_and_the_jvm_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str) -> None:
    secret = SECRETS["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv(shortcuts.VARIABLE, switch)
    engine = Engine(SparkSettings(1, 512, tmp_path, {}))
    try:
        assert engine.run(os.getenv, [["AWS_SECRET_ACCESS_KEY", "HOME"]]) == [[secret, os.environ["HOME"]]]
        (jvm,) = (child for child in psutil.Process().children() if child.name() == "java")
        assert secret not in jvm.environ().values()
    finally:
        engine.stop()
