"""YARN and HDFS on one machine: Hadoop's own small cluster in a JVM, whose containers are processes beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from integration_tests.maven import jvm_with
from integration_tests.spark_cluster import QUICK_JVM

NODES = 2
NODE_MB = 3072
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
MANAGER = ("yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address")
FILE_SYSTEM = "fs.defaultFS"
CAPACITY = "yarn.scheduler.capacity"


@dataclass(frozen=True)
class YarnCluster:
    """A running cluster: the properties by which a client knows it, and its file system."""

    properties: Mapping[str, str]
    java: Any
    files: Any

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors that run now."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                if command and command[0].endswith("java") and any(part.endswith(EXECUTOR) for part in command):
                    found.append(process)
        return found

    def kill_one(self) -> None:
        """SIGKILL to an executor and its Python workers."""
        victim = self.executors()[0]
        for member in (*victim.children(recursive=True), victim):
            with suppress(psutil.NoSuchProcess):
                member.kill()

    def leftovers(self) -> list[str]:
        """What sessions have left in their staging directories."""
        found = self.files.globStatus(self._path("/user/*/.sparkStaging/*"))
        return [str(status.getPath().toString()) for status in found or ()]

    def put(self, file: Path, place: str) -> str:
        """Copy a file into the file system, and return its address there."""
        self.files.copyFromLocalFile(self._path(file.as_uri()), self._path(place))
        return f"{self.properties[FILE_SYSTEM]}{place}"

    def _path(self, text: str) -> Any:
        return self.java.org.apache.hadoop.fs.Path(text)


@contextmanager
def yarn_cluster(directory: Path, jars: str) -> Iterator[YarnCluster]:
    """A ResourceManager, two NodeManagers and a file system of one node."""
    directory.mkdir()
    with jvm_with(jars, directory / "log", [f"-Duser.dir={directory}"]) as java:
        conf = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in _settings(directory).items():
            conf.set(name, value)
        hdfs = java.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(1).build()
        hdfs.waitActive()
        yarn = java.org.apache.hadoop.yarn.server.MiniYARNCluster("small", NODES, 1, 1)
        yarn.init(conf)
        yarn.start()
        running = yarn.getConfig()
        properties = {FILE_SYSTEM: str(hdfs.getURI().toString()), **{name: str(running.get(name)) for name in MANAGER}}
        # Stopping it in order takes half a minute, and nothing is in it that anybody needs.
        yield YarnCluster(properties, java, hdfs.getFileSystem())


def _settings(directory: Path) -> dict[str, str]:
    return {
        "hadoop.tmp.dir": str(directory / "tmp"),
        "hdfs.minidfs.basedir": str(directory / "hdfs"),
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.nodemanager.resource.memory-mb": str(NODE_MB),
        "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(NODE_MB),
        "yarn.nodemanager.resource.cpu-vcores": "2",
        "yarn.nodemanager.vmem-check-enabled": "false",
        # Or a node of this cluster would be ill when the machine's disk is nearly full.
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,LANG",
        "yarn.nodemanager.admin-env": f"JAVA_TOOL_OPTIONS={QUICK_JVM}",
        "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
        f"{CAPACITY}.root.queues": "default",
        f"{CAPACITY}.root.default.capacity": "100",
        f"{CAPACITY}.maximum-am-resource-percent": "0.5",
    }
