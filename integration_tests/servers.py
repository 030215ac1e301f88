"""The S3 servers that tests of processes talk to: moto as a process.

moto is quick and forgiving; Ceph (`ceph_rgw.py`) is a real server that checks signatures and differs from moto in a dozen answers.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unit_tests.lake.buckets import S3Server

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_http(url: str, process: subprocess.Popen[bytes], log: Path, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return once the address answers anything at all. Raises with the end of the server's log when it does not."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url} did not come up (exit code {process.poll()}):\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def moto_server(directory: Path) -> Iterator[S3Server]:
    """A moto server on a free port, with S3 and STS. It accepts every key."""
    port, log = free_port(), directory / "moto.log"
    command = [sys.executable, "-m", "unit_tests.moto_server", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        wait_for_http(f"{endpoint}/moto-api/", process, log)
        yield S3Server("moto", endpoint, "AKIA" + secrets.token_hex(8).upper(), secrets.token_urlsafe(30))
    finally:
        process.terminate()
        process.wait(10)
