"""What a user may say about Spark: which masters there are, and which keys of `spark.conf` may not be set, and why.

Every other key reaches the session as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address

MASTER = r"^(local(\[(\*|[1-9][0-9]*)\])?|spark://[^\s,/]+:[0-9]{1,5}(,[^\s,/]+:[0-9]{1,5})*|yarn|k8s://\S+)$"
PYTHON = "spark.pyspark.python"
"""The interpreter of executors on other machines, a name in their PATH or an absolute path."""

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
    ("spark.authenticate.secret", OWN_OPTION.format("authenticate_secret")),
    ("spark.speculation*", "a second copy of a task would upload its files a second time"),
    ("spark.python.daemon.module", OTHER_PYTHON),
    ("spark.python.worker.module", OTHER_PYTHON),
    ("spark.executorEnv.*", OTHER_PYTHON),
    ("spark.eventLog.*", LEAK),
    ("spark.metrics.conf*", LEAK),
    ("spark.hadoop.fs.s3*", "S3 is reached without Hadoop here; credentials in Spark's configuration would show up in its logs"),
)
"""(pattern, reason). Keys are case-sensitive, as in Spark."""


def is_local(master: str) -> bool:
    """Whether Spark runs inside the connector."""
    return master.startswith("local")


def is_on_this_machine(master: str) -> bool:
    """Whether nothing that is said between the driver and its executors leaves this machine."""
    return is_local(master) or (master.startswith("spark://") and all(_is_loopback(host) for host, _ in addresses(master)))


def addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each master of a standalone cluster."""
    parts = (address.rpartition(":") for address in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, which may stand for anything
        return False


def is_encrypted(conf: Mapping[str, str]) -> bool:
    """Whether executors prove who they are, and what is sent to them cannot be read on the way."""

    def on(key: str) -> bool:
        return conf.get(key, "").strip().lower() == "true"

    over_tls = on("spark.ssl.rpc.enabled") and conf.get("spark.ssl.enabled", "true").strip().lower() == "true"
    return on("spark.authenticate") and (on("spark.network.crypto.enabled") or over_tls)


def refusal(keys: Iterable[str], master: str) -> str | None:
    """Why the first unacceptable key is refused, naming it; None when all are fine."""
    for key in keys:
        if not key.startswith("spark."):
            return f"`{key}` does not begin with `spark.`, so Spark would ignore it. Remove it or fix its spelling"
        if key == PYTHON and not is_local(master):
            continue
        for pattern, reason in REFUSED:
            if fnmatchcase(key, pattern):
                return f"`{key}` is refused: {reason}. Remove it"
    return None
