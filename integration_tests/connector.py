"""The installed connector as Airbyte runs it: a process with files for configuration and catalog, messages on stdin, answers on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from unit_tests.lake.buckets import Bucket
from unit_tests.lake.outcome import Outcome, state_lines, usual_options

SCRIPT = Path(sys.executable).with_name("destination-s3-spark")
TIMEOUT_S = 120
PASSED_ON = ("PATH", "HOME", "JAVA_HOME", "LANG", "SPARK_HOME")


class Sync:
    """One running `write`. Leaving the `with` block kills what still runs."""

    def __init__(self, process: subprocess.Popen[bytes], secrets: Iterable[str]) -> None:
        self._process = process
        self._secrets = tuple(secrets)
        self._lines: list[bytes] = []
        self._stderr: list[bytes] = []
        self._arrived = threading.Condition()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin: IO[bytes] = process.stdin
        self._readers = [
            threading.Thread(target=self._collect, args=(process.stdout, self._lines), daemon=True),
            threading.Thread(target=self._collect, args=(process.stderr, self._stderr), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Sync:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        with contextlib.suppress(OSError):  # what was not read of it went with the process
            self._stdin.close()

    def send(self, *lines: bytes) -> Sync:
        """Write message lines to stdin. A process that stopped reading on its own account is for the caller to judge by its outcome."""
        with contextlib.suppress(BrokenPipeError):
            for line in lines:
                self._stdin.write(line)
            self._stdin.flush()
        return self

    def wait_for_states(self, count: int, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """The STATE lines so far, once there are at least `count`."""
        self._wait_for(lambda: len(state_lines(self._lines)) >= count, timeout_s, f"{count} STATE messages")
        return state_lines(self._lines)

    def wait_for_jvm(self, timeout_s: float = TIMEOUT_S) -> Sync:
        """Itself, once Spark's JVM or what launches it runs; it is far from ready then."""
        self._wait_for(lambda: any(self._launched(member) for member in self.family()), timeout_s, "JVM")
        return self

    @staticmethod
    def _launched(member: psutil.Process) -> bool:
        """Whether the process is Java, or the script that becomes it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return member.name() in ("java", "spark-submit", "spark-class")
        return False

    def _wait_for(self, ready: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until `ready` says yes. Fails when the process ends or the time is over first."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while not ready():
                assert time.monotonic() < deadline, f"no {what} within {timeout_s} s: {self._so_far()}"
                assert self._process.poll() is None or self._readers[0].is_alive(), f"the process ended without {what}: {self._so_far()}"
                self._arrived.wait(0.2)

    def end_input(self) -> Sync:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        return self

    def terminate(self) -> Sync:
        """SIGTERM, to the connector's own process only, as a container runtime does."""
        self._process.send_signal(signal.SIGTERM)
        return self

    def interrupt(self) -> Sync:
        """SIGINT to all processes of the connector's group, as a terminal does at Ctrl-C."""
        group = os.getpgid(self._process.pid)
        for member in self.family():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getpgid(member.pid) == group:
                    member.send_signal(signal.SIGINT)
        return self

    def kill(self) -> Sync:
        """SIGKILL to the process and all its children at once: what is left when a container is gone."""
        for member in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.wait(30)
        return self

    def kill_jvm(self) -> Sync:
        """SIGKILL to Spark's JVM alone, as of a kernel that is short of memory. Returns when it is dead."""
        jvm = self.jvm()
        jvm.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            while jvm.status() != psutil.STATUS_ZOMBIE:  # until its parent asks for it
                time.sleep(0.01)
        return self

    def jvm(self) -> psutil.Process:
        """Spark's JVM. Fails when there is none."""
        (jvm,) = (member for member in self.family() if member.name() == "java")
        return jvm

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def family(self) -> list[psutil.Process]:
        """The connector's process and all below it, such as Spark's JVM; empty when it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._process.poll() is None:
                connector = psutil.Process(self._process.pid)
                return [connector, *connector.children(recursive=True)]
        return []

    def finish(self, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Wait for the end, and collect all that was said. Whatever happened, no secret may be in it."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the process did not end within {timeout_s} s: {self._so_far()}") from None
        for reader in self._readers:
            reader.join(30)
        outcome = Outcome(self._process.returncode, tuple(self._lines), b"".join(self._stderr).decode(errors="replace"))
        said = b"".join(outcome.lines).decode(errors="replace") + outcome.stderr
        assert not any(secret in said for secret in self._secrets), "a secret was printed"
        return outcome

    def _collect(self, stream: IO[bytes], lines: list[bytes]) -> None:
        for line in stream:
            with self._arrived:
                lines.append(line)
                self._arrived.notify_all()
        stream.close()

    def _so_far(self) -> str:
        return b"".join([*self._lines, b"--- stderr\n", *self._stderr]).decode(errors="replace")[-6000:]


@dataclass(slots=True)
class Connector:
    """Runs the connector against one bucket. `options` are added to the usual configuration, `environment` to that of Airbyte's platform.

    `user` runs it in the group of root, as containers may be run as any user; `program` starts it for such a one.
    """

    directory: Path
    bucket: Bucket
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None
    program: Sequence[str] = (str(SCRIPT),)
    runs: int = 0

    def config(self, **options: Any) -> dict[str, Any]:
        """The configuration: the bucket, Parquet, two Spark tasks at once, and the given options (None removes one)."""
        usual = usual_options(self.bucket)
        return {name: value for name, value in {**usual, **self.options, **options}.items() if value is not None}

    def start(self, catalog: Mapping[str, Any], **options: Any) -> Sync:
        """Start a `write` and leave its stdin to the caller."""
        return self.run("write", config=self.config(**options), catalog=catalog)

    def write(self, catalog: Mapping[str, Any], messages: Iterable[bytes], timeout_s: float = TIMEOUT_S, **options: Any) -> Outcome:
        """A whole sync: all messages, end of input, end of the process."""
        with self.start(catalog, **options) as sync:
            guard = threading.Timer(timeout_s, sync.kill)
            guard.start()
            for message in messages:
                sync.send(message)
            outcome = sync.end_input().finish(timeout_s)
            guard.cancel()
            return outcome

    def check(self, timeout_s: float = TIMEOUT_S, **options: Any) -> Outcome:
        with self.run("check", config=self.config(**options)) as process:
            return process.end_input().finish(timeout_s)

    def run(self, command: str, *options: str, **files: Mapping[str, Any]) -> Sync:
        """Start any command with these options; each keyword becomes a JSON file and an option that names it."""
        self.runs += 1
        directory = self.directory / f"run-{self.runs}"
        temporary = directory / "tmp"
        temporary.mkdir(parents=True)
        arguments = [*self.program, command, *options]
        for name, content in files.items():
            path = directory / f"{name}.json"
            path.write_text(json.dumps(content), encoding="utf-8")
            arguments += [f"--{name}", str(path)]
        bare = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment = {**bare, "TMPDIR": str(temporary), "AWS_EC2_METADATA_DISABLED": "true", "WORKER_JOB_ID": "1", **self.environment}
        identity: dict[str, Any] = {} if self.user is None else {"user": self.user, "group": 0, "extra_groups": []}
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory, env=environment, **identity
        )
        return Sync(process, [self.bucket.server.secret_key])
