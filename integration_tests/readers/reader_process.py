"""A program that answers requests in the environment of scripts/install-readers: its packages cannot be in the connector's own."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unit_tests.lake.buckets import REGION

INSTALLED = Path(__file__).parents[2] / ".cache" / "readers"
Row = dict[str, Any]


class ReaderError(Exception):
    """A request that was not carried out."""


class ReaderProcess:
    """Requests to the program, one JSON line each, and its answers, one pickle each."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], log: Path) -> None:
        self._requests = requests
        self._answers = answers
        self._log = log

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The program's answer. Raises ReaderError with its error."""
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        try:
            answer: dict[str, Any] = pickle.load(self._answers)
        except EOFError:
            raise RuntimeError(f"{self._log.stem} ended:\n{self._log.read_text(errors='replace')[-4000:]}") from None
        if "error" in answer:
            raise ReaderError(answer["error"])
        return answer


@contextmanager
def reader_process(program: Path, directory: Path, settings: Mapping[str, Any], **variables: str) -> Iterator[ReaderProcess]:
    """The program, after its answer to these settings. Its environment has these variables."""
    log = directory / f"{program.stem}.log"
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment = {**bare, "TZ": "UTC", "AWS_REGION": REGION, **variables}
    command = [str(INSTALLED / "venv" / "bin" / "python"), str(program)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=directory, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        answers = ReaderProcess(process.stdin, process.stdout, log)
        answers.answer(settings)
        yield answers
    finally:
        process.stdin.close()  # the end of its input ends it
        process.wait(60)
        process.stdout.close()
