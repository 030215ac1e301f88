"""Local S3 server for the demo: moto, as a child process on a free port of 127.0.0.1.

The child is `python -m demo.server`. It prints its port and serves until it is terminated.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from destination_s3_spark.errors import ConfigError, TransientError

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class LocalS3:
    """A running server, which accepts any access key."""

    endpoint: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Terminate the server, which loses everything it holds."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def require_installed() -> None:
    """Raise ConfigError when moto is missing. The connector itself does not need it."""
    if find_spec("moto") is None or find_spec("flask") is None:
        raise ConfigError("The demo brings its own S3 server, which is not installed. Install it with: pip install 'moto[server]'")


def start(bucket: str, log: Path) -> LocalS3:
    """Start a server with one empty bucket. Its own messages go to `log`. Raises TransientError if it does not start."""
    with log.open("wb") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.server"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,  # Ctrl-C in the terminal must reach the demo alone, and --keep must outlive it
        )
    assert process.stdout is not None  # noqa: S101 (a pipe)
    with process.stdout as answer:
        port = answer.readline().strip()
    server = LocalS3(f"http://{HOST}:{port.decode()}", process)
    if not port or not _create_bucket(int(port), bucket):
        server.stop()
        raise TransientError(f"The demo's S3 server did not start; what it said is in {log}.")
    return server


def _create_bucket(port: int, bucket: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("PUT", f"/{bucket}")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def _serve() -> None:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 (a dev dependency, and slow to import)

    server = ThreadedMotoServer(HOST, port=0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    _serve()
