"""Spark's JVM, launched as pyspark does it, but before the import of pyspark, which takes as long as the JVM's start.

The JVM ends by itself when the process at the other end of its stdin dies. Its output, with that of its launcher and of the Python workers
below it, goes to stderr, less the lines of a good start.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from destination_s3_spark.engine.variables import of_jvm

CONNECTION_EVERY_S = 0.01
CONNECTION_LIMIT_S = 600.0
"""Seconds in which a JVM accepts a connection, many more than it takes. One that waits for ever would stop the sync silently."""
END_OF_OUTPUT_S = 1.0
"""Seconds to wait for the last lines of a JVM that has ended. Processes below it may keep its output open for longer."""
NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector",)
"""Lines of every start. Spark itself asks for this module, and Java has no option against its warning."""
LINES_KEPT = 50
"""Last lines that are kept for a diagnosis."""
LINES_QUOTED = 3
"""Most lines that a message quotes."""
QUOTED_CHARACTERS = 300
STDERR = 2
LOG4J = Path(__file__).with_name("log4j2.properties")

_STACK_FRAME = re.compile(r"\s*(?:at |\.\.\. \d+ more|#\s*$)")
_SUBMIT = "bin/spark-submit"
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Jvm:
    """A JVM that is being launched with this Spark configuration. It writes its connection data below `directory`.

    `arguments` are further arguments for spark-submit, `environment` further variables than every JVM gets,
    and `masked` masks secrets in what it writes.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        masked: Callable[[str], str] = str,
    ) -> None:
        self._connection = Path(tempfile.mkdtemp(dir=directory)) / "connection"  # it will contain a secret
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        self.process = subprocess.Popen(  # noqa: S603 (Spark's own script)
            [spark_home() / _SUBMIT, *options, *arguments, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**of_jvm(os.environ), **environment, "SPARK_HOME": str(spark_home()), _CONNECTION_FILE: str(self._connection)},
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509 (like pyspark: Ctrl-C is for the driver)
        )
        assert self.process.stdout is not None  # noqa: S101 (it is a pipe)
        self.output = JvmOutput(self.process.stdout, masked)

    def gateway(self) -> Any:
        """Wait for the JVM and return py4j's gateway to it. From then on its output is passed on. Raises OSError if it fails."""
        self.output.follow()
        limit = time.monotonic() + CONNECTION_LIMIT_S
        while not self._connection.exists():
            if self.process.poll() is not None:
                raise OSError(f"the JVM ended with code {self.process.returncode} before it accepted a connection")
            if time.monotonic() > limit:
                self.process.kill()
                raise OSError(f"the JVM accepted no connection within {CONNECTION_LIMIT_S:.0f} seconds")
            time.sleep(CONNECTION_EVERY_S)
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (spec and check must not pay for it)

        logging.root.addFilter(_not_of_py4j)
        content = self._connection.read_bytes()  # the port, the length of the secret, and the secret
        self._connection.unlink()
        address = {_PORT: str(int.from_bytes(content[:4])), _SECRET: content[8:].decode()}
        os.environ.update(address)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in address:
                del os.environ[name]
        gateway.proc = self.process
        return gateway

    def close(self) -> None:
        """Close the pipe that keeps the JVM alive, and pass its last words on."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.output.finish(END_OF_OUTPUT_S)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for py4j's log records: it logs a lost connection with a traceback although it also raises it."""
    return Path(record.pathname).parent.name != "py4j"


def spark_home() -> Path:
    """Return Spark's directory: SPARK_HOME, or pyspark's own. pyspark's function for this would import the whole package."""
    package = find_spec("pyspark")
    assert package is not None  # noqa: S101 (a dependency)
    assert package.origin is not None  # noqa: S101
    return Path(os.environ.get("SPARK_HOME") or Path(package.origin).parent)


class JvmOutput:
    """Reader of the output, in which it masks secrets.

    Until `follow`, the output waits in the pipe: a process that is to be forked must not have threads.

    One thread may follow the output while another one, which stops the sync, finishes it.
    """

    def __init__(self, pipe: IO[bytes], masked: Callable[[str], str] = str) -> None:
        self._pipe = pipe
        self._masked = masked
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Pass the output on from now on, in the background and until it ends. Do nothing if it is finished."""
        with self._lock:
            if self._thread is None and not self._pipe.closed:
                thread = threading.Thread(target=self._pass_on, name="jvm-output", daemon=True)
                thread.start()
                self._thread = thread

    def finish(self, timeout_s: float) -> None:
        """Wait for the end of the output of a JVM that has ended. Without `follow`, nobody reads it."""
        with self._lock:
            if self._thread is None:
                self._pipe.close()
                return
        self._thread.join(timeout_s)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines so far, without those of a good start."""
        return tuple(self._last)

    def _pass_on(self) -> None:
        with self._pipe:
            for line in self._pipe:
                if line.strip() in NOISE:
                    continue
                text = self._masked(line.decode(errors="surrogateescape"))
                passed = text.encode(errors="surrogateescape")
                self._last.append(passed.decode(errors="replace").rstrip())
                with suppress(OSError):  # stderr may be closed, and the JVM must not wait for it
                    os.write(STDERR, passed)


def quoted(lines: tuple[str, ...]) -> str:
    """Return the last lines that say something, without stack frames, in one line for a message; "" if there are none."""
    telling = [line.strip() for line in lines if line.strip() and not _STACK_FRAME.match(line)]
    return " | ".join(line[:QUOTED_CHARACTERS] for line in telling[-LINES_QUOTED:])
