from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.engine.cluster import (
    Cluster,
    conf_of,
    no_executors,
    package_archive,
    require_working_executors,
    scratch_directory,
)
from destination_s3_spark.engine.environment import Environment, environment
from destination_s3_spark.errors import ConfigError, TransientError


class Context:
    """A session whose executors answer the probe like this."""

    def __init__(self, answer: Environment | Exception) -> None:
        self._answer = answer

    def parallelize(self, *_: Any) -> Context:
        return self

    def map(self, _: Any) -> Context:
        return self

    def collect(self) -> list[Environment]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return [self._answer]


def spark_error(cause: str) -> Exception:
    """An error as Spark words it."""
    failure = f"Lost task 0.2 in stage 0.0 (TID 2) (10.0.0.7 executor 0): {cause}"
    return RuntimeError(f"Job aborted due to stage failure: Task 0 failed 3 times, most recent failure: {failure}\n\tat java.lang.Thread\n")


def test_the_archive_is_importable_and_needs_nothing_else_for_the_probe(tmp_path: Path) -> None:
    archive = package_archive(tmp_path / "new")
    program = "from destination_s3_spark.engine import environment as e; print(e.__file__, e.environment().python)"

    answer = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {program}"],
                            capture_output=True, text=True, check=True)  # fmt: skip

    assert answer.stdout.split() == [f"{archive}/destination_s3_spark/engine/environment.py", environment().python]


def test_the_driver_hides_where_the_whole_cluster_is_on_its_machine() -> None:
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

    assert conf_of(Cluster("spark://127.0.0.1:7077", "python3", 1)) == {"spark.master": "spark://127.0.0.1:7077", **here}
    assert conf_of(Cluster("spark://host:7077", "python3", 1)) == {"spark.master": "spark://host:7077"}
    assert conf_of(Cluster("k8s://https://127.0.0.1:443", "python3", 1)) == {"spark.master": "k8s://https://127.0.0.1:443"}


def test_executors_like_this_process_will_do() -> None:
    require_working_executors(Context(environment()))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Environment("3.9", environment().packages), r"They need Python .* \(it has 3\.9\).*spark\.pyspark\.python"),
        (Environment(environment().python, {}), r"They need boto3 .* \(it has none\), msgspec .*spark\.pyspark\.python"),
        (spark_error('java.io.IOException: Cannot run program "python9": error=2'), r"cannot start Python: .*python9.*spark\.pyspark"),
        (spark_error("PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker"), "another Python than this connector"),
        (spark_error("ModuleNotFoundError: No module named 'pyspark'"), r"first task: ModuleNotFoundError: No module named 'pyspark'\."),
    ],
)
def test_executors_that_cannot_work_are_a_config_error_that_says_why(answer: Environment | Exception, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        require_working_executors(Context(answer))


def test_a_session_that_ended_is_transient() -> None:
    with pytest.raises(TransientError, match="Is its master up"):
        require_working_executors(Context(RuntimeError("SparkContext was shut down")))


def test_a_cluster_without_executors_is_transient_and_names_what_to_look_at() -> None:
    error = no_executors(Cluster("spark://host:7077", "python3", 120), {"spark.driver.host": "10.0.0.1"})

    assert isinstance(error, TransientError)
    assert "within 120 seconds" in error.message
    assert "the driver at 10.0.0.1 (spark.driver.host, spark.driver.port, spark.driver.blockManager.port)" in error.message


def test_scratch_is_where_spark_clears_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/one/blockmgr,/two/blockmgr")
    assert scratch_directory() == "/one/blockmgr"
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert scratch_directory() is None
