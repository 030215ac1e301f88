"""Spark's JVM: launched as pyspark does it, but before pyspark is imported, which takes as long as the JVM to get under way.

The process at the other end of the JVM's stdin keeps it alive: it ends by itself when that process dies.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.01
_SUBMIT = "bin/spark-submit"
_CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Jvm:
    """A JVM that is being launched with this configuration of Spark; what it tells of itself goes below `directory`.

    `arguments` are more of those of spark-submit.
    """

    def __init__(self, conf: Mapping[str, Any], arguments: Sequence[str], directory: Path) -> None:
        self._connection = Path(tempfile.mkdtemp(dir=directory)) / "connection"  # it will hold a secret
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        self.process = subprocess.Popen(  # noqa: S603 (Spark's own script)
            [_spark_home() / _SUBMIT, *options, *arguments, "pyspark-shell"],
            stdin=subprocess.PIPE,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", _CONNECTION_FILE: str(self._connection)},
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509 (as pyspark does it: Ctrl-C is for us)
        )

    def gateway(self) -> Any:
        """py4j's way into the JVM, once it is up. Raises OSError when it ends before."""
        while not self._connection.exists():
            if self.process.poll() is not None:
                raise OSError(f"the JVM ended with code {self.process.returncode} before it could be spoken to")
            time.sleep(LOOK_EVERY_S)
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (spec and check must not pay for it)

        logging.root.addFilter(_not_of_py4j)
        told = self._connection.read_bytes()  # the port, the length of the secret, and the secret
        self._connection.unlink()
        address = {_PORT: str(int.from_bytes(told[:4])), _SECRET: told[8:].decode()}
        os.environ.update(address)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in address:
                del os.environ[name]
        gateway.proc = self.process
        return gateway


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether somebody else has logged the record: py4j logs a connection that is lost with a traceback, and raises it as well."""
    return Path(record.pathname).parent.name != "py4j"


def _spark_home() -> Path:
    """Where Spark lies: as the environment says, or with pyspark, whose own way of finding it would import all of it."""
    package = find_spec("pyspark")
    assert package is not None  # noqa: S101 (a dependency)
    assert package.origin is not None  # noqa: S101
    return Path(os.environ.get("SPARK_HOME") or Path(package.origin).parent)
