"""Executors on Kubernetes, from a pod like Airbyte's: one line of configuration, the account of Airbyte's chart, and hosts of their own."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.engine.environment import PACKAGES
from destination_s3_spark.engine.kubernetes import IMAGE_VARIABLE
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED
from integration_tests.cluster_story import STORY_TIMEOUT_S, Tables, marks_on, messages, run_sync, streams, tables_of
from integration_tests.connector import SCRIPT, Connector
from integration_tests.fault_proxy import Fault, FaultProxy, fault_proxy
from integration_tests.kubernetes.api_server import ACCOUNT, AIRBYTE, NAMESPACE, ApiServer, api_server
from integration_tests.kubernetes.cluster import Cluster, Image, cluster, connector_image, driver_pod
from integration_tests.kubernetes.real_api_server import real_api_server
from integration_tests.lake import ProcessLake
from integration_tests.maven import NoMavenError, class_path
from integration_tests.network import Host, NoNamespacesError, network
from integration_tests.spark_cluster import interpreter
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.outcome import Outcome

pytestmark = marks_on("kubernetes")

CONTROL_PLANE = "KUBERNETES_CONTROL_PLANE"
"""Environment variable with the program of a real API server. `make test-kubernetes` builds it."""
POM = Path(__file__).parent / "kubernetes" / "pom.xml"
MASTER = {"master": "k8s://https://kubernetes.default.svc"}
OF_EXECUTORS = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEEXECUTORS", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass
class Rig:
    """A cluster and a bucket that its hosts reach, and pods to start the connector in."""

    here: Host
    driver: Host
    api: ApiServer
    cluster: Cluster
    proxy: FaultProxy
    moto: S3Server
    directory: Path
    stack: ExitStack

    def lake(self, name: str) -> ProcessLake:
        return ProcessLake.of(new_bucket(self.moto), self.directory / name)

    def token(self, rights: frozenset[str] = AIRBYTE) -> str:
        return self.api.granted(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", rights)

    def connector(self, lake: ProcessLake, token: str | None, image: str | None = "connector", **options: Any) -> Connector:
        """The connector in a pod of its own. With a token, the account is mounted, which Airbyte does not do."""
        name = f"replication-job-{next(self._names)}-attempt-0"
        pod = self.stack.enter_context(driver_pod(self.api, self.driver, self.here, self.directory / "pods", name, token))
        told = {IMAGE_VARIABLE: image} if image else {}
        connector = lake.connector(self.proxy.endpoint, {**pod.environment, **told}, **options)
        connector.program = (*pod.entry, str(SCRIPT))
        return connector

    def when_an_executor_merges(self, effect: Callable[[], object]) -> Fault:
        """Have this happen once, as the next executor begins to write. The fault says whether it did."""
        fault = Fault("CreateMultipartUpload", status=None, times=1, only=lambda call: call.peer != self.driver.address)
        fault.effect = lambda _: effect()
        self.proxy.inject(fault)
        return fault

    _names = count(1)

    def is_left_clean(self) -> bool:
        """Whether no executor's pod is left, and no config map."""
        maps = self.api("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps").get("items")
        return not self.cluster.executors() and not [one for one in maps or () if one["metadata"]["name"] != "kube-root-ca.crt"]

    def wait_until_clean(self) -> None:
        deadline = time.monotonic() + 60
        while not self.is_left_clean():
            assert time.monotonic() < deadline, self.cluster.executors()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def rig(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("kubernetes")
    with ExitStack() as stack:
        try:
            jars = class_path(POM, directory)
            here, driver, *hosts = stack.enter_context(network(4))
        except (NoMavenError, NoNamespacesError) as missing:
            pytest.skip(str(missing))
        program = os.environ.get(CONTROL_PLANE)
        api = stack.enter_context(
            real_api_server(Path(program), directory / "api", here.address)
            if program
            else api_server(directory / "api", here.address, jars)
        )
        images = {
            "connector": connector_image(interpreter(directory / "python", PACKAGES), OF_EXECUTORS),
            "foreign": Image(("sh", "-c", 'echo "unknown command: $*" >&2; exit 3', "sh"), {}),
        }
        nodes = stack.enter_context(cluster(api, hosts, images, directory / "nodes"))
        proxy = stack.enter_context(fault_proxy(moto.endpoint, here.address))
        yield Rig(here, driver, api, nodes, proxy, moto, directory, stack)


def expect_quiet(outcome: Outcome) -> None:
    """Nothing that looks like a failure is said of a good sync."""
    assert not [line for line in outcome.stderr.splitlines() if line.lstrip().startswith("at ") or "forbidden" in line], outcome.stderr


def token_of(account: str) -> str:
    """What the token of an account looks like, of which the API server alone knows whether it is good."""
    parts = ({"alg": "RS256"}, {"sub": f"system:serviceaccount:{NAMESPACE}:{account}"}, {"signature": "none"})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)


def test_one_line_is_enough_in_a_pod_and_a_killed_executor_costs_time_alone(rig: Rig, local_tables: list[Tables]) -> None:
    lake = rig.lake("story")
    connector = rig.connector(lake, rig.token())

    expect_quiet(run_sync(connector, 1, MASTER))
    assert tables_of(lake) == local_tables[0]
    rig.wait_until_clean()

    killed = rig.when_an_executor_merges(rig.cluster.kill_one)
    outcome = run_sync(connector, 2, MASTER)
    assert killed.seen
    assert tables_of(lake) == local_tables[1]
    assert f"The executors type records {HOW_LINES_ARE_TYPED}" in outcome.log_text
    rig.wait_until_clean()

    refresh_with_a_token_of_the_configuration(rig, lake)
    assert tables_of(lake) == local_tables[2]
    assert rig.api.refused() == []


def refresh_with_a_token_of_the_configuration(rig: Rig, lake: ProcessLake) -> None:
    """The token is in no pod and on no command line."""
    token, before, lines = rig.token(), len(rig.cluster.seen), list[str]()
    connector = rig.connector(lake, None, s3={"ca_certificate": rig.api.authority})
    spark = {**MASTER, "kubernetes_token": token, "conf": {"spark.kubernetes.namespace": NAMESPACE}}

    with connector.start(streams(3), spark=spark) as sync:
        rig.when_an_executor_merges(lambda: lines.extend(" ".join(member.cmdline()) for member in sync.family()))
        outcome = sync.send(*messages(3)).end_input().finish(STORY_TIMEOUT_S).expect_success()

    assert any("pyspark-shell" in line for line in lines)
    assert not [line for line in lines if token in line]
    assert len(rig.cluster.seen) > before
    assert token not in json.dumps(rig.cluster.seen)
    assert token not in outcome.describe()
    expect_quiet(outcome)
    rig.wait_until_clean()


def test_executors_are_pods_of_the_connectors_image_that_restricted_namespaces_admit(rig: Rig) -> None:
    pod = rig.cluster.seen[0]
    (container,) = pod["spec"]["containers"]
    (owner,) = pod["metadata"]["ownerReferences"]

    assert (container["image"], container["args"]) == ("connector", ["executor"])
    assert owner["kind"] == "Pod"
    assert owner["name"].startswith("replication-job-")
    assert pod["metadata"]["labels"]["airbyte"] == "job-pod"
    assert "workload_id" not in pod["metadata"]["labels"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert container["resources"]["limits"]["memory"] == "2432Mi"


@pytest.mark.clusters
def test_executors_end_with_a_driver_that_dies_and_the_next_attempt_goes_on(rig: Rig, local_tables: list[Tables]) -> None:
    lake = rig.lake("dead")
    connector = rig.connector(lake, rig.token())
    with connector.start(streams(1), spark=MASTER) as sync:
        rig.when_an_executor_merges(sync.kill)
        assert sync.send(*messages(1)).end_input().finish(STORY_TIMEOUT_S).exit_code != 0
    rig.cluster.wait_for_no_process()
    left = rig.cluster.executors()
    assert left
    assert all(pod["metadata"].get("ownerReferences") for pod in left), "Kubernetes removes them with the driver's pod"
    rig.cluster.remove(left)

    run_sync(rig.connector(lake, rig.token()), 1, MASTER)

    assert tables_of(lake) == local_tables[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing", "wants a token, and this pod has none"),
        ("unknown token", "does not accept the token (401)"),
        ("no right to make pods", "may not create pods in the namespace airbyte"),
        ("no authority", "is of no known authority"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(rig: Rig, tmp_path: Path, given: str, said: str) -> None:
    lake = ProcessLake.of(new_bucket(rig.moto), tmp_path)
    rights = AIRBYTE - {"create pods"} if given == "no right to make pods" else AIRBYTE
    trusted: dict[str, Any] = {} if given == "no authority" else {"s3": {"ca_certificate": rig.api.authority}}
    token = {"nothing": None, "unknown token": token_of("nobody")}.get(given, rig.token(rights))
    spark = {**MASTER, "conf": {"spark.kubernetes.namespace": NAMESPACE}, **({"kubernetes_token": token} if token else {})}

    outcome = rig.connector(lake, None, **trusted).check(spark=spark)

    assert outcome.connection_status["status"] == "FAILED"
    assert said in outcome.connection_status["message"]
    assert "\n" not in outcome.connection_status["message"]
    assert outcome.stderr == ""


@pytest.mark.parametrize(
    ("image", "said"),
    [
        pytest.param(
            "nowhere/none:1",
            'cannot start executors of the image nowhere/none:1 (ImagePullBackOff): Back-off pulling image "nowhere/none:1"',
            marks=pytest.mark.clusters,
        ),
        ("foreign", "start and end again, the last with code 3. Its last words: unknown command: executor."),
    ],
)
def test_a_wrong_image_is_named_with_the_reason(rig: Rig, tmp_path: Path, image: str, said: str) -> None:
    outcome = rig.connector(ProcessLake.of(new_bucket(rig.moto), tmp_path), rig.token(), image).check(spark=MASTER)

    assert outcome.connection_status["status"] == "FAILED"
    assert said in outcome.connection_status["message"]
    rig.wait_until_clean()
