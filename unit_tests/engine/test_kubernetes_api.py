"""What a refusal of a Kubernetes API server means."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from destination_s3_spark.engine.kubernetes_api import KubernetesApi, Refused
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from unit_tests.cases import each
from unit_tests.http_server import serving

FORBIDDEN = 'pods is forbidden: User "system:serviceaccount:jobs:nobody" cannot create resource "pods"'
RESTRICTED = 'pods "exec-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
QUOTA = 'pods "exec-1" is forbidden: exceeded quota: compute, requested: memory=2432Mi, used: memory=4Gi, limited: memory=5Gi'


@each(
    ("token", "status", "message", "kind", "said"),
    [
        ("token", 401, "Unauthorized", ConfigError, r"does not accept the token \(401\)"),
        (None, 401, "Unauthorized", ConfigError, r"wants a token.*Airbyte mounts none for syncs\. Set spark\.kubernetes_token"),
        (None, 403, FORBIDDEN, ConfigError, r"wants a token.*Set spark\.kubernetes_token"),
        ("token", 403, FORBIDDEN, ConfigError, r'cannot create resource "pods"\. Grant the Role of docs/cluster\.md'),
        ("token", 403, RESTRICTED, ConfigError, r"runAsNonRoot != true\. Change the pod or the namespace's rule"),
        ("token", 403, QUOTA, TransientError, "has no room for executors: .*exceeded quota"),
        ("token", 404, 'namespaces "other" not found', ConfigError, r'refuses \(404\): namespaces "other" not found'),
        ("token", 503, "overloaded", TransientError, "answers 503: overloaded"),
    ],
)
def test_a_refusal_says_what_to_change(token: str | None, status: int, message: str, kind: type[SyncError], said: str) -> None:
    api = KubernetesApi("https://host:6443", "jobs", token, ())
    with pytest.raises(kind, match=said):
        raise api.explained(Refused(status, message))


def test_a_server_that_is_not_there_is_transient_and_one_without_a_name_is_not() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(TransientError, match="No Kubernetes API server answers at"):
            KubernetesApi(f"https://127.0.0.1:{unused.getsockname()[1]}", "jobs", "token", ()).reach()
    with pytest.raises(ConfigError, match=r"The name of the Kubernetes API server in https://no-such-host\.invalid is not known"):
        KubernetesApi("https://no-such-host.invalid", "jobs", "token", ()).reach()


def test_addresses_of_the_host_itself_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"spark\.master '169\.254\.169\.254' leads to|No Kubernetes"):
        KubernetesApi("http://169.254.169.254", "jobs", None, ()).reach()


@each("name", ["..", ".", "a/b", "a%2fb", "A", "", "a?b", "-a", "a-", "a\n", "x" * 254])
def test_what_is_no_name_is_no_part_of_a_path(name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a namespace"):
        KubernetesApi("http://127.0.0.1:9", name, "token", ()).require_rights()
    api = KubernetesApi("http://127.0.0.1:9", "jobs", "token", ())
    assert api.pod(name) is None
    assert api.log(name) == ()
    with pytest.raises(ConfigError, match="names a pod as no pod can be named"):
        api.delete_pod(name)


NO_PODS: list[Any] = [
    *({"kind": "PodList", "items": []}, {}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": 1}}),
    *({"metadata": {"name": name}} for name in ("..", "${env:AWS_SECRET_ACCESS_KEY}", "a/b", "")),
]


def test_an_answer_that_is_something_else_is_no_pod() -> None:
    answers: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[-1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as endpoint:
        api = KubernetesApi(endpoint, "jobs", None, ())
        for other in [*NO_PODS, {"metadata": {"name": "another"}}]:
            answers.append(other)
            assert api.pod("driver") is None, other
        answers.append({"items": [*NO_PODS, "pod", {"metadata": {"name": "exec-1"}}]})
        assert api.pods("spark-app-selector=spark-1") == [{"metadata": {"name": "exec-1"}}]
        answers.append({"metadata": {"name": "driver"}})
        assert api.pod("driver") == {"metadata": {"name": "driver"}}
