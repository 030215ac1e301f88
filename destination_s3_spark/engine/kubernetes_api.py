"""Client of a Kubernetes API server: the few requests about pods that Spark does not make, and what a refusal means."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3

from destination_s3_spark.config.spark_conf import is_kubernetes_name
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.endpoint import checked_pools

REQUEST_S = 5.0
"""Seconds for each part of a request."""
MOST_LOG_LINES = 30
RIGHTS = (("create", "pods"), ("get", "pods"), ("list", "pods"), ("watch", "pods"), ("patch", "pods"), ("delete", "pods"))
"""Verbs and resources that a session needs. Logs are read to explain a failure, where that is allowed."""
NOT_A_NAMESPACE = (
    "What should be the Kubernetes namespace for executors is not the name of a namespace. Set spark.kubernetes.namespace in spark.conf."
)
CA_ADVICE = (
    "Paste the cluster's own (kubectl get configmap kube-root-ca.crt -o jsonpath='{.data.ca\\.crt}') as s3.ca_certificate, which counts "
    "for all servers."
)

_VIOLATES = re.compile(r"violates PodSecurity|exceeded quota|error looking up service account|is forbidden: (?!User )")
Answer = Mapping[str, Any]


class Refused(Exception):
    """The server answered with another status than success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubernetesApi:
    """Pods of a namespace, as the owner of a token sees them. Without a token, as an anonymous user. Raises SyncError."""

    def __init__(self, url: str, namespace: str, token: str | None, authorities: Sequence[str]) -> None:
        self.url = url.rstrip("/")
        self.namespace = namespace
        self._token = token
        context = ssl.create_default_context()
        for authority in authorities:
            context.load_verify_locations(cadata=authority)
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=REQUEST_S, read=REQUEST_S), retries=urllib3.Retry(1, redirect=0), ssl_context=context
        )
        self._pool.pool_classes_by_scheme = checked_pools("spark.master")

    def _path(self) -> str:
        """Return the path of all pods. Raises ConfigError for a namespace whose name would lead elsewhere on the server."""
        if not is_kubernetes_name(self.namespace):
            raise ConfigError(NOT_A_NAMESPACE)
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _path_of(self, name: str) -> str:
        """Return the path of a pod. Raises ConfigError for a name that would lead elsewhere on the server."""
        if not is_kubernetes_name(name):
            raise ConfigError(f"The Kubernetes API server at {self.url} names a pod as no pod can be named. Check spark.master.")
        return f"{self._path()}/{name}"

    def reach(self) -> None:
        """Raise ConfigError unless a Kubernetes API server answers at the address."""
        try:
            self._request("GET", "/version")
        except Refused as refused:
            if refused.status not in (401, 403):
                raise ConfigError(
                    f"The server at {self.url} is no Kubernetes API server (it answers {refused.status} to /version). Check spark.master."
                ) from refused

    def require_rights(self) -> None:
        """Raise ConfigError unless the token is known and its account may do what a session needs."""
        self._demand("GET", f"{self._path()}?limit=1")
        missing = [f"{verb} {resource}" for verb, resource in RIGHTS if not self._may(verb, resource)]
        if missing:
            raise ConfigError(
                f"The account of the Kubernetes token may not {', '.join(missing)} in the namespace {self.namespace}. Grant it the Role of "
                "docs/cluster.md."
            )

    def _may(self, verb: str, resource: str) -> bool:
        """Return whether the account has a right. A server that does not tell is believed to grant it."""
        asked = {"namespace": self.namespace, "verb": verb, "resource": resource}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        try:
            answer = self._request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        except Refused:
            return True
        return bool(answer.get("status", {}).get("allowed", True))

    def try_pod(self, pod: Answer) -> None:
        """Have the server judge a pod without making it: rights, admission, quotas and the account are tried."""
        self._demand("POST", f"{self._path()}?dryRun=All", pod)

    def pod(self, name: str) -> Answer | None:
        """Return a pod, or None if there is none that can be seen, or if the server answers with something else."""
        if not is_kubernetes_name(name):
            return None
        try:
            answer = self._request("GET", self._path_of(name))
        except Refused:
            return None
        return answer if _name_of(answer) == name else None

    def pods(self, selector: str) -> list[Answer]:
        found = self._demand("GET", f"{self._path()}?{urlencode({'labelSelector': selector})}")
        return [pod for pod in found.get("items") or () if _name_of(pod) is not None]

    def delete_pod(self, name: str) -> None:
        """Delete a pod, which may be gone already."""
        try:
            self._request("DELETE", self._path_of(name))
        except Refused as refused:
            if refused.status != 404:
                raise self.explained(refused) from refused

    def log(self, name: str) -> tuple[str, ...]:
        """Return the last lines that a pod has written; none if they cannot be read."""
        try:
            path = f"{self._path_of(name)}/log?tailLines={MOST_LOG_LINES}"
            return tuple(self._send("GET", path, None).decode(errors="replace").splitlines())
        except (Refused, SyncError):
            return ()

    def explained(self, refused: Refused) -> SyncError:
        """Return the error for a refusal: what the server said, and what to change."""
        said = str(refused).rstrip(".")
        if refused.status == 401 and self._token is not None:
            return ConfigError(
                f"The Kubernetes API server at {self.url} does not accept the token (401). Make another one for spark.kubernetes_token "
                "(kubectl create token ACCOUNT --duration 8760h), or mount the account's own."
            )
        if self._token is None:
            return ConfigError(
                f"The Kubernetes API server at {self.url} wants a token, and this pod has none: Airbyte mounts none for syncs. Set "
                "spark.kubernetes_token (kubectl create token ACCOUNT --duration 8760h), or run in a pod that mounts its account's."
            )
        if refused.status == 403 and "exceeded quota" in said:
            return TransientError(f"The Kubernetes cluster has no room for executors: {said}. Ask for less, or try again later.")
        if refused.status == 403:
            what = "Change the pod or the namespace's rule." if _VIOLATES.search(said) else "Grant the Role of docs/cluster.md."
            return ConfigError(f"The Kubernetes API server refuses: {said}. {what}")
        if refused.status in (400, 404, 422):
            return ConfigError(f"The Kubernetes API server refuses ({refused.status}): {said}. Check spark.kubernetes.* in spark.conf.")
        return TransientError(f"The Kubernetes API server at {self.url} answers {refused.status}: {said}. Try again later.")

    def _demand(self, method: str, path: str, body: Answer | None = None) -> Answer:
        """Make a request that must not be refused."""
        try:
            return self._request(method, path, body)
        except Refused as refused:
            raise self.explained(refused) from refused

    def _request(self, method: str, path: str, body: Answer | None = None) -> Answer:
        try:
            answer: Any = json.loads(self._send(method, path, body))
        except ValueError as error:
            raise Refused(200, "what it answers is not JSON") from error
        if not isinstance(answer, dict):
            raise Refused(200, "what it answers is not an object")
        return answer

    def _send(self, method: str, path: str, body: Answer | None) -> bytes:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            answer = self._pool.request(
                method, self.url + path, headers=headers, body=None if body is None else json.dumps(body).encode(), redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error
        if not 200 <= answer.status < 300:
            raise Refused(answer.status, _message(answer.data) or answer.reason or "no reason given")
        return answer.data

    def _unreachable(self, error: Exception) -> SyncError:
        reason = getattr(error, "reason", error)
        if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return ConfigError(f"The certificate of the Kubernetes API server at {self.url} is of no known authority. {CA_ADVICE}")
        if isinstance(reason, urllib3.exceptions.SSLError):
            return ConfigError(f"The server at {self.url} does not speak TLS as an API server does. Check spark.master.")
        if isinstance(reason, urllib3.exceptions.NameResolutionError):
            return ConfigError(f"The name of the Kubernetes API server in {self.url} is not known here. Check spark.master.")
        return TransientError(
            f"No Kubernetes API server answers at {self.url}. Check spark.master, and that this machine may connect to it."
        )


def _message(body: bytes) -> str:
    """Return the message of an answer that refuses, empty if it has none."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("message", "")) if isinstance(answer, dict) else ""


def _name_of(pod: Any) -> str | None:
    """Return the name in an answer that should be a pod, or None if it has no name that a pod can have."""
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) and is_kubernetes_name(name) else None
