"""YARN without a directory of Hadoop's files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.yarn import MANAGER, Yarn
from destination_s3_spark.errors import ConfigError, TransientError


def yarn(directory: Path, conf: dict[str, str], environ: dict[str, str] | None = None) -> Yarn:
    return Yarn(Cluster("yarn", "python3", 1), conf, directory, environ or {})


def try_all(manager: Yarn) -> None:
    for trial in manager.trials():
        trial.run()


def test_an_address_is_enough(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        manager = yarn(tmp_path / "session", {f"{MANAGER}address": f"127.0.0.1:{server.getsockname()[1]}"})
        try_all(manager)

    assert manager.properties() == {"spark.driver.host": "127.0.0.1", "spark.executor.memoryOverhead": "1408m"}
    (empty,) = manager.environment().values()
    assert list(manager.environment()) == ["HADOOP_CONF_DIR"]
    assert list(Path(empty).iterdir()) == []


def test_one_of_two_resource_managers_is_enough(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try_all(yarn(tmp_path, {f"{MANAGER}address.rm1": "no-such-host.invalid:8032", f"{MANAGER}address.rm2": address}))


def test_a_directory_of_hadoops_files_counts(tmp_path: Path) -> None:
    manager = yarn(tmp_path, {}, {"YARN_CONF_DIR": "/etc/hadoop"})
    try_all(manager)

    assert manager.environment() == {"YARN_CONF_DIR": "/etc/hadoop"}
    assert "spark.driver.host" not in manager.properties()


def test_no_address_at_all_is_said_with_the_property_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Set spark\.hadoop\.yarn\.resourcemanager\.hostname in spark\.conf"):
        try_all(yarn(tmp_path, {}))


def test_a_host_without_a_port_is_asked_at_the_usual_one(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"No YARN ResourceManager answers at no-such-host\.invalid:8032"):
        try_all(yarn(tmp_path, {f"{MANAGER}hostname": "no-such-host.invalid"}))


@pytest.mark.parametrize("value", ["127.0.0.1:99999", "127.0.0.1:x", "[::1"])
def test_what_is_no_address_is_said_with_its_property(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"resourcemanager\.address in spark\.conf must be a host, or a host and a port, such as"):
        try_all(yarn(tmp_path, {f"{MANAGER}address": value}))
