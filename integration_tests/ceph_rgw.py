"""A throw-away Ceph object gateway from the distribution's own packages, on free ports of 127.0.0.1.

One monitor, one OSD that keeps its data in memory, one gateway; all of it below one directory, and stopped by pid.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from integration_tests.servers import free_port, wait_for_http
from unit_tests.lake.buckets import S3Server

PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool")
DEBIAN_PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
STEP_TIMEOUT_S = 60
GATEWAY_TIMEOUT_S = 120
MEMORY_BYTES = 2 << 30

# All for a quick start: no authentication between the daemons (they share a machine and a test), one copy of everything, small pools.
# A monitor would also refuse to start on a disk of which less than a twentieth is free, however many gigabytes that is.
# Without tcp_nodelay, Nagle's algorithm holds back the body of each answer until the headers are acknowledged: 50 ms a GET instead of 5.
CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{monitor_port}
ms_bind_msgr2 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_size_one = true
mon_data_avail_crit = 0
mon_data_avail_warn = 0
mon_max_pg_per_osd = 2000
mon_warn_on_pool_no_redundancy = false
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_objectstore = memstore
memstore_device_bytes = {memory}
keyring = {directory}/keyring
run_dir = {directory}
admin_socket = {directory}/$name.asok
log_file = {directory}/$name.log

[mon.a]
mon_data = {directory}/mon

[osd.0]
osd_data = {directory}/osd

[client.gateway]
rgw_frontends = beast endpoint=127.0.0.1:{gateway_port} tcp_nodelay=1
rgw_dns_name = localhost
"""


class CephMissingError(Exception):
    """The packages are missing and could not be installed."""


def ensure_installed() -> None:
    """Install Ceph's packages where that is possible without asking (Debian, root). Raises CephMissingError."""
    if all(shutil.which(program) for program in PROGRAMS):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CephMissingError(f"Ceph is not installed; as root: apt-get install {' '.join(DEBIAN_PACKAGES)}")
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *DEBIAN_PACKAGES]):
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False
        )
        if result.returncode != 0:
            raise CephMissingError(f"{' '.join(command)} failed: {result.stderr[-500:]}")


@contextmanager
def ceph_or_skip(directory: Path) -> Iterator[S3Server]:
    """Start a gateway as `ceph_rgw` does, or skip the test where Ceph cannot be installed, except in CI."""
    try:
        ensure_installed()
    except CephMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with ceph_rgw(directory) as server:
        yield server


@contextmanager
def ceph_rgw(directory: Path) -> Iterator[S3Server]:
    """Start a gateway below `directory`, and stop its three processes afterwards. Takes about half a minute."""
    cluster = _Cluster(directory)
    with ExitStack() as processes:
        cluster.start_monitor(processes)
        cluster.start_osd(processes)
        yield cluster.start_gateway(processes)


class _Cluster:
    """The directory of one cluster and the commands that act on it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._conf = directory / "ceph.conf"
        self._fsid = str(uuid.uuid4())
        self._gateway_port, self._monitor_port = free_port(), free_port()
        for name in ("mon", "osd"):
            (directory / name).mkdir(parents=True)
        self._conf.write_text(
            CONFIGURATION.format(
                fsid=self._fsid, directory=directory, memory=MEMORY_BYTES, monitor_port=self._monitor_port, gateway_port=self._gateway_port
            )
        )

    def start_monitor(self, processes: ExitStack) -> None:
        monmap, keyring = str(self._directory / "monmap"), str(self._directory / "keyring")
        self._run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        for client in ("client.admin", "client.gateway"):
            self._run("ceph-authtool", keyring, "--gen-key", "-n", client, "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        address = f"[v1:127.0.0.1:{self._monitor_port}]"
        self._run("monmaptool", "--create", "--clobber", "--fsid", self._fsid, "--addv", "a", address, monmap)
        self._ceph("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self._start(processes, "ceph-mon", "-i", "a", "-f")

    def start_osd(self, processes: ExitStack) -> None:
        identity = str(uuid.uuid4())
        self._ask("osd", "new", identity)
        self._ceph("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", identity)
        self._ask("osd", "crush", "add", "osd.0", "1", "host=here", "root=default")
        deadline = time.monotonic() + STEP_TIMEOUT_S
        osd = self._start(processes, "ceph-osd", "-i", "0", "-f")
        while '"num_up_osds":1' not in self._ask("osd", "stat", "--format", "json"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the OSD did not come up: {(self._directory / 'ceph-osd.out').read_text(errors='replace')[-2000:]}")
            if osd.poll() is not None:  # it gives up ("wrong fsid") when it asks the monitor before that has told it about the cluster
                osd = self._start(processes, "ceph-osd", "-i", "0", "-f")
            time.sleep(0.2)

    def start_gateway(self, processes: ExitStack) -> S3Server:
        gateway = self._start(processes, "radosgw", "-n", "client.gateway", "-f")
        endpoint = f"http://127.0.0.1:{self._gateway_port}"
        wait_for_http(endpoint, gateway, self._directory / "radosgw.out", GATEWAY_TIMEOUT_S)
        server = S3Server("ceph", endpoint, "CEPH" + secrets.token_hex(8).upper(), secrets.token_urlsafe(30))
        user = ("--uid=tester", "--display-name=tester", f"--access-key={server.access_key}", f"--secret={server.secret_key}")
        self._ceph("radosgw-admin", "-n", "client.gateway", "user", "create", *user)
        return server

    def _ask(self, *arguments: str) -> str:
        """Run `ceph` with these arguments. A monitor that has just started refuses for a moment, so it is asked again."""
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while True:
            try:
                return self._ceph("ceph", "--connect-timeout", "30", *arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _ceph(self, program: str, *arguments: str) -> str:
        return self._run(program, "-c", str(self._conf), *arguments)

    def _run(self, *command: str) -> str:
        result = subprocess.run(command, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, cwd=self._directory, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{command[0]} failed with {result.returncode}: {result.stderr[-2000:]}")
        return result.stdout

    def _start(self, processes: ExitStack, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{program}.out").open("wb") as output:
            process = subprocess.Popen(
                [program, "-c", str(self._conf), *arguments], stdout=output, stderr=subprocess.STDOUT, cwd=self._directory
            )
        processes.callback(_stop, process)
        return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
