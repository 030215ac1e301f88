"""What the image is made of, and the commands that need neither Spark nor much memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from destination_s3_spark.cli.registry_command import registry_entry
from integration_tests.image.container import TMPFS, ImageConnector, Limits

pytestmark = pytest.mark.image_tests
ROOT = Path(__file__).parent.parent.parent
Make = Callable[..., ImageConnector]

UNWANTED = ("pip", "setuptools", "pytest", "moto", "hypothesis", "docker", "duckdb", "polars", "pandas", "nltk", "grpc")
SESSION = """
import sys, tempfile
from pathlib import Path
from destination_s3_spark.engine.startup import class_data
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.session import SparkSettings

log = Path("/tmp/classes.log")
options = (*class_data.java_options(), f"-Xlog:class+load:file={log}")
engine = Engine(SparkSettings(1, 512, Path(tempfile.mkdtemp()), {}, java_options=options))
answers = engine.run(str, [[1], [2]])
engine.stop()
print(answers, sum("(top)" in line for line in log.read_text().splitlines()))
"""


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "metadata.yaml").read_text())["data"]
    return loaded


@pytest.fixture(scope="module")
def image_config(image: str) -> dict[str, Any]:
    found: dict[str, Any] = docker.from_env().images.get(image).attrs["Config"]
    return found


def run(image: str, *command: str, **options: Any) -> str:
    """What a command says on stdout, without a network and with a read-only root."""
    usual = {"read_only": True, "tmpfs": TMPFS, "network_mode": "none", "remove": True}
    output: bytes = docker.from_env().containers.run(image, [*command], **{**usual, **options})
    return output.decode()


def test_labels_name_the_connector_of_metadata_yaml(image_config: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert image_config["Labels"]["io.airbyte.name"] == metadata["dockerRepository"]
    assert image_config["Labels"]["io.airbyte.version"] == metadata["dockerImageTag"]


def test_the_image_runs_without_root_and_unbuffered(image_config: dict[str, Any]) -> None:
    assert image_config["User"] == "1000"
    assert "PYTHONUNBUFFERED=1" in image_config["Env"]


def test_records_are_typed_by_the_native_kernel_and_what_built_it_stayed_behind(image: str) -> None:
    assert "records are typed by the native kernel" in run(image, "--version")
    tools = run(image, "-c", "command -v cargo rustc maturin cc gcc ld || true", entrypoint="/bin/sh")
    assert tools == ""


def test_no_setting_of_the_machine_that_built_the_image_is_in_it(image: str, image_config: dict[str, Any]) -> None:
    names = [entry.split("=")[0] for entry in image_config["Env"]]
    assert [name for name in names if re.search("index|proxy|cert", name, re.IGNORECASE)] == []
    history = json.dumps(docker.from_env().images.get(image).history())
    assert re.search(r"index-url|_proxy=", history, re.IGNORECASE) is None
    places = "ls -d /etc/pip.conf ~/.config/pip ~/.pip /run/secrets 2>/dev/null || true"
    assert run(image, "-c", places, entrypoint="sh", user="0") == ""


def test_spec_is_the_specification_of_this_checkout(image: str) -> None:
    (message,) = [json.loads(line) for line in run(image, "spec", mem_limit="800m").splitlines()]
    assert message["type"] == "SPEC"
    expected = json.loads((ROOT / "destination_s3_spark" / "spec.json").read_text())
    assert {name: message["spec"][name] for name in expected} == expected


def test_the_registry_entry_is_that_of_this_checkout(image: str) -> None:
    assert json.loads(run(image, "registry")) == registry_entry()


def test_the_platforms_way_of_starting_it_gives_the_same(image: str) -> None:
    said = run(image, "-c", 'eval "$AIRBYTE_ENTRYPOINT spec"', entrypoint="sh")
    assert said == run(image, "spec")


def test_nothing_that_only_builds_and_tests_need_is_in_it(image: str) -> None:
    found = f"import importlib.util as u; print([name for name in {UNWANTED} if u.find_spec(name)])"
    assert run(image, "-c", found, entrypoint="python").strip() == "[]"
    assert run(image, "-c", "find ~ /home /var/cache -name '*pip*' 2>/dev/null || true", entrypoint="sh", user="0") == ""


def test_python_writes_no_bytecode_at_run_time(image: str) -> None:
    """All of it was compiled when the image was built: with a read-only root nothing could be kept."""
    missing = """
import pathlib, sysconfig
root = pathlib.Path(sysconfig.get_path("purelib"))
print([str(file) for name in ("destination_s3_spark", "pyarrow", "pyspark/core", "airbyte_cdk/destinations")
       for file in (root / name).rglob("*.py") if not list((file.parent / "__pycache__").glob(file.stem + ".*.pyc"))])
"""
    assert run(image, "-c", missing, entrypoint="python").strip() == "[]"


def test_sparks_jvm_takes_its_classes_from_the_archive_and_needs_no_host_name(image: str) -> None:
    said = run(image, "-c", SESSION, entrypoint="python").splitlines()[-1]
    answers, shared = said.rsplit(" ", 1)
    assert answers == "[['1'], ['2']]"
    assert int(shared) > 4000


@pytest.mark.parametrize("cpus", [0.5, 1])
def test_tasks_are_as_many_as_the_containers_cpus(image: str, cpus: float) -> None:
    question = "from destination_s3_spark.engine.session import local_cores; print(local_cores('local[*]'))"
    assert run(image, "-c", question, entrypoint="python", nano_cpus=int(cpus * 1e9)).strip() == "1"


def test_check_succeeds_without_a_jvm(in_image: Make) -> None:
    connector = in_image(Limits("800m", 1), environment={"JAVA_HOME": "/nowhere"})
    outcome = connector.check().expect_success()
    assert outcome.connection_status == {"status": "SUCCEEDED"}


def test_check_of_a_missing_bucket_fails_and_names_it(in_image: Make) -> None:
    outcome = in_image(Limits("800m", 1)).check(s3_bucket_name="no-such-bucket")
    assert outcome.exit_code == 0
    assert outcome.connection_status["status"] == "FAILED"
    assert "no-such-bucket" in outcome.connection_status["message"]
