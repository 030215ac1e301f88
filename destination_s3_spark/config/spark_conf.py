"""Rules for the Spark settings of a user: the possible masters, and the keys of `spark.conf` that may be set.

An allowed key reaches the session unchanged. Any other key is refused, with a reason where one is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from destination_s3_spark.errors import ConfigError

MASTER = r"^(local(\[(\*|[1-9][0-9]*)\])?|spark://[^\s,/]+:[0-9]{1,5}(,[^\s,/]+:[0-9]{1,5})*|yarn|k8s://\S+)$"
PYTHON = "spark.pyspark.python"
"""Interpreter of executors on other machines: a name in their PATH or an absolute path."""

OWN_OPTION = "set spark.{} of this configuration instead"
YARN_ARCHIVE = "spark.yarn.archive"
YARN_ARCHIVE_SCHEMES = ("hdfs", "viewfs", "webhdfs")
"""File systems of a cluster that Hadoop's client reaches by itself: with another one, a file of the connector's machine could be sent."""
LOCAL_FILE = "it has a file of the connector's machine read, whose content could be sent to the cluster"

REFUSED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (OWN_OPTION.format("master"), ("spark.master",)),
    (OWN_OPTION.format("driver_memory"), ("spark.driver.memory",)),
    (OWN_OPTION.format("authenticate_secret"), ("spark.authenticate.secret*",)),
    ("the session is started by this connector, not by spark-submit", ("spark.submit.*",)),
    ("Spark Connect is not supported", ("spark.remote", "spark.api.mode", "spark.connect.*")),
    ("it would load code that this connector was not tested with", (
        "spark.jars*", "spark.files", "spark.archives", "spark.*plugin*", "spark.extraListeners", "spark.repl.*", "spark.r.*",
        "spark.ui.filters", "spark.sql.extensions", "*JavaOptions", "*ClassPath*", "*ibraryPath", "*discoveryScript",
        "spark.network.crypto.config.*", "spark.kubernetes.*eatureSteps", "spark.kubernetes.allocation.pods.allocator",
        "spark.kubernetes.decommission.script", "spark.yarn.jars", "spark.yarn.dist.*",
    )),
    ("Spark's workers must run the interpreter and packages of this connector", (
        "spark.pyspark.*", "spark.python.daemon.module", "spark.python.worker.module", "spark.executorEnv.*",
    )),
    ("a second copy of a task would upload its files a second time", ("spark.speculation*",)),
    ("it writes what runs here to a place outside the sync", (
        "spark.eventLog.*", "spark.metrics.*", "spark.driver.log.*", "spark.kubernetes.file.upload.path",
    )),
    ("it would show secrets", ("spark.log.level", "spark.logConf", "spark.redaction.*")),
    (OWN_OPTION.format("kubernetes_token"), ("spark.kubernetes.*oauthToken",)),
    (LOCAL_FILE, ("spark.kubernetes.*File", "spark.kerberos.*")),
    (f"{LOCAL_FILE}; spark.network.crypto.enabled encrypts without one", ("spark.ssl.*",)),
    (LOCAL_FILE, ("*keytab*",)),
    ("S3 is reached without Hadoop here; credentials in Spark's configuration would show up in its logs", ("spark.hadoop.fs.s3*",)),
)  # fmt: skip
"""(reason, patterns) of keys that users are likely to try, and of keys that ALLOWED would let through. Case-sensitive, as in Spark."""

ALLOWED: tuple[str, ...] = (
    # Memory and cores.
    "spark.cores.max", "spark.default.parallelism", "spark.driver.maxResultSize", "spark.driver.memoryOverhead*",
    "spark.driver.minMemoryOverhead", "spark.executor.cores", "spark.executor.instances", "spark.executor.memory*",
    "spark.executor.minMemoryOverhead", "spark.executor.pyspark.memory", "spark.dynamicAllocation.*", "spark.memory.*",
    "spark.python.worker.*", "spark.task.*",
    # Addresses, ports and time limits.
    "spark.blockManager.port", "spark.driver.bindAddress", "spark.driver.blockManager.port", "spark.driver.host", "spark.driver.port",
    "spark.executor.heartbeat*", "spark.network.*", "spark.port.maxRetries", "spark.python.authenticate.socketTimeout",
    "spark.python.task.killTimeout", "spark.rpc.*",
    # Permissions and encryption.
    "spark.acls.enable", "spark.admin.acls*", "spark.authenticate", "spark.authenticate.*", "spark.io.encryption.enabled",
    "spark.io.encryption.key*", "spark.modify.acls*", "spark.security.credentials.*", "spark.ui.view.acls*",
    # Scheduling, and the handling of executors that fail or leave.
    "spark.app.name", "spark.broadcast.*", "spark.cleaner.*", "spark.decommission.*", "spark.excludeOnFailure.*",
    "spark.executor.decommission.*", "spark.executor.failuresValidityInterval", "spark.executor.logs.rolling.*",
    "spark.executor.maxNumFailures", "spark.local.dir", "spark.locality.*", "spark.scheduler.listenerbus.*",
    "spark.scheduler.m*RegisteredResources*", "spark.scheduler.mode", "spark.scheduler.pool", "spark.scheduler.revive.interval",
    "spark.shuffle.io.*", "spark.shuffle.registration.*", "spark.shuffle.service.*", "spark.stage.*", "spark.ui.enabled", "spark.ui.port",
    "spark.ui.retained*", "spark.ui.reverseProxy*",
    # Kubernetes and YARN.
    "spark.kubernetes.allocation.batch.*", "spark.kubernetes.allocation.driver.readinessTimeout",
    "spark.kubernetes.allocation.executor.timeout", "spark.kubernetes.allocation.maxPendingPods",
    "spark.kubernetes.appKillPodDeletionGracePeriod", "spark.kubernetes.authenticate.executor.serviceAccountName",
    "spark.kubernetes.container.image", "spark.kubernetes.container.image.pullPolicy", "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.connectionTimeout", "spark.kubernetes.driver.pod.name", "spark.kubernetes.driver.requestTimeout",
    "spark.kubernetes.dynamicAllocation.deleteGracePeriod", "spark.kubernetes.executor.annotation.*",
    "spark.kubernetes.executor.apiPollingInterval", "spark.kubernetes.executor.checkAllContainers",
    "spark.kubernetes.executor.container.image", "spark.kubernetes.executor.deleteOnTermination",
    "spark.kubernetes.executor.disableConfigMap", "spark.kubernetes.executor.label.*", "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.missingPodDetectDelta", "spark.kubernetes.executor.node.selector.*",
    "spark.kubernetes.executor.podNamePrefix", "spark.kubernetes.executor.request.cores", "spark.kubernetes.executor.scheduler.name",
    "spark.kubernetes.executor.secretKeyRef.*", "spark.kubernetes.executor.secrets.*", "spark.kubernetes.executor.useDriverPodIP",
    "spark.kubernetes.executor.volumes.emptyDir.*", "spark.kubernetes.executor.volumes.persistentVolumeClaim.*",
    "spark.kubernetes.local.dirs.tmpfs", "spark.kubernetes.memoryOverheadFactor", "spark.kubernetes.namespace",
    "spark.kubernetes.node.selector.*", "spark.kubernetes.scheduler.name", "spark.hadoop.fs.defaultFS",
    "spark.hadoop.yarn.resourcemanager.*", "spark.yarn.am.cores", "spark.yarn.archive", "spark.yarn.am.memory*",
    "spark.yarn.am.nodeLabelExpression", "spark.yarn.exclude.nodes", "spark.yarn.executor.failuresValidityInterval",
    "spark.yarn.executor.nodeLabelExpression", "spark.yarn.max.executor.failures", "spark.yarn.maxAppAttempts", "spark.yarn.priority",
    "spark.yarn.queue", "spark.yarn.scheduler.*", "spark.yarn.stagingDir", "spark.yarn.tags",
)  # fmt: skip
"""Patterns of keys that cannot load code, run code, read a file of this machine or write anywhere else."""

ADDRESSES = (
    YARN_ARCHIVE,
    "spark.hadoop.fs.defaultFS",
    "spark.hadoop.yarn.resourcemanager.*address*",
    "spark.hadoop.yarn.resourcemanager.*hostname*",
    "spark.yarn.stagingDir",
)
"""Patterns of allowed keys whose values name servers to which the driver connects."""
CLUSTER_API = frozenset({"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"})
"""Names of the API server of the Kubernetes cluster in which a pod runs."""

# A key with other characters, such as "=", would be misread: Spark's command line takes `key=value`.
_KEY = re.compile(r"spark(\.[A-Za-z0-9_/-]+)+")
_SENSITIVE = re.compile("secret|password|token", re.IGNORECASE)


def properties(given: object) -> object:
    """Return the properties of a text by name. Each line has a name and its value, as in spark-defaults.conf.

    Raises ValueError, which does not quote a line that may be a part of a value.
    """
    if not isinstance(given, str):
        return given
    found: dict[str, str] = {}
    for number, line in enumerate(given.splitlines(), start=1):
        name, *value = re.split(r"\s*[=\s]\s*", line.strip(), maxsplit=1)
        if not name or name.startswith("#"):
            continue
        if not name.startswith("spark.") or not value:
            raise ValueError(f"has no name that begins with `spark.` and its value on line {number}. Write both on each line")
        if name in found:
            raise ValueError(f"has `{name}` a second time on line {number}. Remove one of the two")
        found[name] = value[0]
    return found


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def is_local(master: str) -> bool:
    """Return whether Spark runs inside the connector."""
    return master.startswith("local")


def is_on_this_machine(master: str) -> bool:
    """Return whether all traffic between the driver and its executors stays on this machine."""
    return is_local(master) or (master.startswith("spark://") and all(is_loopback(host) for host, _ in addresses(master)))


def addresses(master: str) -> list[tuple[str, int]]:
    parts = (address.rpartition(":") for address in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def api_server(master: str) -> str | None:
    """Return the URL of the Kubernetes API server, as Spark reads it, or None for another master."""
    if not master.startswith("k8s://"):
        return None
    address = master.removeprefix("k8s://")
    return address if "://" in address else f"https://{address}"


def is_own_cluster(master: str, environment: Mapping[str, str]) -> bool:
    """Return whether the master is the API server of the Kubernetes cluster in which this process runs, reached over TLS."""
    parts = urlsplit(api_server(master) or "")
    return parts.scheme == "https" and parts.hostname in CLUSTER_API | {environment.get("KUBERNETES_SERVICE_HOST", "")} - {""}


def hosts(master: str, conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the hosts, beside a Kubernetes API server, to which the driver connects, each after the option that names it.

    Raises ConfigError for an address that is none.
    """
    if master.startswith("spark://"):
        yield from (("spark.master", host) for host, _ in addresses(master))
    for key, value in conf.items():
        if _matches(key, ADDRESSES):
            for address in value.split(","):
                if host := _host(key, address):
                    yield f"{key} in spark.conf", host


def _host(key: str, address: str) -> str | None:
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        raise ConfigError(f"{key} in spark.conf must be an address, such as host:8032 or https://host.") from None


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine by its name or address. Any other name may resolve to any address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_encrypted(conf: Mapping[str, str]) -> bool:
    """Return whether executors must authenticate and the traffic to them is encrypted."""
    return all(conf.get(key, "").strip().lower() == "true" for key in ("spark.authenticate", "spark.network.crypto.enabled"))


def is_sensitive(key: str) -> bool:
    """Return whether the value must stay off command lines, which every user of the machine can read."""
    return _SENSITIVE.search(key) is not None


def refusal(conf: Mapping[str, str], master: str) -> str | None:
    """Return why the first unacceptable property is refused, naming its key; None if all are acceptable."""
    for key, value in conf.items():
        if not key.startswith("spark."):
            return f"`{key}` does not begin with `spark.`, so Spark would ignore it. Remove it or fix its spelling"
        if key == PYTHON and not is_local(master):
            continue
        for reason, patterns in REFUSED:
            if _matches(key, patterns):
                return f"`{key}` is refused: {reason}. Remove it"
        if not _KEY.fullmatch(key) or not _matches(key, ALLOWED):
            return f"`{key}` is not among the properties that can be set here, which docs/cluster.md lists. Remove it or fix its spelling"
        if key == YARN_ARCHIVE and urlsplit(value).scheme not in YARN_ARCHIVE_SCHEMES:
            return f"`{key}` must be a path in the cluster's file system, such as hdfs:///spark/jars.zip"
    return None
