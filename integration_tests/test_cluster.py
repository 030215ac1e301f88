"""Spark on a standalone cluster: the same tables as inside the connector, and nothing left over, whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.engine.environment import PACKAGES
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED, SWITCH
from integration_tests.cluster_story import ORDERS, RECORDS, comparable, marks_on, run_sync
from integration_tests.connector import Connector
from integration_tests.fault_proxy import Fault, FaultProxy, fault_proxy
from integration_tests.lake import ProcessLake
from integration_tests.network import NoNamespacesError, network
from integration_tests.servers import free_port
from integration_tests.spark_cluster import SparkCluster, interpreter, spark_cluster
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.contents import USERS
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, state, stream, users

pytestmark = marks_on("standalone")

PROTECTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
SECRET = "a-secret=of: the cluster"
EXECUTOR_KEY = "AKIAOFTHEEXECUTORS"
OWN_CREDENTIALS = {"AWS_ACCESS_KEY_ID": EXECUTOR_KEY, "AWS_SECRET_ACCESS_KEY": "of-the-executors", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Executors have credentials of their own in their environment; nobody takes part who does not know the secret."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), OWN_CREDENTIALS, {**PROTECTED, "spark.authenticate.secret": SECRET}) as running:
        yield running


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter for executors with the packages we say they need; the connector is not among them."""
    return interpreter(tmp_path_factory.mktemp("python"), PACKAGES)


@pytest.fixture(scope="module")
def watched(moto: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(moto.endpoint) as proxy:
        yield proxy


def on(cluster: SparkCluster, python: Path, **more: Any) -> dict[str, Any]:
    """The `spark` group of a configuration that runs there."""
    conf = {**PROTECTED, "spark.pyspark.python": str(python), "spark.executor.memory": "512m"}
    return {"master": cluster.master, "conf": conf, "authenticate_secret": SECRET, **more}


def on_one_executor(cluster: SparkCluster, python: Path) -> dict[str, Any]:
    """The same for what does not need more, and is quicker then."""
    spark = on(cluster, python)
    return {**spark, "conf": {**spark["conf"], "spark.cores.max": "1"}}


def two_syncs(connector: Connector, sparks: tuple[dict[str, Any], dict[str, Any]]) -> list[Outcome]:
    """The story of clusters before its refresh."""
    return [run_sync(connector, sync, spark) for sync, spark in enumerate(sparks, start=1)]


@pytest.fixture(scope="module")
def local(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> ProcessLake:
    """The tables as Spark inside the connector makes them."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("local"))
    two_syncs(lake.connector(), ({"master": "local[2]"}, {"master": "local[2]"}))
    return lake


@pytest.fixture(scope="module")
def remote(
    moto: S3Server, watched: FaultProxy, cluster: SparkCluster, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ProcessLake, list[Outcome]]:
    """The same by the cluster, whose executors use their own credentials in the first sync and ours in the second."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("remote"))
    sparks = (on(cluster, python), on(cluster, python, executor_credentials="forward"))
    return lake, two_syncs(lake.connector(watched.endpoint), sparks)


@pytest.mark.parametrize("table", [USERS, ORDERS])
def test_a_cluster_makes_the_same_tables(local: ProcessLake, remote: tuple[ProcessLake, list[Outcome]], table: StreamName) -> None:
    lake, _ = remote
    rows = comparable(lake.rows(table))

    assert rows == comparable(local.rows(table))
    assert len(rows) == (2 * RECORDS if table == USERS else RECORDS * 3 // 2 - RECORDS // 10)
    assert comparable(lake.raw_rows(table)) == comparable(local.raw_rows(table))
    assert any("DESTINATION_SERIALIZATION_ERROR" in row for row in rows) == (table == ORDERS)


def test_nothing_is_left_over_after_syncs_on_a_cluster(remote: tuple[ProcessLake, list[Outcome]], watched: FaultProxy) -> None:
    lake, outcomes = remote

    lake.verify_at_rest()
    assert [len(outcome.states) for outcome in outcomes] == [2, 2]
    assert not [call.key for call in watched.calls if call.action == "PutObject" and "/scratch/" in call.key]


def test_executors_without_a_kernel_of_their_own_type_by_the_drivers(remote: tuple[ProcessLake, list[Outcome]]) -> None:
    _, outcomes = remote

    for outcome in outcomes:
        assert f"records are typed {HOW_LINES_ARE_TYPED} by workers of this machine." in outcome.log_text
        assert f"The executors type records {HOW_LINES_ARE_TYPED}." in outcome.log_text


def test_both_workers_took_part(remote: tuple[ProcessLake, list[Outcome]], cluster: SparkCluster) -> None:
    assert remote
    assert min(cluster.executors()) >= 2


def test_records_land_here_and_executors_sign_with_their_own_credentials_or_with_ours(
    remote: tuple[ProcessLake, list[Outcome]], watched: FaultProxy
) -> None:
    lake, _ = remote
    signed = [(call.key, call.headers["authorization"].split("Credential=")[1].split("/")[0]) for call in watched.calls
              if call.action == "UploadPart"]  # fmt: skip
    ours = lake.bucket.server.access_key

    assert {key for name, key in signed if "/raw/" in name or "/users/" in name} == {ours}
    assert [key for name, key in signed if "/shop/orders/" in name] == [EXECUTOR_KEY, ours]


def test_forwarded_credentials_are_in_no_file_of_the_cluster(remote: tuple[ProcessLake, list[Outcome]], cluster: SparkCluster) -> None:
    lake, _ = remote
    secret = lake.bucket.server.secret_key.encode()
    files = [path for path in cluster.workers[0].parent.rglob("*") if path.is_file()]

    assert any(path.name == "stderr" and path.stat().st_size for path in files)
    assert [path for path in files if secret in path.read_bytes()] == []


def test_a_host_that_is_cut_off_while_tables_are_merged_costs_time_alone(moto: S3Server, python: Path, tmp_path: Path) -> None:
    streams = catalog(*(stream(name, mode="append_dedup", primary_key=[["id"]]) for name in ("left", "right")))
    with ExitStack() as stack:
        try:
            here, *hosts = stack.enter_context(network(2))
        except NoNamespacesError as missing:
            pytest.skip(str(missing))
        cluster = stack.enter_context(spark_cluster(tmp_path / "cluster", OWN_CREDENTIALS, {"spark.worker.timeout": "5"}, here, hosts))
        proxy = stack.enter_context(fault_proxy(moto.endpoint, here.address))
        conf = {"spark.pyspark.python": str(python), "spark.executor.memory": "512m", "spark.driver.host": here.address}
        lake = ProcessLake.of(new_bucket(moto), tmp_path)
        connector = lake.connector(proxy.endpoint, spark={"master": cluster.master, "conf": conf})
        sync = stack.enter_context(connector.start(streams))
        cut_off = Fault("CreateMultipartUpload", only=lambda call: call.peer == hosts[1].address, status=None, times=1)
        cut_off.effect = lambda _: hosts[1].cut_off()
        proxy.inject(cut_off)
        rows = [line for name in ("left", "right") for line in (*users(range(10), name), state(1, name), complete(name))]
        outcome = sync.send(*rows).end_input().finish().expect_success()

        assert cut_off.seen, "the host was never asked to merge"
        assert cluster.state()["aliveworkers"] == 1
        assert "Traceback" not in outcome.stderr
        assert "py4j" not in outcome.stderr + outcome.log_text
        lake.verify_at_rest()
        for name in ("left", "right"):
            assert lake.ids(("shop", name)) == list(range(10))


def test_a_session_that_is_slow_to_end_is_ended_in_silence(
    moto: S3Server, cluster: SparkCluster, python: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    lake = ProcessLake.of(new_bucket(moto), tmp_path)
    with lake.connector(proxy.endpoint).start(catalog(stream()), spark=on_one_executor(cluster, python)) as sync:
        # The last request of the sync: nothing is left but to say goodbye to the cluster.
        proxy.inject(Fault("PutObject", "/hint", status=None, times=1, effect=lambda _: sync.jvm().suspend()))
        outcome = sync.send(*users(range(10)), state(1), complete()).end_input().finish().expect_success()

    assert "Traceback" not in outcome.stderr
    assert "py4j" not in outcome.stderr + outcome.log_text
    cluster.wait_until_free()


def check_message(lake: ProcessLake, spark: dict[str, Any]) -> str:
    status = lake.connector().check(spark=spark).connection_status
    return "" if status["status"] == "SUCCEEDED" else str(status["message"])


def test_check_runs_a_task_where_the_switch_arrives_and_leaves_nothing(
    moto_lake: ProcessLake, cluster: SparkCluster, tmp_path: Path
) -> None:
    with_kernel = interpreter(tmp_path / "own", [*PACKAGES, "destination-s3-spark-kernel"])

    outcome = moto_lake.connector(environment={SWITCH: "off"}).check(spark=on_one_executor(cluster, with_kernel))

    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert f"The executors type records in Python ({SWITCH}=off)." in outcome.log_text
    assert moto_lake.bucket.list_keys() == []
    assert moto_lake.bucket.open_uploads() == []


def test_check_names_what_executors_lack(moto_lake: ProcessLake, cluster: SparkCluster, tmp_path: Path) -> None:
    bare = interpreter(tmp_path / "bare", ["msgspec"])

    message = check_message(moto_lake, on_one_executor(cluster, bare))

    assert "pyarrow 26" in message
    assert "(it has none)" in message
    assert "msgspec" not in message
    assert "spark.pyspark.python" in message


def test_check_says_at_once_that_no_master_answers(moto_lake: ProcessLake) -> None:
    port = free_port()

    assert f"No Spark master answers at 127.0.0.1:{port}" in check_message(moto_lake, {"master": f"spark://127.0.0.1:{port}"})
