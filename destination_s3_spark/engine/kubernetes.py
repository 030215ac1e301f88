"""Kubernetes as the manager of executors: each is a pod of the connector's own image, made by Spark and removed here.

A pod knows most of what Spark wants to be told. What its program may do in the cluster is tried first, because Spark would ask for one pod
after the other and say little.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from destination_s3_spark.config.spark_conf import api_server, is_kubernetes_name, is_own_cluster
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.jvm import quoted
from destination_s3_spark.engine.kubernetes_api import NOT_A_NAMESPACE, KubernetesApi
from destination_s3_spark.engine.manager import OVERHEADS, Manager, Trial, driver_host, megabytes, python_memory
from destination_s3_spark.engine.variables import chosen
from destination_s3_spark.errors import ConfigError, SyncError, TransientError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's account, if it does."""
IMAGE_VARIABLE = "WORKER_CONNECTOR_IMAGE"
"""Environment variable in which Airbyte names the connector's image in the pods of syncs, and in no other."""
OPERATION_VARIABLE = "OPERATION_TYPE"
"""Environment variable that is `check` in a pod that Airbyte makes for a check. The connector in the pod of a sync does not have it."""
IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
PULL_SECRETS = "spark.kubernetes.container.image.pullSecrets"
NAMESPACE = "spark.kubernetes.namespace"
DRIVER_POD = "spark.kubernetes.driver.pod.name"
LABELS = ("airbyte",)
"""Labels that executors take over from the driver's pod: network policies and the sweeper of Airbyte go by it. Others name a job."""
HOPELESS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"})
"""Reasons for which a container waits until somebody changes something."""
MOST_ENDED = 2
"""Executors that may end by themselves before the first has taken a task."""
ENDED_BY_OTHERS = (137, 143)
"""Exit codes of a container that was killed, for example with its node."""
VARIABLES = (
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
    *(spelt for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY") for spelt in (name, name.lower())),
)
"""Environment variables that Spark's client of Kubernetes reads."""
POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    "restartPolicy": "Never",
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}
CONTAINER: Mapping[str, Any] = {
    "name": "executor",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
"""An executor's pod and container as Pod Security `restricted` admits them. User and group are the image's. No token is inside."""

logger = logging.getLogger(__name__)


class Kubernetes(Manager):
    """Kubernetes, through its API server. The pods of a session have its application's id as a label."""

    where_to_look = "`kubectl get pods -l spark-role=executor` shows its pods, and whether they start and end again"

    def __init__(
        self, cluster: Cluster, conf: Mapping[str, str], directory: Path, environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT
    ) -> None:
        super().__init__(cluster, conf, directory)
        self._environ = environ
        self._own = is_own_cluster(cluster.master, environ)
        self._in_check = environ.get(OPERATION_VARIABLE, "").lower() == "check"
        # Airbyte mounts its account into the pods of checks alone, so a check that used it would promise what no sync can do.
        self._account = account if self._own and not self._in_check else None
        self._token = cluster.kubernetes_token or self._mounted("token")
        self._url = api_server(cluster.master) or ""
        self._application = f"spark-{uuid4().hex}"

    @cached_property
    def api(self) -> KubernetesApi:
        """The API server. Raises ConfigError if the namespace is not known."""
        authorities = [text for text in (self._mounted("ca.crt"), self.cluster.authorities) if text]
        return KubernetesApi(self._url, self._namespace, self._token, authorities)

    def _mounted(self, name: str) -> str | None:
        """Return a file of the pod's account; None if there is none, or it is of another cluster."""
        with suppress(OSError, UnicodeDecodeError):
            if self._account is not None:
                return (self._account / name).read_text().strip() or None
        return None

    @property
    def _namespace(self) -> str:
        found = self.conf.get(NAMESPACE) or self._mounted("namespace") or _namespace_of(self._token)
        if found is None:
            raise ConfigError(
                f"The Kubernetes namespace for executors is not known: neither a mounted account nor spark.kubernetes_token names one. Set "
                f"{NAMESPACE} in spark.conf."
            )
        if not is_kubernetes_name(found):
            raise ConfigError(NOT_A_NAMESPACE)
        return found

    @property
    def _known_image(self) -> str | None:
        return next(filter(None, (*(self.conf.get(key) for key in IMAGES), self._environ.get(IMAGE_VARIABLE))), None)

    @property
    def _image(self) -> str:
        found = self._known_image
        if found is None:
            raise ConfigError(
                f"The image of executors is not known: {IMAGE_VARIABLE}, in which Airbyte names the connector's, is not in the "
                f"environment. Set {IMAGES[1]} in spark.conf to this connector's image, at this version."
            )
        return found

    @cached_property
    def _driver_pod(self) -> Mapping[str, Any] | None:
        """The pod that this program runs in, None if it runs in no pod of that namespace."""
        name = self.conf.get(DRIVER_POD) or self._environ.get("HOSTNAME") or socket.gethostname()
        pod = self.api.pod(name)
        if pod is None:
            return None
        if DRIVER_POD in self.conf:
            return pod
        known = {entry.get("ip") for entry in pod.get("status", {}).get("podIPs", ())} | {pod.get("status", {}).get("podIP")}
        return pod if self._driver.get("spark.driver.host", "").strip("[]") in known else None

    @cached_property
    def _driver(self) -> dict[str, str]:
        parts = urlsplit(self._url)
        return driver_host([(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))])

    def untried(self) -> str | None:
        if not self._in_check or self._known_image:
            return None
        return (
            "The check starts no executor on Kubernetes: Airbyte names the connector's image to syncs only, which use it. To try executors "
            f"too, set {IMAGES[1]} in spark.conf to this connector's image, at this version, for one check, and remove it afterwards, "
            "because syncs would keep to that version."
        )

    def trials(self) -> tuple[Trial, ...]:
        before = (
            Trial("Kubernetes options", self._require_options),
            Trial("Kubernetes API server", lambda: self.api.reach()),  # noqa: PLW0108 (`api` may raise, and only here)
            Trial("Kubernetes account", lambda: self.api.require_rights()),  # noqa: PLW0108
        )
        return before if self.untried() else (*before, Trial("executor's pod", lambda: self.api.try_pod(self._pod_to_try())))

    def _require_options(self) -> None:
        if self._in_check and self._own and self._token is None:
            raise ConfigError(
                "spark.kubernetes_token is not set, and Airbyte mounts no token of Kubernetes into the pods of syncs, only into those of "
                "checks. Set it to a token of an account with the Role of docs/cluster.md (kubectl create token ACCOUNT --duration 8760h)."
            )
        _ = self.untried() or self._image, self.api.namespace
        if DRIVER_POD in self.conf and self._driver_pod is None:
            raise ConfigError(
                f"There is no pod {self.conf[DRIVER_POD]} in the namespace {self._namespace}, which {DRIVER_POD} in spark.conf names. "
                "Remove that property: the connector finds its own pod."
            )

    def _pod_to_try(self) -> dict[str, Any]:
        """Return a pod like those that Spark will ask for."""
        conf = {**python_memory(self.conf), **self.conf}
        sizes = [megabytes(conf.get(key, "1g")) for key in ("spark.executor.memory", OVERHEADS[0])]
        memory = f"{sum(filter(None, sizes))}Mi"
        cpu = conf.get("spark.kubernetes.executor.request.cores", conf.get("spark.executor.cores", "1"))
        limits = {"memory": memory}
        if "spark.kubernetes.executor.limit.cores" in conf:
            limits["cpu"] = conf["spark.kubernetes.executor.limit.cores"]
        resources = {"requests": {"memory": memory, "cpu": cpu}, "limits": limits}
        spec = {**POD, "containers": [{**CONTAINER, "image": self._image, "args": ["executor"], "resources": resources}]}
        if account := conf.get("spark.kubernetes.authenticate.executor.serviceAccountName"):
            spec["serviceAccountName"] = account
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self._application}, "spec": spec}

    def properties(self) -> dict[str, str]:
        """Return what Spark cannot find out, or would find out wrongly."""
        template = {"apiVersion": "v1", "kind": "Pod", "spec": {**POD, "containers": [CONTAINER]}}
        found = {
            **self._driver,
            **python_memory(self.conf),
            **self._of_driver_pod(),
            "spark.app.id": self._application,
            "spark.kubernetes.namespace": self._namespace,
            "spark.kubernetes.container.image": self._image,
            "spark.kubernetes.executor.podTemplateFile": str(self._written("executor-pod.json", json.dumps(template))),
            # The driver's host is the pod's address; what it binds to may be 0.0.0.0.
            "spark.kubernetes.executor.useDriverPodIP": "false",
            # Spark would delete collections, a right that Airbyte's account lacks, and the logs of executors with them.
            "spark.kubernetes.executor.deleteOnTermination": "false",
            "spark.kubernetes.executor.disableConfigMap": "true",
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        }
        if self.cluster.kubernetes_token:
            found["spark.kubernetes.authenticate.oauthTokenFile"] = str(self._written("kubernetes-token", self.cluster.kubernetes_token))
        if self.cluster.authorities:
            authorities = "\n".join(filter(None, (self._mounted("ca.crt"), self.cluster.authorities)))
            found["spark.kubernetes.authenticate.caCertFile"] = str(self._written("kubernetes-authorities.pem", authorities))
        return found

    def _of_driver_pod(self) -> dict[str, str]:
        """Return properties that make this program's pod the owner of executors, so that Kubernetes removes them with it."""
        pod = self._driver_pod
        if pod is None:
            return {}
        labels = pod.get("metadata", {}).get("labels") or {}
        secrets = [entry["name"] for entry in pod.get("spec", {}).get("imagePullSecrets") or ()]
        return {
            DRIVER_POD: pod["metadata"]["name"],
            **{f"spark.kubernetes.executor.label.{name}": labels[name] for name in LABELS if name in labels},
            **({PULL_SECRETS: ",".join(secrets)} if secrets else {}),
        }

    def _written(self, name: str, text: str) -> Path:
        """Write a file for Spark that only this user can read, and return its path. It goes with the session's directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def environment(self) -> dict[str, str]:
        """Return where the pod's own API server is, and the proxies on the way to one."""
        return chosen(self._environ, VARIABLES)

    def java_options(self) -> tuple[str, ...]:
        """Return options that keep this machine's own tokens from an API server of the user's choice.

        Spark's Kubernetes client would send the token of a kubeconfig, or of the pod's service account, to any address. The latter goes to
        the pod's own cluster only, and not in a check of Airbyte.
        """
        own = "true" if self._account is not None else "false"
        return "-Dkubernetes.auth.tryKubeConfig=false", f"-Dkubernetes.auth.tryServiceAccount={own}"

    def failure(self) -> SyncError | None:
        """Return why executors will never come: an image that cannot be had, or more that have ended by themselves than run."""
        states = [(pod, _state(pod)) for pod in self._pods()]
        running = sum("running" in state for _, state in states)
        waiting = [state["waiting"] for _, state in states if state.get("waiting", {}).get("reason") in HOPELESS]
        if waiting and not running:
            return ConfigError(
                f"Kubernetes cannot start executors of the image {self._image} ({waiting[0]['reason']}): "
                f"{str(waiting[0].get('message', 'it gives no reason')).rstrip('.')}. Name an image that its nodes can pull as "
                f"{IMAGES[1]} in spark.conf, and its secret, if it needs one, as {PULL_SECRETS}."
            )
        ended = [pod for pod, state in states if state.get("terminated", {}).get("exitCode", 0)]
        return self._of_ended(ended[-1]) if len(ended) >= max(MOST_ENDED, running + 1) else None

    def _of_ended(self, pod: Mapping[str, Any]) -> SyncError:
        ended = _state(pod)["terminated"]
        code = ended["exitCode"]
        if ended.get("reason") == "OOMKilled":
            return ConfigError(
                "Kubernetes kills executors for lack of memory. Give them more with spark.executor.memoryOverhead in spark.conf (1 GB for "
                "each of spark.executor.cores), or fewer cores."
            )
        words = quoted(self.api.log(pod["metadata"]["name"]))
        said = f"Its last words: {words}. " if words else ""
        what = f"Executors on Kubernetes start and end again, the last with code {code}. {said}"
        if code in ENDED_BY_OTHERS:
            return TransientError(f"{what}Something ends their pods, as a node that goes does. Try again.")
        driver = {**self._driver, **self.conf}.get("spark.driver.host", "its address")
        return ConfigError(
            f"{what}They must be able to connect to the driver at {driver} (network policies), and their image, {self._image}, must be "
            "this connector's at this version."
        )

    def outlook(self) -> str:
        """Return what Kubernetes says of pods that do not run, or of a pod that it does not admit."""
        pods = self._pods()
        if not pods:
            try:
                self.api.try_pod(self._pod_to_try())
            except SyncError as error:
                return error.message
            return ""
        said = {f"{condition.get('reason')}: {str(condition.get('message', '')).rstrip('.')}" for pod in pods for condition in _unmet(pod)}
        return f"Kubernetes says of its pods: {'; '.join(sorted(said))}." if said else ""

    def _pods(self) -> list[Mapping[str, Any]]:
        try:
            return self.api.pods(f"spark-app-selector={self._application}")
        except SyncError:
            return []

    def clean_up(self) -> None:
        """Delete the session's pods, each by its name."""
        try:
            for pod in self.api.pods(f"spark-app-selector={self._application}"):
                self.api.delete_pod(pod["metadata"]["name"])
        except SyncError as error:
            logger.warning("executors' pods of %s may be left: %s", self._application, error.message)


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a pod's only container, empty before there is one."""
    containers = pod.get("status", {}).get("containerStatuses")
    return containers[0].get("state") or {} if containers else {}


def _unmet(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the conditions that keep a pod from being given a node."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return [one for one in conditions if one.get("type") == "PodScheduled" and one.get("status") == "False"]


def _namespace_of(token: str | None) -> str | None:
    """Return the namespace of the account that a token is for, None if it does not say. The API server alone judges the token."""
    try:
        payload = (token or "").split(".")[1]
        subject = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("sub", "")
        kind, account, namespace, _ = subject.split(":")
    except (IndexError, ValueError, AttributeError):
        return None
    return namespace if (kind, account) == ("system", "serviceaccount") else None
