"""What the connector finds out for Spark in a pod, and what it says of executors that do not come."""

from __future__ import annotations

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.kubernetes import DRIVER_POD, IMAGE_VARIABLE, NAMESPACE, Kubernetes
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.sync.check import check_cluster
from unit_tests.cases import each
from unit_tests.engine.masters import on as config_on
from unit_tests.places import TEMPLATE
from unit_tests.s3_proxy import Reply, S3Proxy

OWN = "k8s://https://kubernetes.default.svc"
OTHER = "k8s://https://127.0.0.1:6443"
IN_CHECK = {"OPERATION_TYPE": "check", "WORKLOAD_ID": "7", "HOSTNAME": "destination-s3-spark-check-7"}
"""What Airbyte tells the connector in a check: not its image."""
IN_AIRBYTE = {IMAGE_VARIABLE: "airbyte/destination-s3-spark:1", "HOSTNAME": "replication-job-7"}
GIVEN = {NAMESPACE: "jobs"}


class Pods:
    """An API server with these pods, which admits any."""

    namespace = "jobs"

    def __init__(self, *pods: dict[str, Any], own: dict[str, Any] | None = None, words: tuple[str, ...] = ()) -> None:
        self._pods, self._own, self._words = pods, own, words
        self.deleted: list[str] = []
        self.tried: list[dict[str, Any]] = []

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert selector.startswith("spark-app-selector=spark-")
        return list(self._pods)

    def pod(self, name: str) -> dict[str, Any] | None:
        return self._own if self._own and self._own["metadata"]["name"] == name else None

    def log(self, _: str) -> tuple[str, ...]:
        return self._words

    def delete_pod(self, name: str) -> None:
        self.deleted.append(name)

    def reach(self) -> None:
        pass

    def require_rights(self) -> None:
        pass

    def try_pod(self, pod: dict[str, Any]) -> None:
        self.tried.append(pod)
        raise TransientError("no room: quota exceeded.")


def on(directory: Path, api: Any = None, conf: dict[str, str] | None = None, token: str | None = None, **more: Any) -> Kubernetes:
    cluster = Cluster(more.pop("master", OTHER), "python3", 60, kubernetes_token=token, authorities=more.pop("authorities", None))
    manager = Kubernetes(cluster, GIVEN if conf is None else conf, directory, more.pop("environ", IN_AIRBYTE), directory / "account")
    if api is not None:
        manager.__dict__["api"] = api
    return manager


def executor(name: str = "exec-1", state: dict[str, Any] | None = None, conditions: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    status = {"containerStatuses": [{"state": state}] if state else [], "conditions": list(conditions)}
    return {"metadata": {"name": name}, "status": status}


def driver(address: str) -> dict[str, Any]:
    labels = {"airbyte": "job-pod", "workload_id": "7"}
    spec = {"imagePullSecrets": [{"name": "registry"}]}
    return {"metadata": {"name": "replication-job-7", "labels": labels}, "spec": spec, "status": {"podIP": address}}


def token_of(namespace: str) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"sub": f"system:serviceaccount:{namespace}:spark"}).encode()).rstrip(b"=")
    return f"header.{payload.decode()}.signature"


def test_spark_is_told_what_the_pod_knows(tmp_path: Path) -> None:
    found = on(tmp_path, Pods(own=driver("127.0.0.1"))).properties()

    assert found["spark.driver.host"] == "127.0.0.1"
    assert found[DRIVER_POD] == "replication-job-7"
    assert found["spark.kubernetes.executor.label.airbyte"] == "job-pod"
    assert found["spark.kubernetes.container.image.pullSecrets"] == "registry"
    assert found["spark.kubernetes.container.image"] == "airbyte/destination-s3-spark:1"
    assert found["spark.executor.memoryOverhead"] == "1408m"
    assert not [key for key in found if "workload" in key]


def test_a_pod_of_the_same_name_elsewhere_is_not_ours(tmp_path: Path) -> None:
    assert DRIVER_POD not in on(tmp_path, Pods(own=driver("10.9.9.9"))).properties()
    assert DRIVER_POD not in on(tmp_path, Pods()).properties()


def test_executors_fit_into_namespaces_that_are_restricted(tmp_path: Path) -> None:
    template = json.loads(Path(on(tmp_path, Pods()).properties()["spark.kubernetes.executor.podTemplateFile"]).read_text())

    (container,) = template["spec"]["containers"]
    assert template["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert template["spec"]["automountServiceAccountToken"] is False


def test_the_token_is_in_a_file_of_ours_and_in_no_property(tmp_path: Path) -> None:
    manager = on(tmp_path, Pods(), token="of-the-account")
    found = manager.properties()

    file = Path(found["spark.kubernetes.authenticate.oauthTokenFile"])
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("of-the-account", 0o600)
    assert "of-the-account" not in json.dumps(found) + repr(manager.cluster)


@pytest.mark.parametrize(("master", "own"), [(OWN, True), ("k8s://https://elsewhere.example:6443", False)])
def test_the_token_of_the_pods_account_goes_to_its_own_cluster_only(tmp_path: Path, master: str, *, own: bool) -> None:
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "token").write_text("of the account")
    manager = on(tmp_path, Pods(), master=master)

    said = "true" if own else "false"
    assert manager.java_options() == ("-Dkubernetes.auth.tryKubeConfig=false", f"-Dkubernetes.auth.tryServiceAccount={said}")
    assert (manager._token == "of the account") == own


def test_certificates_of_the_configuration_count_beside_the_clusters(tmp_path: Path) -> None:
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "ca.crt").write_text("of the cluster\n")

    found = on(tmp_path, Pods(), master=OWN, authorities="of the user").properties()

    assert Path(found["spark.kubernetes.authenticate.caCertFile"]).read_text() == "of the cluster\nof the user"


def test_the_namespace_is_the_configurations_or_the_pods_or_the_tokens(tmp_path: Path) -> None:
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "namespace").write_text("of-the-pod")

    def namespace(**options: Any) -> str:
        return on(tmp_path, Pods(), **options).properties()[NAMESPACE]

    assert namespace(master=OWN) == "jobs"
    assert namespace(master=OWN, conf={}) == "of-the-pod"
    assert namespace(conf={}, token=token_of("of-the-token")) == "of-the-token"
    with pytest.raises(ConfigError, match=r"Set spark\.kubernetes\.namespace"):
        namespace(conf={}, token="a.b.c")
    for other in ("..", "a/b", "${env.HOME}"):
        with pytest.raises(ConfigError, match=r"is not the name of a namespace\. Set spark\.kubernetes\.namespace in spark\.conf"):
            namespace(conf={}, token=token_of(other))


@each(
    ("conf", "environ", "said"),
    [
        (GIVEN, {}, r"Set spark\.kubernetes\.container\.image in spark\.conf"),
        ({}, IN_AIRBYTE, r"Set spark\.kubernetes\.namespace in spark\.conf"),
        ({**GIVEN, DRIVER_POD: "other"}, IN_AIRBYTE, "There is no pod other in the namespace jobs"),
    ],
)
def test_options_that_are_missing_are_named_before_anything_is_asked(
    tmp_path: Path, conf: dict[str, str], environ: dict[str, str], said: str
) -> None:
    manager = on(tmp_path, Pods() if conf else None, conf, environ=environ)
    with pytest.raises(ConfigError, match=said):
        manager.trials()[0].run()


def test_the_pod_that_is_tried_is_like_those_of_spark(tmp_path: Path) -> None:
    conf = {**GIVEN, "spark.executor.cores": "2", "spark.executor.memory": "512m", "spark.kubernetes.executor.limit.cores": "4"}
    api = Pods()
    manager = on(tmp_path, api, {**conf, "spark.kubernetes.authenticate.executor.serviceAccountName": "merges"})

    with pytest.raises(TransientError, match="quota exceeded"):
        manager.trials()[-1].run()

    (pod,) = api.tried
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"requests": {"memory": "2944Mi", "cpu": "2"}, "limits": {"memory": "2944Mi", "cpu": "4"}}
    assert pod["spec"]["serviceAccountName"] == "merges"


def mounted(directory: Path) -> None:
    (directory / "account").mkdir()
    for name, text in {"token": "of-the-account", "ca.crt": "of the cluster", "namespace": "of-the-pod"}.items():
        (directory / "account" / name).write_text(text)


def test_a_check_of_airbyte_that_is_told_no_image_tries_all_but_executors(tmp_path: Path) -> None:
    manager = on(tmp_path, Pods(), {}, token_of("jobs"), master=OWN, environ=IN_CHECK)

    assert [trial.name for trial in manager.trials()] == ["Kubernetes options", "Kubernetes API server", "Kubernetes account"]
    for trial in manager.trials():
        trial.run()
    assert "To try executors too, set spark.kubernetes.container.image in spark.conf" in (manager.untried() or "")


@each(
    ("conf", "environ"), [({"spark.kubernetes.container.image": "connector:1"}, IN_CHECK), ({}, IN_AIRBYTE), ({}, {}), ({}, {"X": "check"})]
)
def test_executors_are_tried_where_their_image_is_known_and_outside_of_airbytes_checks(
    tmp_path: Path, conf: dict[str, str], environ: dict[str, str]
) -> None:
    manager = on(tmp_path, Pods(), {**GIVEN, **conf}, "token", environ=environ)

    assert manager.untried() is None
    assert manager.trials()[-1].name == "executor's pod"


@pytest.mark.parametrize("image", [{}, {"spark.kubernetes.container.image": "connector:1"}])
def test_a_check_of_airbyte_does_not_pass_by_the_token_that_syncs_lack(tmp_path: Path, image: dict[str, str]) -> None:
    mounted(tmp_path)
    manager = on(tmp_path, None, image, master=OWN, environ=IN_CHECK)

    with pytest.raises(
        ConfigError, match=r"spark\.kubernetes_token is not set, and Airbyte mounts no token of Kubernetes into the pods of"
    ):
        manager.trials()[0].run()
    assert manager.java_options()[1] == "-Dkubernetes.auth.tryServiceAccount=false"


def test_nothing_of_the_account_counts_in_a_check_of_airbyte(tmp_path: Path) -> None:
    mounted(tmp_path)
    image = {"spark.kubernetes.container.image": "connector:1"}
    found = on(tmp_path, Pods(), image, token_of("of-the-token"), master=OWN, environ=IN_CHECK, authorities="of the user").properties()

    assert found[NAMESPACE] == "of-the-token"
    assert Path(found["spark.kubernetes.authenticate.caCertFile"]).read_text() == "of the user"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_check_of_airbyte_asks_the_api_server_for_rights_and_warns_of_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, allowed: bool
) -> None:
    for name, value in IN_CHECK.items():
        monkeypatch.setenv(name, value)
    server = S3Proxy("unused")
    server.script = lambda _: Reply(200, json.dumps({"status": {"allowed": allowed}}).encode())
    config = config_on(f"k8s://{server.endpoint}", kubernetes_token=token_of("jobs"))
    try:
        with nullcontext() if allowed else pytest.raises(ConfigError, match=r"may not create pods.* in the namespace jobs"):
            check_cluster(config, TEMPLATE)
    finally:
        server.close()

    assert [call.target for call in server.calls[:2]] == ["/version", "/api/v1/namespaces/jobs/pods?limit=1"]
    assert "The check starts no executor on Kubernetes" in caplog.text


def test_a_cluster_that_wants_no_token_can_be_checked_without_one(tmp_path: Path) -> None:
    on(tmp_path, Pods(), environ=IN_CHECK, master="k8s://http://127.0.0.1:8001").trials()[0].run()


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


@each(
    ("states", "kind", "said"),
    [
        ([{"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}], ConfigError, r"\(ImagePullBackOff\): not found\. Name an"),
        ([{"waiting": {"reason": "ContainerCreating"}}], None, ""),
        ([ended(1)], None, ""),
        ([ended(1), ended(3)], ConfigError, r"start and end again, the last with code 3\. Its last words: unknown command"),
        ([ended(1), ended(137)], TransientError, "Something ends their pods"),
        ([ended(137, "OOMKilled"), ended(137, "OOMKilled")], ConfigError, r"spark\.executor\.memoryOverhead"),
        ([ended(0), ended(0)], None, ""),
        ([ended(1), ended(1), {"running": {}}, {"running": {}}], None, ""),
        ([{"waiting": {"reason": "ImagePullBackOff"}}, {"running": {}}], None, ""),
    ],
)
def test_why_executors_will_never_come(tmp_path: Path, states: list[dict[str, Any]], kind: type[SyncError] | None, said: str) -> None:
    pods = [executor(f"exec-{number}", state) for number, state in enumerate(states)]
    failure = on(tmp_path, Pods(*pods, words=("unknown command",))).failure()

    if kind is None:
        assert failure is None
    else:
        with pytest.raises(kind, match=said):
            raise failure or AssertionError("no failure")


def test_pods_without_a_node_are_quoted_with_the_schedulers_reason(tmp_path: Path) -> None:
    unmet = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available."}
    met = {"type": "PodScheduled", "status": "True"}

    assert on(tmp_path, Pods(executor(conditions=(unmet,)))).outlook() == (
        "Kubernetes says of its pods: Unschedulable: 0/1 nodes are available."
    )
    assert on(tmp_path, Pods(executor(conditions=(met,)))).outlook() == ""
    assert on(tmp_path, Pods()).outlook() == "no room: quota exceeded."


def test_a_session_takes_its_pods_away_one_by_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    api = Pods(executor("exec-1"), executor("exec-2"))
    on(tmp_path, api).clean_up()
    assert api.deleted == ["exec-1", "exec-2"]

    def refuse(_: str) -> None:
        raise ConfigError("it may not list pods.")

    on(tmp_path, SimpleNamespace(pods=refuse)).clean_up()
    assert "may be left: it may not list pods." in caplog.text
