from __future__ import annotations

import io
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from airbyte_connector_models.metadata.v0.connector_registry_v0 import (
    ConnectorRegistryV0,
    ConnectorRegistryV0ConnectorRegistryDestinationDefinition,
)

from destination_s3_spark.cli import operator_command
from destination_s3_spark.cli.registry_command import registry_entry
from scripts.specification import specification
from unit_tests.cases import each

METADATA: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "metadata.yaml").read_text())["data"]
ID = METADATA["definitionId"]

OTHER = b"""{"destinationDefinitionId": "0eeee7fb-518f-4045-bacc-9619e31c43ea", "name": "Queue \\u00e9",  "dockerRepository": "a/queue",
  "dockerImageTag": "1.50.0", "documentationUrl": "https://docs.airbyte.com/queue", "spec": {"maximum": 1.50e3}}"""
SOURCE = b"""{"sourceDefinitionId": "253487c0-2246-43ba-a21f-5116b20a2c50", "name": "Mail",
  "dockerRepository": "airbyte/source-mail", "dockerImageTag": "0.2.1", "documentationUrl": "https://docs.airbyte.com/mail",
  "spec": {"connectionSpecification": {"maximum": 18446744073709551616123}}}"""
OLD = b'{"destinationDefinitionId": "%s", "name": "Ours", "dockerImageTag": "0.0.1"}'


def registry(*destinations: bytes) -> bytes:
    return b'{"sources":[%b],\n "version" : 1.0, "destinations":[%b]}' % (SOURCE, b",".join(destinations))


def ours(definition: str = ID) -> bytes:
    return OLD % definition.encode()


def merge(base: bytes, directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What the command prints for this base: the registry, and what it says about it."""
    path = directory / "base.json"
    path.write_bytes(base)
    assert operator_command(["registry", "--base", str(path)]) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def ids(merged: str) -> list[str]:
    return [one["destinationDefinitionId"] for one in json.loads(merged)["destinations"]]


def test_airbyte_accepts_the_entry_and_reads_from_it_what_the_platform_needs() -> None:
    read = ConnectorRegistryV0ConnectorRegistryDestinationDefinition.model_validate(registry_entry())

    assert read.supports_refreshes is True
    assert (read.supports_file_transfer, read.supports_data_activation) == (False, False)
    assert (str(read.destination_definition_id), read.custom, read.public, read.tombstone) == (ID, False, True, False)
    assert (f"{read.docker_repository}:{read.docker_image_tag}") == f"airbyte/destination-s3-spark:{version('destination-s3-spark')}"
    assert (read.language, read.icon) == ("python", "icon.svg")
    assert read.package_info is not None
    assert read.package_info.cdk_version == f"python:{version('airbyte-cdk')}"
    assert read.spec == specification()
    assert read.resource_requirements is not None
    requirements = read.resource_requirements.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert requirements == METADATA["resourceRequirements"]


def test_every_field_of_the_entry_is_one_that_airbyte_publishes_or_one_of_the_metadata() -> None:
    fields = ConnectorRegistryV0ConnectorRegistryDestinationDefinition.model_fields
    published = {field.alias or name for name, field in fields.items()}

    assert set(registry_entry()) - published <= set(METADATA) - {"definitionId", "connectorType", "connectorSubtype", "registryOverrides"}


def test_without_a_base_the_entry_alone_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["registry"]) == 0
    assert json.loads(capsys.readouterr().out) == registry_entry()


def test_a_registry_gets_the_entry_and_keeps_every_byte_of_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged, said = merge(registry(OTHER), tmp_path, capsys)

    assert ids(merged) == ["0eeee7fb-518f-4045-bacc-9619e31c43ea", ID]
    assert all(kept.decode() in merged for kept in (OTHER, b"[%b]" % SOURCE, b'"version": 1.0'))
    read = ConnectorRegistryV0.model_validate_json(merged)
    assert [one.supports_refreshes for one in read.destinations] == [False, True]
    assert said == f"airbyte/destination-s3-spark:{version('destination-s3-spark')} is new in a registry of 1 destination\n"


@each("definition", [ID, ID.upper()])
def test_an_entry_of_ours_is_replaced_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], definition: str) -> None:
    merged, said = merge(registry(ours(definition), OTHER), tmp_path, capsys)

    assert json.loads(merged)["destinations"] == [registry_entry(), json.loads(OTHER)]
    assert "replaces 0.0.1 in a registry of 2 destinations" in said


def test_two_entries_of_ours_become_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ids(merge(registry(OTHER, ours(), OTHER, ours()), tmp_path, capsys)[0])[1] == ID
    assert ids(merge(registry(OTHER, ours(), OTHER, ours()), tmp_path, capsys)[0]).count(ID) == 1


def test_merging_again_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once, _ = merge(registry(OTHER), tmp_path, capsys)

    assert merge(once.encode(), tmp_path, capsys)[0] == once


def test_the_base_may_come_on_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(registry(OTHER))))

    assert operator_command(["registry", "--base", "-"]) == 0
    assert len(ids(capsys.readouterr().out)) == 2


@each(
    ("base", "problem"),
    [
        (b"", "it is empty, perhaps because the output is written over it"),
        (b"<html>", "it is not a JSON object"),
        (b"[]", "it is not a JSON object"),
        (b"[" * 100_000, "it is not a JSON object"),
        (registry(OTHER)[:-1], "it is not a JSON object"),
        (ours(), "it has no list 'destinations'"),
        (b'{"destinations": {}, "sources": []}', "it has no list 'destinations'"),
        (b'{"destinations": [], "sources": null}', "it has no list 'sources'"),
        (registry(OTHER, b'{"sourceDefinitionId": "a"}'), "destination number 2 has no destinationDefinitionId"),
        (registry(b"1"), "destination number 1 has no destinationDefinitionId"),
    ],
    ids=lambda value: value[:80],
)
def test_what_is_no_registry_is_refused_and_nothing_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], base: bytes, problem: str
) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(base)

    assert operator_command(["registry", "--base", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{path} is no connector registry: {problem}. Pass a copy of Airbyte's oss_registry.json with --base.\n"


@each("place", ["entry", "source", "name", "beside"])
def test_a_base_that_is_not_utf8_is_an_error(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = OTHER.replace(b"a/queue", b"a/\xff") if place == "entry" else OTHER
    source = SOURCE.replace(b"Mail", b"\xc3(") if place == "source" else SOURCE
    base = b'{"sources": [%b], "destinations": [%b], "more%b": "%b"}' % (
        source,
        entry,
        b"\x80" if place == "name" else b"",
        b"\xed\xa0\x80" if place == "beside" else b"",
    )
    path = tmp_path / "base.json"
    path.write_bytes(base)
    assert operator_command(["registry", "--base", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{path} is no connector registry: it is not UTF-8. Pass a copy of Airbyte's oss_registry.json with --base.\n"


def test_a_tag_makes_no_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = ours().replace(b"0.0.1", b"0.0.1\\nall is well\\u2028\\u001b[2J")
    _, said = merge(registry(entry), tmp_path, capsys)
    assert said.count("\n") == 1
    assert "replaces 0.0.1␤all is well�" in said


def test_a_base_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["registry", "--base", str(tmp_path / "none.json")]) == 1
    assert re.search(r"The registry .*none\.json cannot be read", capsys.readouterr().err)


@each(
    ("image", "repository", "tag"),
    [
        (
            "registry.example.com:5000/data/destination-s3-spark:0.2.0-mine.1",
            "registry.example.com:5000/data/destination-s3-spark",
            "0.2.0-mine.1",
        ),
        ("destination-s3-spark:dev", "destination-s3-spark", "dev"),
    ],
)
def test_the_entry_names_another_image(image: str, repository: str, tag: str) -> None:
    assert registry_entry(image) == {**registry_entry(), "dockerRepository": repository, "dockerImageTag": tag}


@each(
    ("image", "words"),
    [
        ("registry.example.com:5000/destination-s3-spark", "takes a name and a tag"),
        ("destination-s3-spark", "takes a name and a tag"),
        (":0.1.0", "takes a name and a tag"),
        ("destination-s3-spark@sha256:0123", "takes a name and a tag"),
        ("destination-s3-spark:latest", "versions as tags"),
        ("destination-s3-spark:0.1", "versions as tags"),
    ],
)
def test_an_image_that_airbyte_would_leave_out_is_refused(image: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_command(["registry", "--image", image]) == 1
    printed = capsys.readouterr()
    assert (printed.out, words in printed.err) == ("", True)
