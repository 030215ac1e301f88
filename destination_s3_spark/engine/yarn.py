"""YARN as the manager of executors. Addresses may come from the configuration alone, without a directory of Hadoop's files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from destination_s3_spark.config.spark_conf import hosts
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.manager import Manager, Trial, driver_host, python_memory, require_one_answers
from destination_s3_spark.engine.variables import chosen
from destination_s3_spark.errors import ConfigError

DIRECTORIES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables of which spark-submit wants one, although the configuration may name every address."""
USER = "HADOOP_USER_NAME"
"""Environment variable with the user's name towards Hadoop."""
HADOOP = "spark.hadoop."
MANAGER = f"{HADOOP}yarn.resourcemanager."
PORT = 8032
"""The ResourceManager's usual port for clients."""
PATIENCE_MS = {"yarn.resourcemanager.connect.max-wait.ms": "15000", "yarn.resourcemanager.connect.retry-interval.ms": "2000"}
"""Limits of the first request. Hadoop's own is a quarter of an hour."""


class Yarn(Manager):
    """YARN, through its ResourceManager."""

    where_to_look = (
        "Look in the ResourceManager's web page whether the application waits for room in its queue (spark.executor.memory, "
        "spark.executor.instances) and whether executors start and end again"
    )

    def __init__(self, cluster: Cluster, conf: Mapping[str, str], directory: Path, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(cluster, conf, directory)
        self._environ = environ

    def trials(self) -> tuple[Trial, ...]:
        return (Trial("YARN ResourceManager", self._reach),)

    def _reach(self) -> None:
        """Raise SyncError unless the ResourceManager answers. Addresses in Hadoop's own files are tried by its client, with the session."""
        if self._addresses():
            require_one_answers(self._addresses(), "YARN ResourceManager", f"{MANAGER}* in spark.conf")
        elif not any(self._environ.get(name) for name in DIRECTORIES):
            raise ConfigError(
                f"The YARN ResourceManager is not known. Set {MANAGER}hostname in spark.conf (and {HADOOP}fs.defaultFS to the cluster's "
                f"HDFS), or {DIRECTORIES[0]} in the environment."
            )

    def _addresses(self) -> list[tuple[str, int]]:
        """Return where the configuration says that a ResourceManager is. An address counts before a host name, as in YARN."""
        found = []
        for pattern in ("address", "address.*", "hostname", "hostname.*"):
            for key, value in self.conf.items():
                if fnmatchcase(key, MANAGER + pattern):
                    found.append(_place(key, value))
            if found:
                break
        return found

    def properties(self) -> dict[str, str]:
        return {**driver_host(self._addresses()), **python_memory(self.conf)}

    def environment(self) -> dict[str, str]:
        """Return the directory of Hadoop's files, an empty one where the environment names none.

        Spark uploads all that is in it. So it is an empty one, too, where the configuration names a server, which may be anybody's.
        """
        given = chosen(self._environ, (*DIRECTORIES, USER))
        if any(given.get(name) for name in DIRECTORIES) and not any(True for _ in hosts("yarn", self.conf)):
            return given
        empty = self.directory / "hadoop"
        empty.mkdir(parents=True, exist_ok=True)
        return {**chosen(given, [USER]), DIRECTORIES[0]: str(empty)}

    def before_session(self, gateway: Any) -> None:
        """Ask the ResourceManager for its nodes, before Spark uploads anything. Raises ConfigError if it has none."""
        java = gateway.jvm
        conf = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
        given = {key.removeprefix(HADOOP): value for key, value in self.conf.items() if key.startswith(HADOOP)}
        for key, value in {**given, **PATIENCE_MS}.items():
            conf.set(key, value)
        client = java.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
        client.init(conf)
        client.start()
        try:
            nodes = client.getYarnClusterMetrics().getNumNodeManagers()
        finally:
            client.stop()
        if nodes == 0:
            raise ConfigError("The YARN cluster has no node: its ResourceManager knows no NodeManager that runs. Start one.")


def _place(key: str, value: str) -> tuple[str, int]:
    """Return the host and port of a property. Raises ConfigError."""
    try:
        parts = urlsplit(f"//{value}")
        return parts.hostname or "", parts.port or PORT
    except ValueError:
        raise ConfigError(f"{key} in spark.conf must be a host, or a host and a port, such as host:{PORT}.") from None
