"""Executor of Spark in a pod: what the connector's image does when Spark's Kubernetes backend starts it with the argument `executor`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from destination_s3_spark.engine.jvm import LOG4J, spark_home
from destination_s3_spark.errors import ConfigError

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = (
    ("driver-url", "SPARK_DRIVER_URL"),
    ("executor-id", "SPARK_EXECUTOR_ID"),
    ("cores", "SPARK_EXECUTOR_CORES"),
    ("app-id", "SPARK_APPLICATION_ID"),
    ("hostname", "SPARK_EXECUTOR_POD_IP"),
    ("resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("podName", "SPARK_EXECUTOR_POD_NAME"),
)
"""Arguments of the backend, and the environment variables in which the driver gives them."""
MEMORY = "SPARK_EXECUTOR_MEMORY"
JAVA_OPTION = "SPARK_JAVA_OPT_"
"""Beginning of the variables with Java options, which a number ends."""


def command(environ: Mapping[str, str]) -> list[str]:
    """Return the command line of an executor. Raises ConfigError if Spark did not ask for one."""
    missing = [name for name in (*(name for _, name in ARGUMENTS), MEMORY) if name not in environ]
    if missing:
        raise ConfigError(f"This command is for pods that Spark makes: {', '.join(missing)} must be in the environment.")
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH"))
    if java is None:
        raise ConfigError("There is no java on the PATH, and JAVA_HOME is not set. The connector's image has one.")
    options = sorted((name for name in environ if name.startswith(JAVA_OPTION)), key=lambda name: int(name.removeprefix(JAVA_OPTION)))
    return [
        java,
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"),
        *(environ[name] for name in options),
        *(f"-Xmx{environ[MEMORY]}", "-cp", str(spark_home() / "jars" / "*"), BACKEND),
        *(part for option, name in ARGUMENTS for part in (f"--{option}", environ[name])),
    ]


def run() -> int:
    """Become the executor, or return 1 if Spark asked for none.

    Its Python workers run this interpreter: the driver names it without a directory.
    """
    try:
        line = command(os.environ)
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    os.environ["PATH"] = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    os.environ["SPARK_HOME"] = str(spark_home())
    return os.execv(line[0], line)  # noqa: S606 (no shell)
