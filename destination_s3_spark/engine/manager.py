"""Manager of a cluster as one session meets it: what it wants to be told, what can be tried before Spark starts, and why no executor comes.

`Manager` is Spark's own, of standalone clusters. Kubernetes and YARN differ from it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from destination_s3_spark.config.spark_conf import addresses, is_on_this_machine
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.errors import SyncError, TransientError

CONNECT_S = 5.0
MAX_PORT = 65_535
TASK_MB = 1024
"""Memory of a task outside the JVM."""
JVM_EXTRA_MB = 384
"""Memory of an executor's JVM beside its heap."""
OVERHEADS = ("spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")

_SIZE = re.compile(r"([1-9][0-9]*)([kmgt]?)b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that must work before Spark can start. `run` raises a SyncError that says why it does not."""

    name: str
    run: Callable[[], None]


class Manager:
    """Spark's own manager. `conf` holds the user's properties, `directory` is the session's."""

    where_to_look = (
        "Look in the master's web page whether it has free cores and memory (spark.executor.memory, spark.cores.max) and whether executors "
        "start and end again"
    )

    def __init__(self, cluster: Cluster, conf: Mapping[str, str], directory: Path) -> None:
        self.cluster = cluster
        self.conf = conf
        self.directory = directory

    def trials(self) -> tuple[Trial, ...]:
        """Return what to try, in this order."""
        return (Trial("Spark master", lambda: require_one_answers(addresses(self.cluster.master), "Spark master", "spark.master")),)

    def untried(self) -> str | None:
        """Return why no executor can be started to try it although a sync can, and what to change; None if one can be."""
        return None

    def properties(self) -> dict[str, str]:
        """Return the properties of a session. The user's own override them."""
        if is_on_this_machine(self.cluster.master):
            return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return driver_host(addresses(self.cluster.master))

    def java_options(self) -> tuple[str, ...]:
        """Return the options for the driver's JVM."""
        return ()

    def environment(self) -> dict[str, str]:
        """Return variables for the environment of the driver's JVM."""
        return {}

    def before_session(self, gateway: Any) -> None:
        """Try what takes the manager's own client, which is in the JVM. Raises SyncError."""

    def failure(self) -> SyncError | None:
        """Return why executors will never come, or None while they may."""
        return None

    def outlook(self) -> str:
        """Return what the manager says of executors that have not come, as sentences; empty if it says nothing."""
        return ""

    def clean_up(self) -> None:
        """Remove what the session has left with the manager."""


def no_executors(manager: Manager) -> TransientError:
    """Return the error for a cluster that took no task in time."""
    driver = {**manager.properties(), **manager.conf}.get("spark.driver.host", "this machine's address")
    outlook = manager.outlook()
    return TransientError(
        f"No executor of the Spark cluster {manager.cluster.master} took a task within {manager.cluster.start_limit_s:.0f} seconds. "
        f"{outlook + ' ' if outlook else ''}{manager.where_to_look}: then they cannot reach the driver at {driver} (spark.driver.host, "
        "spark.driver.port, spark.driver.blockManager.port)."
    )


def require_one_answers(places: list[tuple[str, int]], what: str, option: str) -> None:
    """Raise TransientError unless one of these accepts connections. Spark itself would try for minutes and say less."""
    for host, port in places:
        if port > MAX_PORT:  # the resolver would take it modulo 65,536, where another server may answer
            continue
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except OSError:
            continue
        return
    named = ",".join(f"{host}:{port}" for host, port in places)
    raise TransientError(f"No {what} answers at {named}. Check {option}, and that this machine may connect to it.")


def driver_host(places: list[tuple[str, int]]) -> dict[str, str]:
    """Return the property that tells executors where the driver is. Spark would take a container's name, which is known nowhere else."""
    own = next(filter(None, (own_address(host, port) for host, port in places)), None)
    return {} if own is None else {"spark.driver.host": own}


def own_address(host: str, port: int) -> str | None:
    """Return this machine's address on the way to a host, None if there is no way. Nothing is sent."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            own = str(probe.getsockname()[0])
    except (OSError, OverflowError):
        return None
    return f"[{own}]" if family == socket.AF_INET6 else own


def python_memory(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the property for memory outside the heap: of it, Spark knows nothing about Python's, and managers kill who takes more."""
    if any(key in conf for key in OVERHEADS):
        return {}
    cores = conf.get("spark.executor.cores", "1")
    tasks = int(cores) if cores.isdigit() else 1
    return {"spark.executor.memoryOverhead": f"{JVM_EXTRA_MB + TASK_MB * tasks}m"}


def megabytes(text: str) -> int | None:
    """Return a size as Spark reads one of memory, in MiB; None if it is none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = int(found[1]), found[2].lower()
    return {"k": number // 1024, "m": number, "": number, "g": number * 1024, "t": number * 1024**2}[unit]
