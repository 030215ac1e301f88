"""A standalone Spark cluster of two workers, with nothing in common but the network, and interpreters for its executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import psutil
import pyspark
from packaging.requirements import Requirement

from integration_tests.network import HERE, Host
from integration_tests.servers import free_port, wait_for_http

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 60
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
PASSED_ON = ("PATH", "JAVA_HOME", "LANG")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster; each worker has one core and a directory of its own."""

    master: str
    web: str
    workers: tuple[Path, ...]

    def executors(self) -> list[int]:
        """How many executors each worker has started so far."""
        return [len(list(directory.glob("work/app-*/*/stderr"))) for directory in self.workers]

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def wait_until_free(self) -> None:
        """Return once no application holds a core."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.state()["coresused"]:
            assert time.monotonic() < deadline, self.state()
            time.sleep(0.2)


@contextmanager
def spark_cluster(
    directory: Path, environment: Mapping[str, str], properties: Mapping[str, str], head: Host = HERE, hosts: Sequence[Host] = (HERE, HERE)
) -> Iterator[SparkCluster]:
    """A cluster whose executors have this environment, beside the bare one, and all of whose parts have these Spark properties.

    Its master runs on the `head`, and a worker on each of the `hosts`.
    """
    port, web_port = free_port(), free_port()
    master, web = f"spark://{head.address}:{port}", f"http://{head.address}:{web_port}"
    processes = []
    (directory / "conf").mkdir(parents=True)
    (directory / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in properties.items()))
    try:
        place = directory / "master"
        processes.append(_daemon(place, head, "master.Master", ["--port", str(port), "--webui-port", str(web_port)], {}))
        wait_for_http(web, processes[0], place / "log", START_TIMEOUT_S)
        workers = tuple(directory / f"worker-{number}" for number in range(len(hosts)))
        processes += [_worker(worker, host, master, environment) for worker, host in zip(workers, hosts, strict=True)]
        cluster = SparkCluster(master, web, workers)
        _await_workers(cluster)
        yield cluster
    finally:
        for process in reversed(processes):
            _stop(process)


def _worker(directory: Path, host: Host, master: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    arguments = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(directory / "work"), master]
    return _daemon(directory, host, "worker.Worker", arguments, {**environment, "SPARK_LOCAL_DIRS": str(directory / "local")})


def _daemon(directory: Path, host: Host, name: str, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    for folder in ("local", "tmp", "home"):
        (directory / folder).mkdir(parents=True)
    bare = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": host.address, "HOME": str(directory / "home"), "TMPDIR": str(directory / "tmp")}
    own["SPARK_CONF_DIR"] = str(directory.parent / "conf")
    quick = {"SPARK_DAEMON_MEMORY": "256m", "JAVA_TOOL_OPTIONS": QUICK_JVM}
    command = [*host.entry, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host.address, *arguments]
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory, env={**bare, **own, **quick, **environment})


def _await_workers(cluster: SparkCluster) -> None:
    deadline, alive = time.monotonic() + START_TIMEOUT_S, 0
    while alive < len(cluster.workers):
        assert time.monotonic() < deadline, f"{alive} workers are there"
        with suppress(TimeoutError):  # the master of a busy machine may not answer in time
            alive = cluster.state()["aliveworkers"]
        time.sleep(0.2)


def _stop(process: subprocess.Popen[bytes]) -> None:
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    members: list[subprocess.Popen[bytes] | psutil.Process] = [process, *family]
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait(10)


def interpreter(directory: Path, packages: Iterable[str]) -> Path:
    """A virtual environment with these packages of ours and what they need, and nothing else; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    library = next(directory.glob("lib/python*/site-packages"))
    for package in _with_requirements(packages).values():
        for entry in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (library / entry).symlink_to(Path(str(package.locate_file(entry))))
    return directory / "bin" / "python"


def _with_requirements(packages: Iterable[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    left = list(packages)
    while left:
        name = left.pop().lower()
        if name in found:
            continue
        with suppress(PackageNotFoundError):  # of another platform or Python
            found[name] = distribution(name)
            wanted = [Requirement(text) for text in found[name].requires or ()]
            left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found
