"""The connector's commands in this process: the same files, messages and exit codes as the installed one, without a process and Spark."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from destination_s3_spark import process
from destination_s3_spark.cli import diagnosis, operator_command
from destination_s3_spark.protocol.writer import ProtocolLogHandler, ProtocolWriter
from destination_s3_spark.storage.settings import USUAL_LIMITS, ClientLimits
from destination_s3_spark.sync import runtime
from unit_tests.lake.buckets import Bucket
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.outcome import Outcome, usual_options

ENGINES = (runtime, diagnosis)
"""The modules that make engines for commands. They are imported here, before any is replaced: what imports a function keeps it."""
_ENVIRONMENT = {"DESTINATION_S3_SPARK_SHORTCUTS": "off", "WORKER_JOB_ID": "1"}


@dataclass
class InlineConnector:
    """Runs commands against one bucket. `options` are added to the usual configuration, `environment` to that of this process."""

    directory: Path
    bucket: Bucket
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: ClientLimits = USUAL_LIMITS
    engine: Callable[[], Any] = InlineEngine
    _runs: int = field(default=0, init=False)

    def config(self, **options: Any) -> dict[str, Any]:
        """The configuration: the usual one and the given options (None removes one)."""
        return {name: value for name, value in {**usual_options(self.bucket), **self.options, **options}.items() if value is not None}

    def write(self, catalog: Mapping[str, Any], messages: Iterable[bytes], **options: Any) -> Outcome:
        """Run a whole sync: all messages, then the end of input."""
        config, chosen = self._file("config", self.config(**options)), self._file("catalog", catalog)
        with tempfile.TemporaryFile(dir=self.directory) as stdin:
            stdin.writelines(messages)
            stdin.seek(0)
            return self._protocol(lambda output: process.write_from(stdin.fileno(), config, chosen, output, self.limits))

    def check(self, *, forgets: bool = False, **options: Any) -> Outcome:
        config = self._file("config", self.config(**options))
        return self._protocol(lambda output: process.check_connection(config, output, forgets=forgets))

    def run(self, command: str, *arguments: str, **options: Any) -> Outcome:
        """Run an operator's command with `--config` and these arguments. `lines` are those of its stdout."""
        config = self._file("config", self.config(**options))
        stdout, stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
        with self._environment(), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                code = operator_command([command, "--config", str(config), *arguments])
            except SystemExit as ended:  # argparse refuses the arguments
                code = int(ended.code or 0)
        stdout.seek(0)
        lines = stdout.buffer.read().splitlines(keepends=True)
        return self._without_secrets(Outcome(code, tuple(lines), stderr.getvalue()))

    def _protocol(self, command: Callable[[ProtocolWriter], None]) -> Outcome:
        """Run a command of Airbyte's."""
        stdout, stderr = io.BytesIO(), io.StringIO()
        output = ProtocolWriter(stdout)
        with self._environment(), contextlib.redirect_stderr(stderr), _logged(output):
            code = process.reported(command, output)
        return self._without_secrets(Outcome(code, tuple(stdout.getvalue().splitlines(keepends=True)), stderr.getvalue()))

    def _without_secrets(self, outcome: Outcome) -> Outcome:
        said = b"".join(outcome.lines).decode(errors="replace") + outcome.stderr
        assert self.bucket.server.secret_key not in said, "a secret was printed"
        return outcome

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.dict(os.environ, {**_ENVIRONMENT, **self.environment}))
            for module in ENGINES:
                stack.enter_context(patch.object(module, "engine_of", lambda *_: self.engine()))
            yield

    def _file(self, name: str, content: Mapping[str, Any]) -> Path:
        self._runs += 1
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{name}-{self._runs}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


@contextlib.contextmanager
def _logged(output: ProtocolWriter) -> Iterator[None]:
    """Turn log records into LOG messages, as the connector's process does, beside the handlers that are there."""
    root, ours, handler = logging.getLogger(), logging.getLogger("airbyte"), ProtocolLogHandler(output)
    before = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])
