"""Airbyte's standard tests for Python connectors, over acceptance-test-config.yml and one S3 server of our own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from airbyte_cdk.test.models import ConnectorTestScenario
from airbyte_cdk.test.standard_tests import DestinationTestSuiteBase
from moto.server import ThreadedMotoServer

from destination_s3_spark.destination import DestinationS3Spark

ROOT = Path(__file__).parent.parent
NOT_PART_OF_IT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "benchmarks", "unit_tests")
KEYS = {"access_key_id": "standards-key-1", "secret_access_key": "standards-secret-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of an S3 server with one empty bucket, `lake`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEYS["access_key_id"],
        aws_secret_access_key=KEYS["secret_access_key"],
    ).create_bucket(Bucket="lake")
    yield url
    server.stop()


class TestAirbyteStandards(DestinationTestSuiteBase):
    """What every Airbyte connector must do."""

    connector = DestinationS3Spark
    connector_name = "destination-s3-spark"  # the suite would take it from the directory, which a clone may call anything

    @pytest.fixture
    def config_path(self, endpoint: str, tmp_path: Path) -> Path:
        """A configuration for the bucket `lake` of the server."""
        config = {
            **KEYS,
            "s3_bucket_name": "lake",
            "s3_bucket_path": "airbyte",
            "s3_bucket_region": "us-east-1",
            "s3_endpoint": endpoint,
            "format": {"format_type": "Parquet"},
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    def test_check_of_a_working_bucket_succeeds(self, config_path: Path) -> None:
        scenario = ConnectorTestScenario(config_path=config_path, status="succeed")

        self.test_config_matches_spec(scenario)
        self.test_check(scenario)

    def test_check_of_a_missing_bucket_fails(self, config_path: Path) -> None:
        config_path.write_text(config_path.read_text().replace('"lake"', '"no-such-lake"'))

        self.test_check(ConnectorTestScenario(config_path=config_path, status="failed"))


def test_the_cdks_own_test_command_passes_in_a_checkout(tmp_path: Path) -> None:
    """It goes by the directory's name, and writes into it."""
    checkout = tmp_path / "destination-s3-spark"
    shutil.copytree(ROOT, checkout, ignore=NOT_PART_OF_IT)
    command = [str(Path(sys.executable).with_name("airbyte-cdk")), "connector", "test", "--pytest-arg=-m not image_tests"]

    ended = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert " passed" in ended.stdout
