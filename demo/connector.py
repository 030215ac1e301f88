"""The connector as a child process, as Airbyte runs it, with messages on stdin and answers on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from demo.shop import Chunk

COMMAND = (sys.executable, "-m", "destination_s3_spark")
SUCCEEDED = "SUCCEEDED"


@dataclass(slots=True)
class Progress:
    """The progress of a sync: records, bytes and STATEs sent, STATEs that came back, and the texts of TRACE ERRORs."""

    started: float = field(default_factory=time.monotonic)
    records: int = 0
    sent_bytes: int = 0
    states_sent: int = 0
    states_back: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the process."""
        return time.monotonic() - self.started


def check(config: Path, log: Path) -> str:
    """Run `check` and return SUCCEEDED, or its message about the failure. Its stderr goes to `log`."""
    with log.open("ab") as messages:
        command = [*COMMAND, "check", "--config", str(config)]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=messages, check=False)  # noqa: S603 (our own command)
    for message in _messages(run.stdout.splitlines()):
        if message.get("type") == "CONNECTION_STATUS":
            status = message["connectionStatus"]
            return SUCCEEDED if status["status"] == SUCCEEDED else str(status.get("message") or status["status"])
    return f"exit code {run.returncode} without an answer"


def write(config: Path, catalog: Path, chunks: Iterable[Chunk], log: Path, show: Callable[[Progress], None]) -> tuple[int, Progress]:
    """Run `write` over the chunks and return its exit code and progress. Call `show` about twice a second. Its stderr goes to `log`."""
    progress = Progress()
    with log.open("ab") as messages:
        process = subprocess.Popen(  # noqa: S603 (our own command)
            [*COMMAND, "write", "--config", str(config), "--catalog", str(catalog)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        )
        assert process.stdin is not None  # noqa: S101 (both are pipes)
        assert process.stdout is not None  # noqa: S101
        listener = threading.Thread(target=_listen, args=(process.stdout, progress), daemon=True)
        listener.start()
        feeder = threading.Thread(target=_feed, args=(process.stdin, chunks, progress), daemon=True)
        feeder.start()
        while listener.is_alive():
            listener.join(0.5)
            show(progress)
        return process.wait(), progress


def _feed(stdin: IO[bytes], chunks: Iterable[Chunk], progress: Progress) -> None:
    try:
        with stdin:
            for chunk in chunks:
                stdin.write(chunk.lines)
                progress.records += chunk.records
                progress.sent_bytes += len(chunk.lines)
                progress.states_sent += chunk.states
    except BrokenPipeError:
        pass  # the sync ended early; its exit code and its TRACE give the reason


def _listen(stdout: IO[bytes], progress: Progress) -> None:
    for message in _messages(stdout):
        if message.get("type") == "STATE":
            progress.states_back += 1
        elif message.get("type") == "TRACE" and message["trace"]["type"] == "ERROR":
            progress.errors.append(str(message["trace"]["error"]["message"]))


def _messages(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in lines:
        if line.startswith(b"{"):
            yield json.loads(line)
