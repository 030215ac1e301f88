"""The image as Airbyte runs it: a container with a pipe for stdin, its files mounted read-only, and nothing writable but two tmpfs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import docker
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.utils.socket import STDERR, frames_iter

from integration_tests.connector import Connector, Sync

USER = "1000"
FILES = "/config"
SPOOL = "/spool"
TMPFS = {"/tmp": "", SPOOL: f"uid={USER},mode=0700"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the container may use."""

    memory: str = "4g"
    cpus: float = 2


class ContainerProcess:
    """A running container, looked at as `subprocess.Popen` shows a process. Its pipes are the container's."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.returncode: int | None = None
        self._socket = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self.stdin = _Stdin(self._socket._sock)
        self.stdout, self.stderr = self._demultiplexed()
        container.start()
        container.reload()
        self.pid: int = container.attrs["State"]["Pid"]
        """The number by which this machine knows the container's process 1."""

    def poll(self) -> int | None:
        """The exit code, or None while the container runs."""
        try:
            self.container.reload()
        except NotFound:
            return self.returncode
        state = self.container.attrs["State"]
        if state["Status"] == "exited":
            self.returncode = state["ExitCode"]
        return self.returncode

    def wait(self, timeout: float) -> int:
        try:
            code: int = self.container.wait(timeout=timeout)["StatusCode"]
        except OSError:  # requests' ReadTimeout and ConnectionError
            raise subprocess.TimeoutExpired(str(self.container.image), timeout) from None
        self.returncode = code
        return code

    def send_signal(self, number: int) -> None:
        self.container.kill(number)

    @property
    def killed_for_memory(self) -> bool:
        self.container.reload()
        return bool(self.container.attrs["State"]["OOMKilled"])

    def _demultiplexed(self) -> tuple[IO[bytes], IO[bytes]]:
        """The two outputs, which come through one socket in frames."""
        pipes = [os.pipe(), os.pipe()]
        readers = [os.fdopen(reader, "rb") for reader, _ in pipes]
        writers = [os.fdopen(writer, "wb", buffering=0) for _, writer in pipes]

        def copy() -> None:
            for stream, data in frames_iter(self._socket, tty=False):
                writers[stream == STDERR].write(data)
            for writer in writers:
                writer.close()

        threading.Thread(target=copy, daemon=True).start()
        return readers[0], readers[1]


class _Stdin:
    """The writing half of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        self._connection.sendall(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self._connection.shutdown(socket.SHUT_WR)


@dataclass(slots=True)
class ImageConnector(Connector):
    """Runs the connector's commands in containers, which `containers` collects for their removal."""

    image: str = ""
    run_as: str = USER
    limits: Limits = field(default_factory=Limits)
    containers: list[Container] = field(default_factory=list)

    def config(self, **options: Any) -> dict[str, Any]:
        """The usual configuration with the spool on its tmpfs and as many tasks as the container has CPUs."""
        batching = {"spool_dir": SPOOL, **self.options.get("batching", {}), **options.pop("batching", {})}
        return Connector.config(self, **{"spark": None, **options, "batching": batching})

    def run(self, command: str, *options: str, **files: Mapping[str, Any]) -> Sync:
        """Start any command with these options; each keyword becomes a file in a directory that is mounted read-only, and an option."""
        self.runs += 1
        directory = self.directory / f"run-{self.runs}"
        directory.mkdir(parents=True)
        arguments = [command, *options]
        for name, content in files.items():
            (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
            arguments += [f"--{name}", f"{FILES}/{name}.json"]
        container = docker.from_env().containers.create(
            self.image,
            arguments,
            stdin_open=True,
            read_only=True,
            tmpfs=TMPFS,
            user=self.run_as,
            mem_limit=self.limits.memory,
            memswap_limit=self.limits.memory,
            nano_cpus=int(self.limits.cpus * 1e9),
            network_mode="host",
            environment={"AWS_EC2_METADATA_DISABLED": "true", **self.environment},
            volumes={str(directory): {"bind": FILES, "mode": "ro"}},
        )
        self.containers.append(container)
        return Sync(ContainerProcess(container), [self.bucket.server.secret_key])  # type: ignore[arg-type]

    def remove(self) -> None:
        """Remove the containers, whether they run or not."""
        for container in self.containers:
            try:
                container.remove(force=True)
            except (NotFound, APIError):
                continue
