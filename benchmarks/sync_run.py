"""One sync of the installed connector with generated input: its process, how long its parts took, and what it said when."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process_tree import Sampler
from demo.connector import COMMAND

COMMITTED = ": committed "
SUMMARY_PREFIX = "sync summary as JSON: "


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the connector's output and when it came, in seconds of the monotonic clock."""

    at: float
    line: str


@dataclass(slots=True)
class SyncRun:
    """`started`, `fed` (end of the input) and `ended` in seconds of the monotonic clock; `sampler` has what it took, until it ended."""

    started: float
    code: int = -1
    sent_bytes: int = 0
    fed: float = 0.0
    ended: float = 0.0
    said: list[Said] = field(default_factory=list)
    sampler: Sampler | None = None

    @property
    def seconds(self) -> float:
        """The whole process."""
        return self.ended - self.started

    @property
    def landed(self) -> float:
        """When the last rows were committed."""
        return max((said.at for said in self.said if COMMITTED in said.line), default=self.ended)

    @property
    def update_seconds(self) -> float:
        """The updates of the tables at the end, as the connector says in its summary."""
        lines = (json.loads(said.line) for said in self.said if SUMMARY_PREFIX in said.line)
        phases = [json.loads(line["log"]["message"].removeprefix(SUMMARY_PREFIX))["seconds_by_phase"] for line in lines]
        return sum(float(found.get(phase, 0)) for found in phases for phase in ("merging", "compacting"))

    @property
    def states(self) -> int:
        """STATE messages that came back."""
        return sum(said.line.startswith('{"type":"STATE"') for said in self.said)


def write_command(config: dict[str, object], catalog: dict[str, object], directory: Path) -> list[str]:
    """The command of a sync; its files are put into the directory."""
    paths = {"config": directory / "config.json", "catalog": directory / "catalog.json"}
    for path, content in zip(paths.values(), (config, catalog), strict=True):
        path.write_text(json.dumps(content))
    return [*COMMAND, "write", "--config", str(paths["config"]), "--catalog", str(paths["catalog"])]


def run(command: Sequence[str], chunks: Iterable[bytes | memoryview], errors: Path, watched: Path | None = None) -> SyncRun:
    """Run a sync over the input to its end, whatever its exit code. `errors` gets its stderr; the size of `watched` is sampled."""
    with errors.open("wb") as stderr:
        result = SyncRun(time.monotonic())
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        listener = threading.Thread(target=_listen, args=(process, result), daemon=True)
        listener.start()
        with Sampler(process.pid, watched) as result.sampler:
            _feed(process, chunks, result)
            result.code = process.wait()
        result.ended = time.monotonic()
        listener.join()
    return result


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes | memoryview], result: SyncRun) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            for chunk in chunks:
                process.stdin.write(chunk)
                result.sent_bytes += len(chunk)
    except BrokenPipeError:
        pass  # the sync ended early; its exit code and its messages say why
    result.fed = time.monotonic()


def _listen(process: subprocess.Popen[bytes], result: SyncRun) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        result.said.append(Said(time.monotonic(), line.decode()))
