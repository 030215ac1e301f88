"""A Spark cluster outside of the connector: what its executors are given, and whether they can work with it.

The driver stays in the connector's process. Executors get our package as a zip file; Python and other packages are theirs.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from destination_s3_spark.engine.environment import environment, shortcomings
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.spark_conf import PYTHON, is_on_this_machine

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGE = Path(__file__).parents[1]
SCRATCH_VARIABLE = "SPARK_LOCAL_DIRS"
"""Where Spark tells a Python worker which directories it clears when the executor ends, with commas between them."""

_LAST_FAILURE = re.compile(r"most recent failure: [^\n]*?: (?P<cause>[^\n]+)")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the cluster is (`spark://host:port`, `yarn`, `k8s://...`), the interpreter its executors start, and how many seconds they may
    take to appear."""

    master: str
    python: str
    start_limit_s: float


def conf_of(cluster: Cluster) -> dict[str, str]:
    """Where the session is and where its driver can be reached; the user's own properties come on top."""
    driver = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_on_this_machine(cluster.master) else {}
    return {"spark.master": cluster.master, **driver}


def package_archive(directory: Path) -> Path:
    """Our package as a zip file that Python imports from, in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"{PACKAGE.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for module in sorted(PACKAGE.rglob("*.py")):
            file.write(module, module.relative_to(PACKAGE.parent))
    return archive


def require_working_executors(context: SparkContext) -> None:
    """Run a task that says what an executor has. Raises ConfigError naming what is missing there."""
    try:
        (found,) = context.parallelize([0], 1).map(lambda _: environment()).collect()
    except Exception as error:
        raise _unusable(str(error)) from error
    missing = shortcomings(found, environment())
    if missing is not None:
        raise ConfigError(
            f"Executors of the Spark cluster cannot run this connector's tasks. They need {missing}. Install it where they run, or name "
            f"another interpreter there in spark.conf as {PYTHON}."
        )


def no_executors(cluster: Cluster, conf: Mapping[str, str]) -> TransientError:
    """The error of a cluster that did not take a task in time."""
    driver = conf.get("spark.driver.host", "this machine's address")
    return TransientError(
        f"No executor of the Spark cluster {cluster.master} took a task within {cluster.start_limit_s:.0f} seconds. Look in the master's "
        "web page whether it has free cores and memory (spark.executor.memory, spark.cores.max) and whether executors start and end again: "
        f"then they cannot reach the driver at {driver} (spark.driver.host, spark.driver.port, spark.driver.blockManager.port)."
    )


def scratch_directory() -> str | None:
    """On an executor: a directory that is cleared when it ends. None elsewhere, where the system's temporary one will do."""
    return os.environ.get(SCRATCH_VARIABLE, "").split(",")[0] or None


def _unusable(text: str) -> SyncError:
    """What a probe that failed means. No record was near it, so the cluster's own words may be shown."""
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
    return TransientError("The Spark cluster did not run a first task. Is its master up, has it workers? Spark's messages are on stderr.")
