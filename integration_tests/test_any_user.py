"""A container may run as any user, who then has no account, no name and no home: `docker run --user 12345:0`."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import destination_s3_spark
from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from integration_tests.spark_cluster import spark_cluster
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

ANYBODY = 12345
OWN_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEEXECUTORS", "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true"}
PACKAGES = f"{Path(destination_s3_spark.__file__).parents[1]}:{Path(pytest.__file__).parents[1]}"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as somebody else")


def can_be_started(python: str) -> bool:
    """Whether anybody can start this interpreter, and it itself again, as Spark does for its workers."""
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    try:
        return not subprocess.run(
            [python, "-c", again], user=ANYBODY, group=0, extra_groups=[], capture_output=True, check=False
        ).returncode
    except OSError:
        return False


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter of this version that anybody can start: not one in root's home."""
    candidates = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", f"/usr/local/bin/python3.{sys.version_info.minor}"]
    found = next(filter(can_be_started, candidates), None)
    if found is None:
        pytest.skip("nobody but root can start a Python of this version here")
    return found


@pytest.fixture
def anybodys_lake(moto: S3Server) -> Iterator[ProcessLake]:
    """A bucket, and a directory that anybody may write to."""
    umask = os.umask(0)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield ProcessLake.of(new_bucket(moto), Path(directory))
    os.umask(umask)


def connector_of_anybody(lake: ProcessLake, python: str) -> Connector:
    """Started as Docker does it: with `/` as the home."""
    connector = lake.connector(environment={"PYTHONPATH": PACKAGES, "HOME": "/"})
    connector.user, connector.program = ANYBODY, (python, "-m", "destination_s3_spark")
    return connector


def test_a_user_without_an_account_can_check_and_sync(anybodys_lake: ProcessLake, python: str) -> None:
    with pytest.raises(KeyError):
        pwd.getpwuid(ANYBODY)
    connector = connector_of_anybody(anybodys_lake, python)

    assert connector.check().connection_status["status"] == "SUCCEEDED"
    outcome = connector.write(catalog(stream()), [*users(range(10)), state(9), complete()]).expect_success()

    assert len(outcome.states) == 1
    assert anybodys_lake.ids() == list(range(10))
    anybodys_lake.verify_at_rest()


def test_a_user_who_may_not_write_to_the_spool_directory_is_told_so(anybodys_lake: ProcessLake, python: str) -> None:
    closed = anybodys_lake.directory / "closed"
    closed.mkdir()
    closed.chmod(0o755)
    connector, batching = connector_of_anybody(anybodys_lake, python), {"spool_dir": str(closed)}

    outcome = connector.write(catalog(stream()), [*users([1]), state(1), complete()], batching=batching).expect_failure("config_error")

    for message in (outcome.error_message, connector.check(batching=batching).connection_status["message"]):
        assert f"The spool directory {closed} cannot be written (Permission denied)" in message


@pytest.mark.slow
def test_a_user_without_an_account_can_sync_on_a_cluster(anybodys_lake: ProcessLake, python: str, tmp_path: Path) -> None:
    """The connector's package travels through Hadoop's file system there, which asks who it works for."""
    with spark_cluster(tmp_path / "cluster", {"PYTHONPATH": PACKAGES, **OWN_CREDENTIALS}, {}) as cluster:
        spark = {
            "master": cluster.master,
            "conf": {"spark.pyspark.python": python, "spark.executor.memory": "512m", "spark.cores.max": "1"},
        }
        connector = connector_of_anybody(anybodys_lake, python)
        connector.write(catalog(stream()), [*users(range(10)), state(9), complete()], spark=spark).expect_success()
    assert anybodys_lake.ids() == list(range(10))
