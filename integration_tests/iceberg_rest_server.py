"""Iceberg's own REST catalog server, from its test fixtures: one Java process on a free port, with its tables in memory.

Maven fetches the jars of `iceberg_rest/pom.xml` (145 MB) into its own repository, once.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.servers import free_port, wait_for_http
from integration_tests.spark_cluster import QUICK_JVM
from unit_tests.lake.buckets import REGION, Bucket

POM = Path(__file__).parent / "iceberg_rest" / "pom.xml"
MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


@contextmanager
def rest_catalog_server(directory: Path, jars: str, bucket: Bucket) -> Iterator[str]:
    """A server whose tables are in this bucket; its URL."""
    port, log = free_port(), directory / "rest.log"
    environment = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": f"s3://{bucket.name}/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": bucket.server.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": bucket.server.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.server.secret_key,
        **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ},
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", *QUICK_JVM.split(), "-Xmx256m", "-cp", jars, MAIN], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        wait_for_http(f"http://127.0.0.1:{port}/v1/config", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
