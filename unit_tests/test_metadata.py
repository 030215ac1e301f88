from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import yaml
from airbyte_connector_models.metadata.v0.connector_metadata_definition_v0 import ConnectorMetadataDefinitionV0

from unit_tests.cases import each

ROOT = Path(__file__).parents[1]
METADATA: dict[str, Any] = yaml.safe_load((ROOT / "metadata.yaml").read_text())
DATA: dict[str, Any] = METADATA["data"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCK_FILES = ["requirements.lock", "requirements-dev.lock", "requirements-build.lock"]
DESTINATION_S3_ID = "4816b78f-1489-44c1-9060-4b19d5fa9362"


def test_airbyte_accepts_the_metadata() -> None:
    metadata = ConnectorMetadataDefinitionV0.model_validate(METADATA)

    assert metadata.data.connector_type.value == "destination"
    assert str(metadata.data.definition_id) != DESTINATION_S3_ID


def test_the_package_has_the_metadata_too() -> None:
    """From which `registry` makes its entry: `make spec` writes it."""
    assert json.loads((ROOT / "destination_s3_spark" / "metadata.json").read_bytes()) == METADATA


def test_the_platform_will_send_generations_and_statuses() -> None:
    assert DATA["supportsRefreshes"] is True


def test_the_cdk_knows_this_as_a_python_connector() -> None:
    assert {"language:python", "cdk:python"} <= set(DATA["tags"])


def test_a_sync_gets_memory_for_a_jvm_and_check_needs_little() -> None:
    limits = {job["jobType"]: job["resourceRequirements"]["memory_limit"] for job in DATA["resourceRequirements"]["jobSpecific"]}

    assert limits == {"sync": "4Gi", "check_connection": "800Mi"}


def test_one_version_and_one_name_everywhere() -> None:
    name = PROJECT["name"]

    assert DATA["dockerImageTag"] == PROJECT["version"]
    assert f'io.airbyte.version="{PROJECT["version"]}"' in DOCKERFILE
    assert DATA["dockerRepository"] == f"airbyte/{name}"
    assert f'io.airbyte.name="{DATA["dockerRepository"]}"' in DOCKERFILE
    assert DATA["githubIssueLabel"] == name
    assert name in PROJECT["scripts"]
    (command,) = re.findall(r'^ENTRYPOINT \["(.+)"\]$', DOCKERFILE, re.MULTILINE)
    assert Path(command).name == name
    assert f'AIRBYTE_ENTRYPOINT="{command}"' in DOCKERFILE


def test_one_base_image_everywhere() -> None:
    assert f"ARG BASE_IMAGE={DATA['connectorBuildOptions']['baseImage']}\n" in DOCKERFILE


def test_the_image_runs_unbuffered_and_not_as_root() -> None:
    assert "PYTHONUNBUFFERED=1" in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "1000"


def test_everything_the_image_copies_is_let_through() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        name.removeprefix("./") for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }

    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_icon_and_licence_are_there() -> None:
    assert ET.parse(ROOT / DATA["icon"]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert (ROOT / "LICENSE").read_text().startswith(f"{DATA['license']} License")
    assert PROJECT["license"] == {"text": DATA["license"]}


def test_the_changelog_begins_with_what_is_unreleased_and_the_newest_release_is_this_one() -> None:
    first, *released = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert first == "Unreleased"
    assert released[:1] in ([], [PROJECT["version"]])


@each("lock_file", LOCK_FILES)
def test_a_lock_file_pins_by_hash_and_names_no_host(lock_file: str) -> None:
    text = (ROOT / lock_file).read_text()
    pins = re.findall(r"^[a-z0-9][^\n]*", text, re.MULTILINE)

    assert pins
    assert all(re.match(r"[a-z0-9._-]+(\[[a-z0-9,_-]+\])?==\S+ (; .*)?\\$", pin) for pin in pins)
    assert "://" not in text
    assert "--index-url" not in text


def test_the_tools_that_build_the_image_are_locked_as_the_projects_name_them() -> None:
    named = [tomllib.loads((ROOT / file).read_text())["build-system"]["requires"] for file in ("pyproject.toml", "kernel/pyproject.toml")]
    (line,) = re.findall(r"^BUILD_TOOLS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tools = line.replace("'", "").split()
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements-build.lock").read_text(), re.MULTILINE))

    assert {requirement for requires in named for requirement in requires} == set(tools) - {"wheel"}
    assert {re.split(r"[<>=]", tool)[0] for tool in tools} <= locked
    assert "pip install --quiet '" not in (ROOT / "Dockerfile").read_text(), "a package without a hash"


@each("lock_file", ["requirements.lock", "requirements-dev.lock"])
def test_every_declared_dependency_is_locked(lock_file: str) -> None:
    locked = set(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==", (ROOT / lock_file).read_text(), re.MULTILINE))
    # The image is made of requirements.lock, and catalogs of Iceberg are to work in it.
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["iceberg"]]
    if lock_file == "requirements-dev.lock":
        declared += PROJECT["optional-dependencies"]["dev"]

    assert {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in declared} <= locked


def test_every_file_of_the_package_gets_into_the_wheel() -> None:
    package = ROOT / "destination_s3_spark"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["destination_s3_spark"]
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}

    assert shipped == others
    assert package / "spec.json" in shipped
    assert all((path.parent / "__init__.py").exists() for path in package.rglob("*.py")), "setuptools leaves such a directory out"
