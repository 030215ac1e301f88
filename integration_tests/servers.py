"""The S3 servers the tests talk to: what a test knows of one, and moto as a process.

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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 30
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Server:
    """One S3 endpoint and the keys of a user who may do everything there."""

    name: str
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)

    def client(self) -> Any:
        """A boto3 client for the tests' own looks at the server. It never retries, so that a fault shows."""
        return _client(self)

    def through(self, endpoint: str) -> S3Server:
        """The same server as reached by another address, such as a proxy's."""
        return replace(self, endpoint=endpoint)


@lru_cache(maxsize=64)
def _client(server: S3Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


@dataclass(frozen=True, slots=True)
class Bucket:
    """One empty bucket of a test."""

    server: S3Server
    name: str

    def list_keys(self, prefix: str = "") -> list[str]:
        """All keys under the prefix, sorted."""
        return list(self.list_etags(prefix))

    def list_etags(self, prefix: str = "") -> dict[str, str]:
        """The ETags of all objects under the prefix, sorted by key."""
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return dict(sorted((entry["Key"], entry["ETag"]) for page in pages for entry in page.get("Contents", ())))

    @lru_cache(maxsize=4096)  # noqa: B019 (buckets are small, and the cache is bounded)
    def read_version(self, key: str, etag: str) -> bytes:
        """The object with this ETag, fetched once."""
        body: bytes = self.server.client().get_object(Bucket=self.name, Key=key, IfMatch=etag)["Body"].read()
        return body

    def read(self, key: str) -> bytes:
        body: bytes = self.server.client().get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def open_uploads(self) -> list[str]:
        """Keys of the multipart uploads that are neither completed nor aborted."""
        return [upload["Key"] for upload in self.server.client().list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def through(self, endpoint: str) -> Bucket:
        """The same bucket as reached by another address."""
        return replace(self, server=self.server.through(endpoint))


BUCKETS: list[Bucket] = []
"""The buckets of the test module that runs."""


def new_bucket(server: S3Server) -> Bucket:
    bucket = Bucket(server, f"it-{secrets.token_hex(6)}")
    server.client().create_bucket(Bucket=bucket.name)
    BUCKETS.append(bucket)
    return bucket


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
