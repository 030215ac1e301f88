"""The connector's image as the image of Spark's executors."""

from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.engine import executor
from destination_s3_spark.errors import ConfigError
from unit_tests.cases import each

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "JAVA_HOME": "/opt/java",
}


def test_the_backend_gets_what_spark_put_into_the_pod() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in (10, 2)}

    line = executor.command({**GIVEN, **options})

    assert line[0] == "/opt/java/bin/java"
    assert [part for part in line if part.startswith("-Dnumber")] == ["-Dnumber=2", "-Dnumber=10"]
    backend = line.index(executor.BACKEND)
    assert "-Xmx1g" in line[:backend]
    given = dict(zip(line[backend + 1 :: 2], line[backend + 2 :: 2], strict=True))
    assert given == {
        "--driver-url": GIVEN["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


@each(
    ("without", "said"), [("SPARK_EXECUTOR_ID", "for pods that Spark makes: SPARK_EXECUTOR_ID must"), ("JAVA_HOME", "no java on the PATH")]
)
def test_what_is_missing_is_named(without: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        executor.command({**{name: text for name, text in GIVEN.items() if name != without}, "PATH": "/nowhere"})


def test_a_person_who_types_it_reads_what_it_is_for(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)

    assert executor.run() == 1
    assert "This command is for pods that Spark makes" in capsys.readouterr().err
