"""Avro's names against destination-s3's own cases (the data of `unit_tests/storage`, where its origin is named)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from destination_s3_spark.schema.names import safe_name, safe_namespace
from unit_tests.cases import each

CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "storage" / "data" / "path_and_name_cases.json").read_text(encoding="utf-8")
)


@each(
    ("source", "name"),
    [*CASES["legacy_avro_identifier"].items(), *((row[0], row[2]) for row in CASES["sanitise_own_computation"]["rows"])],
)
def test_a_name_is_destination_s3s(source: str, name: str) -> None:
    assert safe_name(source) == name


@each(("source", "namespace"), [(source, namespace) for source, namespace in CASES["legacy_avro_namespace"].items() if source])
def test_a_namespace_is_destination_s3s_part_by_part(source: str, namespace: str) -> None:
    assert safe_namespace(source) == namespace


def test_a_stream_without_a_namespace_is_in_the_default_one() -> None:
    assert safe_namespace("") == safe_namespace(None) == "default"
