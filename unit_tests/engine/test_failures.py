"""What is said of a failure of Spark: memory is named only where it ran out."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from destination_s3_spark.engine.failures import Symptom, innermost, job_failure, start_failure, symptom
from destination_s3_spark.engine.jvm import JvmOutput, quoted
from destination_s3_spark.errors import ConfigError, TransientError
from unit_tests.cases import each

STACK = """Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2/local
\tat org.apache.ivy.util.Checks.checkAbsolute(Checks.java:48)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
LOST = OSError("the JVM ended")


@dataclass
class EndedJvm:
    """A process that has written this and ended with this code, as a JVM would."""

    process: subprocess.Popen[bytes]
    output: JvmOutput


def ended(code: int, said: str) -> Any:
    kill = "os.kill(os.getpid(), 9)" if code == -9 else f"os._exit({code})"
    program = f"import os; os.write(1, {said.encode()!r}); {kill}"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = JvmOutput(process.stdout)
    output.follow()
    return EndedJvm(process, output)


@each(
    ("code", "said", "words", "memory"),
    [
        (1, STACK, "basedir must be absolute: ?/.ivy2/local", False),
        (
            1,
            "Error occurred during initialization of VM\nCould not reserve enough space\n",
            "of VM | Could not reserve enough space",
            False,
        ),
        (52, "java.lang.OutOfMemoryError: Java heap space\n", "", True),
        (1, "java.lang.OutOfMemoryError: Java heap space\n", "", True),
        (52, "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory\n", "start more threads", False),
        (-9, "", "", True),
        (137, "", "", True),
    ],
)
def test_the_last_words_of_a_jvm_are_quoted_and_memory_is_named_only_if_it_ran_out(
    code: int, said: str, words: str, *, memory: bool
) -> None:
    seen = symptom(LOST, ended(code, said), kernel_killed=False)
    for failure in (start_failure(seen, {}), job_failure(seen, 3, on_cluster=False)):
        assert words in failure.message
        assert ("lack of memory" in failure.message) == memory
        assert "checkAbsolute" not in failure.message


FORBIDDEN = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": org.apache.spark.SparkException: External scheduler cannot be instantiated\n"
    "\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3204)\n"
    "Caused by: io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: https://10.96.0.1/. Message: pods is "
    'forbidden: User "x" cannot create resource "pods". Received status: Status(apiVersion=v1, code=403).\n'
    "\t... 12 more\n"
)
QUEUE = (
    ": org.apache.spark.SparkException: Yarn application failed\n\tat a.b(C.java:1)\n"
    "Caused by: org.apache.hadoop.yarn.exceptions.YarnException: Application rejected: unknown queue: other\n"
)


@each(
    ("said", "kind", "words"),
    [
        (FORBIDDEN, ConfigError, 'Spark did not start: pods is forbidden: User "x" cannot create resource "pods".'),
        (QUEUE, ConfigError, "Spark did not start: Application rejected: unknown queue: other."),
        (": java.net.ConnectException: Connection refused\n", TransientError, "Spark did not start: Connection refused."),
        (": java.lang.IllegalStateException: \nCaused by: java.io.EOFException\n", TransientError, "EOFException"),
    ],
)
def test_the_innermost_cause_is_said_and_is_the_users_where_a_retry_meets_it_again(said: str, kind: type[Exception], words: str) -> None:
    failure = start_failure(Symptom(innermost(said), said, None, "", want_of_memory=False, want_of_threads=False, no_master=False), {})

    assert type(failure) is kind
    assert words in failure.message


SECRET = "THE-SECRET-VALUE"


@each(
    ("said", "key"),
    [
        (f": org.apache.spark.SparkException: The value '{SECRET}' in the config \"spark.task.cpus\" is invalid.\n", "spark.task.cpus"),
        (f": java.lang.IllegalArgumentException: spark.memory.fraction should be a number, but was {SECRET}\n", "spark.memory.fraction"),
        (f": java.lang.NumberFormatException: Failed to parse byte string: {SECRET}\n", "spark.task.cpus"),
        (f": java.lang.IllegalArgumentException: spark.memory.fraction.x {SECRET}\n", "spark.task.cpus"),
    ],
)
def test_of_what_spark_says_about_a_property_the_key_alone_is_repeated(said: str, key: str) -> None:
    conf = {"spark.memory.fraction": "0.5", "spark.task.cpus": SECRET}
    of_context = Symptom(innermost(said), said, None, "", want_of_memory=False, want_of_threads=False, no_master=False)
    of_launch = symptom(LOST, ended(1, said), kernel_killed=False)
    for seen in (of_context, of_launch):
        failure = start_failure(seen, conf)
        assert type(failure) is ConfigError
        assert failure.message == f"Spark did not start: it does not take the value of {key} in spark.conf. Correct it, or remove it."


def test_a_secret_is_masked_in_what_the_jvm_says(capfd: pytest.CaptureFixture[str]) -> None:
    output = JvmOutput(io.BytesIO(f"before {SECRET}\n".encode() + b"\xff after\n"), lambda text: text.replace(SECRET, "****"))
    output.follow()
    output.finish(10)
    assert capfd.readouterr().err.encode(errors="surrogateescape").startswith(b"before ****\n")
    assert output.last_lines[0] == "before ****"


def test_what_the_jvm_says_is_passed_on_without_the_lines_of_every_start(capfd: pytest.CaptureFixture[str]) -> None:
    output = JvmOutput(io.BytesIO(b"WARNING: Using incubator modules: jdk.incubator.vector\nspark ERROR Executor: lost\nhalf a line"))
    output.follow()
    output.finish(10)
    assert capfd.readouterr().err == "spark ERROR Executor: lost\nhalf a line"
    assert quoted(output.last_lines) == "spark ERROR Executor: lost | half a line"
