from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.engine.cluster import Cluster, package_archive, require_working_executors, secret_arguments
from destination_s3_spark.engine.environment import Environment, environment
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED
from unit_tests.cases import each


class Context:
    """A session whose executors answer the probe like this."""

    defaultParallelism = 2  # noqa: N815 (Spark's name)

    def __init__(self, *answers: Environment | Exception) -> None:
        self._answers = answers

    def parallelize(self, *_: Any) -> Context:
        return self

    def map(self, _: Any) -> Context:
        return self

    def collect(self) -> list[Environment]:
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
        return [answer for answer in self._answers if isinstance(answer, Environment)]


def context(*answers: Environment | Exception) -> Any:
    """A Context in the place of Spark's."""
    return Context(*answers)


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


def test_executors_like_this_process_will_do_and_say_how_they_type() -> None:
    ours = environment()
    other = replace(ours, records_typed="in Python (the native kernel is not installed)")

    assert require_working_executors(context(ours, ours)) == HOW_LINES_ARE_TYPED
    assert require_working_executors(context(other, ours, other)) == " and ".join(sorted({HOW_LINES_ARE_TYPED, other.records_typed}))


def test_one_executor_that_cannot_work_is_enough_for_an_error() -> None:
    with pytest.raises(ConfigError, match="They need boto3"):
        require_working_executors(context(environment(), Environment(environment().python, {})))


@each(
    ("answer", "said"),
    [
        (Environment("3.9", environment().packages), r"They need Python .* \(it has 3\.9\).*spark\.pyspark\.python"),
        (Environment(environment().python, {}), r"They need boto3 .* \(it has none\), msgspec .*spark\.pyspark\.python"),
        (
            spark_error('java.io.IOException: Cannot run program "python9": error=2'),
            r"cannot start Python as spark\.pyspark\.python in spark\.conf names it",
        ),
        (spark_error("PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker"), "another Python than this connector"),
        (spark_error("ModuleNotFoundError: No module named 'pyspark'"), r"first task: ModuleNotFoundError: No module named 'pyspark'\."),
    ],
)
def test_executors_that_cannot_work_are_a_config_error_that_says_why(answer: Environment | Exception, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        require_working_executors(context(answer))


def test_a_session_that_ended_is_transient() -> None:
    with pytest.raises(TransientError, match="master cannot be reached"):
        require_working_executors(context(RuntimeError("SparkContext was shut down")))


def test_the_secret_is_in_a_file_of_ours_while_the_session_starts(tmp_path: Path) -> None:
    cluster = Cluster("spark://host:7077", "python3", 1, "#a = b\\\n ü\U0001f511")

    with secret_arguments(cluster, tmp_path / "new dir") as (option, name):
        file = Path(name)
        key, value = file.read_text().rstrip("\n").split("=")
        assert (option, file.stat().st_mode & 0o777) == ("--properties-file", 0o600)
        assert key == "spark.authenticate.secret"
        assert value.encode().decode("unicode-escape").encode("utf-16", "surrogatepass").decode("utf-16") == cluster.secret

    assert not file.exists()
    assert "#a" not in repr(cluster)


def test_without_a_secret_nothing_is_told(tmp_path: Path) -> None:
    for cluster in (None, Cluster("spark://host:7077", "python3", 1)):
        with secret_arguments(cluster, tmp_path) as arguments:
            assert arguments == []
    assert not list(tmp_path.iterdir())
