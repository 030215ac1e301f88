"""Java servers from Maven's packages, which it keeps in its own repository, and a JVM in which a test calls their classes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from integration_tests.spark_cluster import SPARK_HOME

MAVEN_TIMEOUT_S = 600


class NoMavenError(Exception):
    """The packages cannot be had on this machine."""


def class_path(pom: Path, directory: Path) -> str:
    """The jars of this file. Raises NoMavenError without Java or Maven, or if Maven cannot fetch them."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        raise NoMavenError("Java or Maven is not installed")
    output = directory / f"{pom.parent.name}-class-path.txt"
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAVEN_TIMEOUT_S)
    if made.returncode:
        raise NoMavenError(f"Maven cannot fetch the packages of {pom}: {made.stdout[-500:]}")
    return output.read_text()


@contextmanager
def jvm_with(jars: str, log: Path, options: Sequence[str] = ()) -> Iterator[Any]:
    """py4j's view of a JVM with these jars before Spark's own. It ends, with all it has started, with the block."""
    spark = sorted((SPARK_HOME / "jars").glob("*.jar"))
    (bridge,) = (str(jar) for jar in spark if jar.name.startswith("py4j"))
    with log.open("w") as output:
        port, process = launch_gateway(
            jarpath=bridge,
            classpath=f"{jars}:{SPARK_HOME}/jars/*",
            javaopts=["-Xmx600m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options],
            redirect_stdout=output,
            redirect_stderr=output,
            die_on_exit=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        try:
            yield gateway.jvm
        finally:
            family = psutil.Process(process.pid).children(recursive=True)
            gateway.shutdown()
            process.stdin.close()
            for member in (process, *family):
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait(10)
