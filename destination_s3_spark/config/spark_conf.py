"""Rules for the Spark settings of a user: the possible masters, and the keys of `spark.conf` that may be set.

An allowed key reaches the session unchanged. Any other key is refused, with a reason where one is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from destination_s3_spark.config.spark_properties import ADDRESSES, ALLOWED, CLUSTER_FILES, CLUSTERS_ONLY, KUBERNETES_NAMES, REFUSED
from destination_s3_spark.errors import ConfigError

MASTER = r"^(local(\[(\*|[1-9][0-9]*)\])?|spark://[^\s,/$]+:[0-9]{1,5}(,[^\s,/$]+:[0-9]{1,5})*|yarn|k8s://[^\s$]+)$"
PYTHON = "spark.pyspark.python"
"""Interpreter of executors on other machines: a name in their PATH or an absolute path."""

CLUSTER_SCHEMES = ("hdfs", "viewfs", "webhdfs")
"""File systems of a cluster that Hadoop's client reaches by itself: with another one, files of the connector's machine could be used."""
SUBSTITUTION = "${"
"""What makes Spark and Hadoop put a variable of this machine, or another property, into a value."""
CLUSTER_API = frozenset({"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"})
"""Names of the API server of the Kubernetes cluster in which a pod runs."""

# A key with other characters, such as "=", would be misread: Spark's command line takes `key=value`.
_KEY = re.compile(r"spark(\.[A-Za-z0-9_/-]+)+")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ALLOWED = tuple(name for _, names in ALLOWED for name in names)
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


def is_kubernetes_name(text: str) -> bool:
    """Return whether the text can be the name of a namespace or a pod, so that it is one part of a path."""
    return _KUBERNETES_NAME.fullmatch(text) is not None


def refusal(conf: Mapping[str, str], master: str) -> str | None:
    """Return why the first unacceptable property is refused, naming its key; None if all are acceptable. No value is repeated."""
    return next(filter(None, (_of_key(key, master) or _of_value(key, value) for key, value in conf.items())), None)


def _of_key(key: str, master: str) -> str | None:
    if not key.startswith("spark."):
        return f"`{key}` does not begin with `spark.`, so Spark would ignore it. Remove it or fix its spelling"
    if key == PYTHON and not is_local(master):
        return None
    for reason, patterns in REFUSED:
        if _matches(key, patterns):
            return f"`{key}` is refused: {reason}. Remove it"
    if not _KEY.fullmatch(key) or not _matches(key, _ALLOWED):
        return f"`{key}` is not among the properties that can be set here, which docs/cluster.md lists. Remove it or fix its spelling"
    if is_local(master) and _matches(key, CLUSTERS_ONLY):
        return (
            f"`{key}` is for clusters: inside the connector, Spark's ports are bound to this machine, ask for a secret of the session, and "
            "show no page. Remove it"
        )
    return None


def _of_value(key: str, value: str) -> str | None:
    if SUBSTITUTION in value:
        return f"`{key}` holds {SUBSTITUTION}, for which Spark would put in a variable of this machine. Write the value itself"
    if key in CLUSTER_FILES and value.partition("://")[0] not in CLUSTER_SCHEMES:
        return f"`{key}` must be a path in the cluster's file system, such as hdfs://name-node:8020/spark"
    if key in KUBERNETES_NAMES and not is_kubernetes_name(value):
        return f"`{key}` must be a name in Kubernetes, of lower-case letters, digits, hyphens and full stops"
    return None


def without_substitution(text: str) -> str:
    """Return a text of the configuration that reaches Spark. Raises ValueError, which does not repeat it."""
    if SUBSTITUTION in text:
        raise ValueError(f"must not hold {SUBSTITUTION}, for which Spark would put in a variable of this machine. Write the value itself")
    return text
