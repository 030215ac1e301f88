"""A Kubernetes cluster on one machine: an API server, and hosts on which containers of pods run as processes.

Of a kubelet it has what Spark meets: pods get a host of their own, their variables and their status, and are ended when they are deleted.
The driver's pod is like Airbyte's: its name is its host name, which no other pod knows, and a token is mounted only where a test wants it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from integration_tests.kubernetes.api_server import ACCOUNT, NAMES, NAMESPACE, ApiServer, Json
from integration_tests.network import Host
from integration_tests.spark_cluster import SPARK_HOME

LOOK_EVERY_S = 0.3
STATIC = "driver"
"""The label of pods that nobody has to start."""
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class Image:
    """What a container of this image runs before its arguments, and its variables."""

    entry_point: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass
class Container:
    """A running container."""

    process: subprocess.Popen[bytes]
    host: Host
    directory: Path

    def kill(self) -> None:
        """SIGKILL to all its processes, as by the kernel's OOM killer."""
        with suppress(psutil.NoSuchProcess):
            for member in (*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)):
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        self.process.wait(10)


@dataclass
class Cluster:
    """The cluster's nodes. `seen` has every pod that was asked for, as it was then."""

    api: ApiServer
    hosts: list[Host]
    images: Mapping[str, Image]
    directory: Path
    seen: list[Json] = field(default_factory=list)
    running: dict[str, Container] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> None:
        """Do once what nodes always do."""
        with self._lock:
            pods = {pod["metadata"]["name"]: pod for pod in self.api.pods() if STATIC not in pod["metadata"].get("labels", {})}
            for name in set(self.running) - set(pods):
                self._end(name)
            for name, pod in pods.items():
                if pod["metadata"].get("deletionTimestamp"):
                    self._end(name)
                    self._ask("DELETE", name, {"gracePeriodSeconds": 0})
                elif name not in self._known:
                    self._start(name, pod)
                elif name in self.running and self.running[name].process.poll() is not None:
                    self._tell_of_end(name, pod)

    def _start(self, name: str, pod: Json) -> None:
        container = pod["spec"]["containers"][0]
        image = self.images.get(container["image"])
        if image is None:
            self._known.add(name)
            self.seen.append(pod)
            self.api.bind(name)
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}": not found'}
            self._tell(name, pod, "Pending", {"waiting": waiting})
        elif self.hosts:
            self._known.add(name)
            self.seen.append(pod)
            self.api.bind(name)
            self.running[name] = self._run(name, container, image, self.hosts.pop(0))
            self.api.logs[name] = (self.running[name].directory / "log").read_bytes
            self._tell(name, pod, "Running", {"running": {}})
        else:
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: no room."}
            self._status(name, {"phase": "Pending", "conditions": [said]})

    def _run(self, name: str, container: Json, image: Image, host: Host) -> Container:
        place = self.directory / name
        (place / "local").mkdir(parents=True)
        fields = {"status.podIP": host.address, "metadata.name": name}
        variables = {
            entry["name"]: fields[entry["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in entry else entry.get("value", "")
            for entry in container.get("env", ())
        }
        variables["SPARK_LOCAL_DIRS"] = str(place / "local")
        bare = {"PATH": os.environ["PATH"], "HOME": str(place), "TMPDIR": str(place), "SPARK_HOME": str(SPARK_HOME)}
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [*host.entry, *image.entry_point, *container.get("args", ())],
                env={**bare, **variables, **image.environment},
                cwd=place,
                stdout=log,
                stderr=log,
            )
        return Container(process, host, place)

    def _tell_of_end(self, name: str, pod: Json) -> None:
        code = self.running[name].process.returncode
        code = 128 - code if code < 0 else code
        self._end(name)
        reason = "Completed" if code == 0 else "Error"
        self._tell(name, pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code, "reason": reason}})

    def _end(self, name: str) -> None:
        if name in self.running:
            container = self.running.pop(name)
            container.kill()
            self.hosts.append(container.host)

    def _tell(self, name: str, pod: Json, phase: str, state: Json) -> None:
        container = pod["spec"]["containers"][0]
        shown = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{**shown, "ready": phase == "Running", "state": state}]}
        if phase == "Running":
            status["podIP"] = self.running[name].host.address
        self._status(name, status)

    def _status(self, name: str, status: Json) -> None:
        with suppress(urllib.error.HTTPError):  # it is gone
            self.api.patch_status(name, status)

    def _ask(self, method: str, path: str, body: Json) -> None:
        with suppress(urllib.error.HTTPError):
            self.api(method, f"/api/v1/namespaces/{NAMESPACE}/pods/{path}", body)

    def executors(self) -> list[Json]:
        """The pods of executors that there are now."""
        return [pod for pod in self.api.pods() if STATIC not in pod["metadata"].get("labels", {})]

    def remove(self, pods: Sequence[Json]) -> None:
        """Remove pods whose owner has gone, as Kubernetes does."""
        for pod in pods:
            self._ask("DELETE", pod["metadata"]["name"], {"gracePeriodSeconds": 0})

    def kill_one(self) -> str:
        """Kill an executor's processes, and return its pod's name."""
        with self._lock:
            name, container = next((name, container) for name, container in self.running.items() if container.process.poll() is None)
            container.kill()
            return name

    def wait_for_no_process(self, timeout_s: float = 60) -> None:
        """Return once no executor runs any more."""
        deadline = time.monotonic() + timeout_s
        while any(container.process.poll() is None for container in list(self.running.values())):
            assert time.monotonic() < deadline, list(self.running)
            time.sleep(0.2)

    def logs(self) -> str:
        """The ends of what executors said, for a failing assertion."""
        return "\n".join(f"--- {file.parent.name}\n{file.read_text(errors='replace')[-1500:]}" for file in self.directory.glob("*/log"))


@contextmanager
def cluster(api: ApiServer, hosts: Sequence[Host], images: Mapping[str, Image], directory: Path) -> Iterator[Cluster]:
    """A cluster whose nodes have room for one pod on each of these hosts."""
    found, over = Cluster(api, list(hosts), images, directory), threading.Event()

    def work() -> None:
        while not over.wait(LOOK_EVERY_S):
            with suppress(OSError, ValueError):  # the API server is busy, or ends
                found.look()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        yield found
    finally:
        over.set()
        worker.join(20)
        for container in found.running.values():
            container.kill()


@dataclass(frozen=True)
class Pod:
    """A pod in which a test runs a program: what is put before its command, and its variables."""

    name: str
    entry: tuple[str, ...]
    environment: Mapping[str, str]


@contextmanager
def driver_pod(api: ApiServer, host: Host, here: Host, directory: Path, name: str, token: str | None) -> Iterator[Pod]:
    """A pod as Airbyte makes it. A token is mounted with the account's other files, None mounts nothing."""
    network = Path("/etc/netns", host.entry[-1])
    network.mkdir(parents=True, exist_ok=True)
    (network / "hosts").write_text(f"127.0.0.1 localhost\n{host.address} {name}\n{here.address} {' '.join(NAMES)}\n")
    (network / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    account = directory / name
    account.mkdir(parents=True)
    for file, text in {"token": token, "ca.crt": api.authority, "namespace": NAMESPACE}.items():
        (account / file).write_text(text or "")
    mount = f"mkdir -p {MOUNT} && mount --bind {account} {MOUNT} && " if token else ""
    script = directory / f"{name}.sh"
    script.write_text(f'hostname {name} && {mount}exec "$@"\n')
    spec = {"serviceAccountName": ACCOUNT, "containers": [{"name": "destination", "image": "connector", "securityContext": RESTRICTED}]}
    labels = {STATIC: "yes", "airbyte": "job-pod", "workload_id": "7"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {**spec, "nodeName": "node"}}
    api("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    api.patch_status(name, {"phase": "Running", "podIP": host.address, "podIPs": [{"ip": host.address}]})
    try:
        yield Pod(name, (*host.entry, "unshare", "--uts", "sh", str(script)), {"HOSTNAME": name, "KUBERNETES_SERVICE_HOST": here.address})
    finally:
        with suppress(urllib.error.HTTPError):
            api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 0})
        shutil.rmtree(network, ignore_errors=True)  # pods that come one after the other share it


def connector_image(python: Path, environment: Mapping[str, str]) -> Image:
    """The connector's own image, with this interpreter for the code of tasks."""
    script = Path(sys.executable).with_name("destination-s3-spark")
    return Image((str(script),), {**environment, "PATH": f"{python.parent}:{os.environ['PATH']}"})
