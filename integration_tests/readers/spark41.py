"""Spark 4.1 with the jars of Delta and Iceberg, in a process and an environment of its own: neither has jars for the connector's Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from integration_tests.readers.reader_process import INSTALLED, ReaderError, ReaderProcess, Row, reader_process
from integration_tests.spark_cluster import QUICK_JVM
from unit_tests.lake.buckets import REGION, S3Server

PROGRAM = Path(__file__).with_name("spark_process.py")


class Spark41:
    """One session, which answers SQL. `lake` is the Iceberg catalog, and "delta.`s3a://…`" a Delta table."""

    def __init__(self, process: ReaderProcess) -> None:
        self._process = process

    def rows(self, sql: str) -> list[Row]:
        """The rows of a query. Raises ReaderError."""
        rows: list[Row] = self._process.answer({"sql": sql})["rows"]
        return rows

    def counts(self, table: str, conditions: Sequence[str]) -> list[int]:
        """The numbers of rows of the table that these conditions find, each in a query of its own."""
        counts: list[int] = self._process.answer({"sql": f"SELECT * FROM {table}", "conditions": list(conditions)})["counts"]
        return counts

    def refusal(self, sql: str) -> str:
        """Why Spark did not carry out the statement; empty if it did."""
        try:
            self.rows(sql)
        except ReaderError as error:
            return str(error)
        return ""


@contextmanager
def spark41(directory: Path, server: S3Server, catalog: str) -> Iterator[Spark41]:
    """A session that reads from this server, with this REST catalog."""
    with reader_process(PROGRAM, directory, _settings(server, catalog), SPARK_LOCAL_IP="127.0.0.1", JAVA_TOOL_OPTIONS=QUICK_JVM) as process:
        yield Spark41(process)


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
