"""External Spark cluster: what the driver sends to its executors, and checks that they can run the connector's tasks.

The driver stays in the connector's process. Executors receive the connector's package as a zip file and the kernel's library, and provide
Python and other packages themselves.
"""

from __future__ import annotations

import os
import re
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from destination_s3_spark.config.spark_conf import PYTHON, api_server, is_on_this_machine, is_own_cluster
from destination_s3_spark.engine.environment import environment, shortcomings
from destination_s3_spark.errors import ConfigError, SyncError, TransientError

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGE_DIRECTORY = Path(__file__).parents[1]
EXECUTORS_EVERY_S = 10.0

_LAST_FAILURE = re.compile(r"most recent failure: [^\n]*?: (?P<cause>[^\n]+)")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Address and access of a Spark cluster.

    `master` is its URL (`spark://host:port`, `yarn`, `k8s://...`), `python` the interpreter its executors start. `start_limit_s` is the
    time executors may take to appear, in seconds. `secret` is that of `spark.authenticate`.
    """

    master: str
    python: str
    start_limit_s: float
    secret: str | None = field(default=None, repr=False)


def conf_of(cluster: Cluster) -> dict[str, str]:
    """Return the properties for the master and the driver's address. The user's own properties override them."""
    driver = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_on_this_machine(cluster.master) else {}
    return {"spark.master": cluster.master, **driver}


def java_options_of(cluster: Cluster) -> tuple[str, ...]:
    """Return JVM options that keep this machine's own tokens from a Kubernetes API server of the user's choice.

    Spark's Kubernetes client would send the token of a kubeconfig, or of the pod's service account, to any address. The latter goes to the
    pod's own cluster only.
    """
    if api_server(cluster.master) is None:
        return ()
    own = "true" if is_own_cluster(cluster.master, os.environ) else "false"
    return "-Dkubernetes.auth.tryKubeConfig=false", f"-Dkubernetes.auth.tryServiceAccount={own}"


@contextmanager
def secret_arguments(cluster: Cluster | None, directory: Path) -> Iterator[list[str]]:
    """Yield spark-submit arguments that pass the secret to a JVM launched inside.

    The secret goes through a file that only this user can read, because every user of the machine can see a command line.
    """
    if cluster is None or cluster.secret is None:
        yield []
        return
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "secret.properties"
    file.touch(mode=0o600)
    units = cluster.secret.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    file.write_text(f"spark.authenticate.secret={escaped}\n")
    try:
        yield ["--properties-file", str(file)]
    finally:
        file.unlink()


def package_archive(directory: Path) -> Path:
    """Write the connector's package to the directory as a zip file that Python can import, and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"{PACKAGE_DIRECTORY.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for module in sorted(PACKAGE_DIRECTORY.rglob("*.py")):
            file.write(module, module.relative_to(PACKAGE_DIRECTORY.parent))
    return archive


def require_working_executors(context: SparkContext) -> str:
    """Run tasks that report the executors' environment, and return how they type records. Raises ConfigError naming the missing parts."""
    slots = context.defaultParallelism
    try:
        found = context.parallelize(range(slots), slots).map(lambda _: environment()).collect()
    except Exception as error:
        raise _unusable(str(error)) from error
    missing = next(filter(None, (shortcomings(executor, environment()) for executor in found)), None)
    if missing is not None:
        raise ConfigError(
            f"Executors of the Spark cluster cannot run this connector's tasks. They need {missing}. Install it where they run, or name "
            f"another interpreter there in spark.conf as {PYTHON}."
        )
    return " and ".join(sorted({executor.records_typed for executor in found}))


@contextmanager
def give_up_without_executors(
    context: SparkContext, cluster: Cluster, conf: Mapping[str, str], look_every_s: float = EXECUTORS_EVERY_S
) -> Iterator[None]:
    """Run a job inside. Raises TransientError if the cluster has had no executor for `cluster.start_limit_s` seconds."""
    over, alone = threading.Event(), threading.Event()

    def watch() -> None:
        since = time.monotonic()
        while not over.wait(look_every_s):
            try:
                # The driver is one of the holders of blocks.
                if context._jsc.sc().getExecutorMemoryStatus().size() > 1:
                    since = time.monotonic()
                elif time.monotonic() - since >= cluster.start_limit_s:
                    alone.set()
                    context.cancelAllJobs()
                    return
            except Exception:  # noqa: BLE001 (the session has ended, and its job reports that)
                return

    threading.Thread(target=watch, name="spark-executors", daemon=True).start()
    try:
        yield
    except Exception as error:
        if alone.is_set():
            raise no_executors(cluster, conf) from error
        raise
    finally:
        over.set()


def no_executors(cluster: Cluster, conf: Mapping[str, str]) -> TransientError:
    """Return the error for a cluster that took no task in time."""
    driver = conf.get("spark.driver.host", "this machine's address")
    return TransientError(
        f"No executor of the Spark cluster {cluster.master} took a task within {cluster.start_limit_s:.0f} seconds. Look in the master's "
        "web page whether it has free cores and memory (spark.executor.memory, spark.cores.max) and whether executors start and end again: "
        f"then they cannot reach the driver at {driver} (spark.driver.host, spark.driver.port, spark.driver.blockManager.port)."
    )


def _unusable(text: str) -> SyncError:
    """Return the error for a failed probe. The probe handles no records, so the message may quote the cluster."""
    found = _LAST_FAILURE.search(text)
    cause = found["cause"].strip() if found else ""
    if "PYTHON_VERSION_MISMATCH" in text:
        ours = environment(()).python
        return ConfigError(
            f"Executors of the Spark cluster run another Python than this connector, which has {ours}. Name an interpreter of that version "
            f"there in spark.conf as {PYTHON}."
        )
    if "Cannot run program" in cause:
        return ConfigError(f"Executors of the Spark cluster cannot start Python: {cause}. Name one in spark.conf as {PYTHON}.")
    if found:
        return ConfigError(f"Executors of the Spark cluster cannot run a first task: {cause}. Their logs in Spark's web page say more.")
    return TransientError(
        "The Spark cluster ended the session before a first task ran. Either its master cannot be reached, or executors start and cannot "
        "reach this driver (spark.driver.host, spark.driver.port, spark.driver.blockManager.port), or the two do not share the secret of "
        "spark.authenticate. Spark's own messages are on stderr."
    )
