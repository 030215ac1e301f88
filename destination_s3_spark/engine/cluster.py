"""External Spark cluster: what the driver sends to its executors, and checks that they can run the connector's tasks.

The driver stays in the connector's process. Executors receive the connector's package as a zip file and the kernel's library, and provide
Python and other packages themselves.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from destination_s3_spark.config.spark_conf import PYTHON
from destination_s3_spark.engine.environment import environment, shortcomings
from destination_s3_spark.errors import ConfigError, SyncError, TransientError

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGE_DIRECTORY = Path(__file__).parents[1]

_LAST_FAILURE = re.compile(r"most recent failure: [^\n]*?: (?P<cause>[^\n]+)")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Address and access of a Spark cluster.

    `master` is its URL (`spark://host:port`, `yarn`, `k8s://...`), `python` the interpreter its executors start. `start_limit_s` is the
    time executors may take to appear, in seconds. `secret` is that of `spark.authenticate`, `kubernetes_token` that of an account which the
    API server knows. `authorities` are certificates as PEM text that count beside the public ones.
    """

    master: str
    python: str
    start_limit_s: float
    secret: str | None = field(default=None, repr=False)
    kubernetes_token: str | None = field(default=None, repr=False)
    authorities: str | None = None


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
        return ConfigError(
            f"Executors of the Spark cluster cannot start Python as {PYTHON} in spark.conf names it, or by the name of this connector's if "
            "nothing does. Name one there that they have."
        )
    if found:
        return ConfigError(f"Executors of the Spark cluster cannot run a first task: {cause}. Their logs in Spark's web page say more.")
    return TransientError(
        "The Spark cluster ended the session before a first task ran. Either its master cannot be reached, or executors start and cannot "
        "reach this driver (spark.driver.host, spark.driver.port, spark.driver.blockManager.port), or the two do not share the secret of "
        "spark.authenticate. Spark's own messages are on stderr."
    )
