"""Spark 4.1 with the jars of Delta and Iceberg, in a process and an environment of its own: neither has jars for the connector's Spark."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from integration_tests.servers import REGION, S3Server

INSTALLED = Path(__file__).parents[2] / ".cache" / "readers"
PROGRAM = Path(__file__).with_name("spark_process.py")
Row = dict[str, Any]


class SparkError(Exception):
    """A statement that Spark did not carry out."""


class Spark41:
    """One session, which answers SQL. `lake` is the Iceberg catalog, and "delta.`s3a://…`" a Delta table."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], log: Path) -> None:
        self._requests = requests
        self._answers = answers
        self._log = log

    def rows(self, sql: str) -> list[Row]:
        """The rows of a query. Raises SparkError."""
        rows: list[Row] = self._answer({"sql": sql})["rows"]
        return rows

    def counts(self, table: str, conditions: Sequence[str]) -> list[int]:
        """The numbers of rows of the table that these conditions find, each in a query of its own."""
        counts: list[int] = self._answer({"sql": f"SELECT * FROM {table}", "conditions": list(conditions)})["counts"]
        return counts

    def refusal(self, sql: str) -> str:
        """Why Spark did not carry out the statement; empty if it did."""
        try:
            self.rows(sql)
        except SparkError as error:
            return str(error)
        return ""

    def send(self, content: Mapping[str, Any]) -> None:
        self._requests.write(json.dumps(content).encode() + b"\n")
        self._requests.flush()

    def receive(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = pickle.load(self._answers)
        except EOFError:
            raise RuntimeError(f"Spark 4.1 ended:\n{self._log.read_text(errors='replace')[-4000:]}") from None
        if "error" in answer:
            raise SparkError(answer["error"])
        return answer

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.send(request)
        return self.receive()


@contextmanager
def spark41(directory: Path, server: S3Server, catalog: str) -> Iterator[Spark41]:
    """A session that reads from this server, with this REST catalog."""
    log = directory / "spark41.log"
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment = {**bare, "TZ": "UTC", "AWS_REGION": REGION, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(INSTALLED / "venv" / "bin" / "python"), str(PROGRAM)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=directory, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        session = Spark41(process.stdin, process.stdout, log)
        session.send(_settings(server, catalog))
        session.receive()
        yield session
    finally:
        process.stdin.close()  # the end of its input ends it
        process.wait(60)
        process.stdout.close()


def _settings(server: S3Server, catalog: str) -> dict[str, str]:
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    lake = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": catalog,
        ".cache-enabled": "false",  # other sessions change the tables
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".http-client.type": "urlconnection",  # its default has no jar for the AWS SDK of Spark's Hadoop
        ".s3.endpoint": server.endpoint,
        ".s3.path-style-access": "true",
        ".s3.access-key-id": server.access_key,
        ".s3.secret-access-key": server.secret_key,
    }
    s3a = {
        "endpoint": server.endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": server.access_key,
        "secret.key": server.secret_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    return {
        "spark.jars": ",".join(map(str, sorted((INSTALLED / "jars").glob("*.jar")))),
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **{f"spark.sql.catalog.lake{name}": value for name, value in lake.items()},
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # to compile takes longer than to interpret a few rows
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
