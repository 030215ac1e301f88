"""A throw-away SeaweedFS with its S3 gateway, on free ports of 127.0.0.1, below one directory, and stopped by pid."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from integration_tests.servers import free_port, wait_for_http
from unit_tests.lake.buckets import S3Server

PROGRAM = Path(sysconfig.get_path("scripts")) / "weed"
START_TIMEOUT_S = 120
TRIES = 3


@contextmanager
def seaweedfs(directory: Path) -> Iterator[S3Server]:
    """Start master, volume server, filer and gateway in one process."""
    for left in reversed(range(TRIES)):
        with ExitStack() as stack:
            try:
                server = _started(directory / str(left), stack)
            except RuntimeError:  # another program took one of its ports in the meantime
                if not left:
                    raise
                continue
            yield server
            return


def _started(directory: Path, stack: ExitStack) -> S3Server:
    directory.mkdir()
    port, log = free_port(), directory / "weed.log"
    server = S3Server("seaweedfs", f"http://127.0.0.1:{port}", "SEAWEED" + secrets.token_hex(6).upper(), secrets.token_urlsafe(30))
    keys = [{"accessKey": server.access_key, "secretKey": server.secret_key}]
    users = directory / "s3.json"
    users.write_text(json.dumps({"identities": [{"name": "tester", "credentials": keys, "actions": ["Admin"]}]}))
    grpc = {part: free_port() for part in ("master", "volume", "filer", "s3")}
    options: dict[str, object] = {
        "s3.port": port,
        "s3.config": users,
        "dir": directory,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "volume.max": 1000,
        "master.volumeSizeLimitMB": 64,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": directory / "s3.sock",
        "filer.localSocket": directory / "filer.sock",
        **{f"{part}.port.grpc": number for part, number in grpc.items()},
        **{f"{part}.port": free_port() for part in ("master", "volume", "filer")},
    }
    command = [str(PROGRAM), "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}  # else each bucket makes seven volumes
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=directory, env=environment)
    for part, number in grpc.items():
        stack.callback(Path(f"/tmp/seaweedfs-{part}-grpc-{number}.sock").unlink, missing_ok=True)
    stack.callback(process.wait, 10)
    stack.callback(process.kill)  # it has nothing to keep, and on SIGTERM it goes on for more than ten seconds
    wait_for_http(server.endpoint, process, log, START_TIMEOUT_S)
    return server
