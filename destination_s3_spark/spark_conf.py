"""Which keys of `spark.conf` a user may not set, and why. Everything else reaches the session as it is written."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

FOREIGN_CODE = "it would load code that this connector was not tested with"
OTHER_PYTHON = "Spark's workers must run the interpreter and packages of this connector"
OWN_OPTION = "set spark.{} of this configuration instead"
LEAK = "it writes what runs here to a place outside the sync"

REFUSED: tuple[tuple[str, str], ...] = (
    ("spark.master", OWN_OPTION.format("master")),
    ("spark.driver.memory", OWN_OPTION.format("driver_memory")),
    ("spark.submit.*", "the session is started by this connector, not by spark-submit"),
    ("spark.remote", "Spark Connect is not supported"),
    ("spark.api.mode", "Spark Connect is not supported"),
    ("spark.connect.*", "Spark Connect is not supported"),
    ("spark.jars", FOREIGN_CODE),
    ("spark.jars.*", FOREIGN_CODE),
    ("spark.files", FOREIGN_CODE),
    ("spark.archives", FOREIGN_CODE),
    ("spark.plugins", FOREIGN_CODE),
    ("spark.extraListeners", FOREIGN_CODE),
    ("spark.sql.extensions", FOREIGN_CODE),
    ("*JavaOptions", FOREIGN_CODE),
    ("*ClassPath*", FOREIGN_CODE),
    ("*LibraryPath", FOREIGN_CODE),
    ("*discoveryScript", FOREIGN_CODE),
    ("*discoveryPlugin", FOREIGN_CODE),
    ("spark.pyspark.*", OTHER_PYTHON),
    ("spark.python.daemon.module", OTHER_PYTHON),
    ("spark.python.worker.module", OTHER_PYTHON),
    ("spark.executorEnv.*", OTHER_PYTHON),
    ("spark.eventLog.*", LEAK),
    ("spark.metrics.conf*", LEAK),
    ("spark.hadoop.fs.s3*", "S3 is reached without Hadoop here; credentials in Spark's configuration would show up in its logs"),
)
"""(pattern, reason). Keys are case-sensitive, as in Spark."""


def refusal(keys: Iterable[str]) -> str | None:
    """Why the first unacceptable key is refused, naming it; None when all are fine."""
    for key in keys:
        if not key.startswith("spark."):
            return f"`{key}` does not begin with `spark.`, so Spark would ignore it. Remove it or fix its spelling"
        for pattern, reason in REFUSED:
            if fnmatchcase(key, pattern):
                return f"`{key}` is refused: {reason}. Remove it"
    return None
