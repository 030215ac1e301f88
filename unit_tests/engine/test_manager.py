"""What a session tells Spark of itself, by the manager of its cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.kubernetes import Kubernetes
from destination_s3_spark.engine.manager import Manager, driver_host, megabytes, python_memory, require_one_answers
from destination_s3_spark.engine.session import manager_of
from destination_s3_spark.engine.yarn import Yarn
from destination_s3_spark.errors import TransientError
from destination_s3_spark.sync.check import check_cluster
from unit_tests.cases import each
from unit_tests.engine.masters import on
from unit_tests.places import TEMPLATE


@each(("master", "kind"), [("spark://host:7077", Manager), ("yarn", Yarn), ("k8s://https://host:6443", Kubernetes)])
def test_each_kind_of_master_has_its_manager(master: str, kind: type[Manager]) -> None:
    assert type(manager_of(Cluster(master, "python3", 1), {}, Path("unused"))) is kind


def test_the_driver_hides_where_the_whole_cluster_is_on_its_machine() -> None:
    manager = Manager(Cluster("spark://127.0.0.1:7077", "python3", 1), {}, Path("unused"))
    assert manager.properties() == {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def test_the_driver_is_where_its_way_to_the_master_begins() -> None:
    assert driver_host([("no-such-host.invalid", 1), ("127.0.0.1", 7077)]) == {"spark.driver.host": "127.0.0.1"}
    assert driver_host([("no-such-host.invalid", 1)]) == {}


@each(
    ("conf", "memory"),
    [
        ({}, "1408m"),
        ({"spark.executor.cores": "4"}, "4480m"),
        ({"spark.executor.memoryOverhead": "2g"}, None),
        ({"spark.kubernetes.memoryOverheadFactor": "0.5"}, None),
    ],
)
def test_memory_for_python_is_asked_for_unless_the_user_says_how_much(conf: dict[str, str], memory: str | None) -> None:
    assert python_memory(conf).get("spark.executor.memoryOverhead") == memory


@each(("text", "size"), [("1g", 1024), ("512m", 512), ("512", 512), ("2048kb", 2), ("1T", 1024**2), ("much", None)])
def test_sizes_are_read_as_spark_reads_them(text: str, size: int | None) -> None:
    assert megabytes(text) == size


def test_one_place_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port = server.getsockname()[1]
        ended = other.getsockname()[1]
        other.close()
        require_one_answers([("127.0.0.1", ended), ("127.0.0.1", port)], "server", "the option")
        with pytest.raises(TransientError, match=f"No server answers at 127.0.0.1:{ended}. Check the option"):
            require_one_answers([("127.0.0.1", ended)], "server", "the option")


def test_a_port_that_is_none_is_not_that_of_another_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] + 65_536  # which a resolver takes for the server's
        with pytest.raises(TransientError, match=f"No server answers at 127.0.0.1:{port}"):
            require_one_answers([("127.0.0.1", port)], "server", "the option")


@pytest.mark.slow
def test_a_server_that_answers_and_is_no_master_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        master = f"spark://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(TransientError, match=r"the server at spark\.master did not answer as a Spark master does\. Check its port"):
            check_cluster(on(master), TEMPLATE)
