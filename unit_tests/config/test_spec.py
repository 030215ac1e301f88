from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from airbyte_cdk.models import ConnectorSpecificationSerializer
from airbyte_cdk.test.standard_tests._spec_lint import assert_spec_is_valid
from airbyte_cdk.utils.airbyte_secrets_utils import get_secrets

from destination_s3_spark.config import SPEC_FILE
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.settings_model import Applies
from destination_s3_spark.errors import ConfigError
from scripts.specification import AT_REFRESHES, PAGE_FILE, options_page, specification
from unit_tests.cases import each

SPEC: dict[str, Any] = json.loads(SPEC_FILE.read_text())
SCHEMA: dict[str, Any] = SPEC["connectionSpecification"]

DESTINATION_S3_TITLES = [
    ("access_key_id", "Access Key ID"),
    ("secret_access_key", "Secret Access Key"),
    ("role_arn", "Role ARN"),
    ("s3_bucket_name", "S3 Bucket Name"),
    ("s3_bucket_path", "S3 Bucket Path"),
    ("s3_bucket_region", "S3 Bucket Region"),
    ("format", "Output Format"),
    ("s3_endpoint", "S3 Endpoint"),
    ("s3_path_format", "S3 Path Format"),
    ("file_name_pattern", "File Name Pattern"),
]
DESTINATION_S3_REGIONS = [
    "af-south-1",
    "ap-east-1",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
]
DESTINATION_S3_FORMATS = [
    ("CSV", "CSV: Comma-Separated Values", ["flattening", "compression"]),
    ("JSONL", "JSON Lines: Newline-delimited JSON", ["flattening", "compression"]),
    ("Avro", "Avro: Apache Avro", ["compression_codec"]),
    (
        "Parquet",
        "Parquet: Columnar Storage",
        [
            "compression_codec",
            "block_size_mb",
            "max_padding_size_mb",
            "page_size_kb",
            "dictionary_page_size_kb",
            "dictionary_encoding",
        ],
    ),
]
OUR_FORMAT_OPTIONS = {"time_encoding", "extracted_at_encoding"}
MINIMAL = {"s3_bucket_name": "lake", "s3_bucket_path": "p", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside, with its path."""
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from parts(value, f"{path}.{name}".lstrip("."))
    for index, value in enumerate(schema.get("oneOf", [])):
        yield from parts(value, f"{path}[{index}]")
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]")


def test_the_file_is_what_the_models_say() -> None:
    assert specification() == SPEC, "spec.json is out of date: run `make spec`"


def test_the_spec_is_valid_draft_07_for_airbyte() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    spec = ConnectorSpecificationSerializer.load(SPEC)
    assert_spec_is_valid(spec, connector_name="destination-s3-spark")
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert SPEC["supportsIncremental"] is True
    assert SPEC["supported_destination_sync_modes"] == ["overwrite", "append", "append_dedup"]


def test_destination_s3_options_keep_their_names_titles_and_order() -> None:
    ours = SCHEMA["properties"]

    assert list(ours)[:10] == [name for name, _ in DESTINATION_S3_TITLES]
    assert [(name, ours[name]["title"], ours[name]["order"]) for name in list(ours)[:10]] == [
        (name, title, order) for order, (name, title) in enumerate(DESTINATION_S3_TITLES)
    ]
    assert SCHEMA["required"] == ["s3_bucket_name", "s3_bucket_path", "format"]  # its form takes no blank text for a required region
    assert SCHEMA["additionalProperties"] is True


def test_every_region_of_destination_s3_can_be_chosen() -> None:
    region = SCHEMA["properties"]["s3_bucket_region"]

    assert {"", *DESTINATION_S3_REGIONS} <= set(region["enum"])
    assert region["default"] == ""


def test_every_format_of_destination_s3_can_be_chosen() -> None:
    variants = SCHEMA["properties"]["format"]["oneOf"]

    assert [
        (
            variant["properties"]["format_type"]["const"],
            variant["title"],
            [name for name in variant["properties"] if name not in {"format_type", *OUR_FORMAT_OPTIONS}],
        )
        for variant in variants
    ] == DESTINATION_S3_FORMATS
    assert all(variant["additionalProperties"] is True for variant in variants)


def test_every_option_has_a_title_and_a_description() -> None:
    bare = [
        path
        for path, schema in parts(SCHEMA)
        if path and "const" not in schema and not (schema.get("title") and schema.get("description", "").endswith("."))
    ]

    assert bare == []


def test_variants_are_objects_with_a_fixed_required_value() -> None:
    variants = [(path, variant) for path, schema in parts(SCHEMA) for variant in schema.get("oneOf", [])]

    assert len(variants) == 4 + 2 + 2 + 6 + 4
    for path, variant in variants:
        fixed = [name for name, value in variant["properties"].items() if "const" in value]
        assert variant["type"] == "object", path
        assert variant["required"][:1] == fixed, path
        assert variant["required"][1:] == [name for name in ("uri", "database_uri") if name in variant["properties"]], path
        assert variant["properties"][fixed[0]]["enum"] == [variant["properties"][fixed[0]]["const"]], path


def test_only_idioms_the_platform_knows_are_used() -> None:
    text = SPEC_FILE.read_text().replace('"null",\n                    "hash"', "")  # an action for columns, no type

    for idiom in ('"applies"', '"page"', "$ref", "$defs", "anyOf", "allOf", '"null"', "writeOnly", '"discriminator"'):
        assert idiom not in text, idiom


def test_our_groups_are_optional_closed_and_in_a_group_of_their_own() -> None:
    ours = {name: schema for name, schema in SCHEMA["properties"].items() if name not in dict(DESTINATION_S3_TITLES)}

    assert list(ours) == ["tables", "change_log", "publish", "batching", "s3", "spark"]
    assert [schema["order"] for schema in ours.values()] == [10, 11, 12, 13, 14, 15]
    assert all(schema["additionalProperties"] is False for schema in ours.values())
    assert {schema["group"] for schema in ours.values()} == {group["id"] for group in SCHEMA["groups"]}


def test_secrets_are_masked_by_the_cdk() -> None:
    config = {**MINIMAL, "access_key_id": "an id", "secret_access_key": "a secret", "spark": {"authenticate_secret": "of the cluster"}}

    assert sorted(get_secrets(SCHEMA, config)) == ["a secret", "an id", "of the cluster"]


def filled_in(schema: dict[str, Any]) -> dict[str, Any]:
    """What Airbyte's form has when it is opened: every part, the first variant of each, constants and defaults."""
    values: dict[str, Any] = {}
    for name, option in schema["properties"].items():
        if "oneOf" in option:
            values[name] = filled_in(option["oneOf"][0])
        elif "properties" in option:
            values[name] = filled_in(option)
        elif "const" in option or "default" in option:
            values[name] = option.get("const", option.get("default"))
    return values


def test_the_form_can_be_sent_when_the_required_fields_are_filled() -> None:
    form = {**filled_in(SCHEMA), "s3_bucket_name": "lake", "s3_bucket_path": "p"}
    assert set(form) >= {"tables", "publish", "spark"}
    jsonschema.validate(form, SCHEMA)
    assert Config.parse(form) == Config.parse({**MINIMAL, "format": {"format_type": "CSV"}})


def test_the_form_shows_every_option() -> None:
    """It renders no fields of an object without properties, and what it sends lacks them."""
    assert [path for path, schema in parts(SCHEMA) if schema.get("type") == "object" and not {"properties", "oneOf"} & set(schema)] == []


def test_the_platform_stores_and_restores_the_same_secrets() -> None:
    """It stores by the word alone, whatever its value, and by the path without the variant; it restores what is true in the variant."""
    secret: dict[str, set[Any]] = {}
    for path, schema in parts(SCHEMA):
        secret.setdefault(re.sub(r"\[\d+\]", "", path), set()).add(schema.get("airbyte_secret"))
    assert {path: marks for path, marks in secret.items() if marks not in ({None}, {True})} == {}


def test_examples_and_defaults_fit_their_own_schema() -> None:
    for path, schema in parts(SCHEMA):
        for value in (*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())):
            assert jsonschema.Draft7Validator(schema).is_valid(value), path


@each(
    "changes",
    [
        {},
        {"access_key_id": "", "secret_access_key": "", "role_arn": "", "s3_endpoint": "", "s3_path_format": "", "file_name_pattern": ""},
        {"part_size_mb": 5, "format": {"format_type": "CSV", "flattening": "No flattening", "part_size_mb": 5}},
        {"format": {"format_type": "JSONL", "compression": {"compression_type": "GZIP"}}},
        {"format": {"format_type": "Avro", "compression_codec": {"codec": "no compression"}}},
        {"format": {"format_type": "Avro", "compression_codec": {"codec": "zstandard", "compression_level": 3, "include_checksum": True}}},
        {"format": {"format_type": "Parquet", "compression_codec": "ZSTD", "block_size_mb": 1, "dictionary_encoding": False}},
        {"format": {"format_type": "Parquet", "time_encoding": "int64", "extracted_at_encoding": "micros"}},
        {"format": {"format_type": "Parquet", "time_encoding": "local"}},
        {"spark": {"master": "spark://host:7077", "executor_credentials": "own"}},
        {"spark": {"master": "", "driver_memory": ""}, "batching": {"spool_dir": "", "max_spool_gb": 0.1}, "s3": {"kms_key_id": ""}},
    ],
)
def test_what_the_spec_accepts_the_connector_reads(changes: dict[str, Any]) -> None:
    config = {**MINIMAL, **changes}

    jsonschema.validate(config, SCHEMA)
    assert Config.parse(config).s3_bucket_name == "lake"


@each(
    "changes",
    [
        {"s3_bucket_name": "s3://lake"},
        {"s3_bucket_region": "mars"},
        {"format": {"format_type": "XML"}},
        {"format": {"format_type": "Parquet", "page_size_kb": 0}},
        {"format": {"format_type": "Parquet", "time_encoding": "INT96"}},
        {"format": {"format_type": "Parquet", "extracted_at_encoding": "nanos"}},
        {"batching": {"max_batch_age_s": 901}},
        {"batching": {"max_batch_gb": 1}},
        {"spark": {"master": "mesos://host:5050"}},
        {"spark": {"executor_credentials": "both"}},
        {"spark": {"conf": 1}},
        {"s3": {"expected_bucket_owner": "me"}},
    ],
)
def test_what_the_spec_refuses_the_connector_refuses(changes: dict[str, Any]) -> None:
    config = {**MINIMAL, **changes}

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, SCHEMA)
    with pytest.raises(ConfigError):
        Config.parse(config)


def test_the_page_of_options_is_what_the_models_say() -> None:
    assert options_page() == PAGE_FILE.read_text(), "docs/options.md is out of date: run `make spec`"


def test_the_page_has_a_row_for_every_option_with_an_example_and_since_when_it_applies() -> None:
    rows = [line.split(" | ") for line in options_page().splitlines() if line.startswith(("| `", "| [`"))]
    options = {
        re.sub(r"\[\d+\]", "", path) for path, schema in parts(SCHEMA) if "title" in schema and "const" not in schema and path[-1:] != "]"
    }
    groups = {"format", "tables", "change_log", "publish", "batching", "s3", "spark"}

    names = [row[0].split("`")[1] for row in rows]
    paths, parent = set(), ""
    for name in names:
        parent = parent if name.startswith((".", "[")) else name
        paths.add(name if name == parent else f"{parent}{name}")
    assert paths == {path for path in options if path} - groups
    assert [row for row in rows if len(row) != 6 or not all(row) or row[4] in {"`null`", "`{}`", "`[]`"}] == []
    assert {row[5].rstrip(" |") for row in rows} == {*Applies, ""} - {Applies.AT_ONCE}


def test_the_examples_of_tables_on_the_page_are_accepted() -> None:
    rows = re.findall(r"^\| \[?`tables\.(\w+)`.* \| `(.*)` \|[^|]*\|$", options_page(), re.MULTILINE)
    read = {
        name: example if re.fullmatch("[a-z]+", example) and example not in {"true", "false"} else json.loads(example)
        for name, example in rows
    }

    assert {"merge", "partition_by", "decimal_columns"} <= set(read)
    Config.parse({**MINIMAL, "tables": read})


def test_the_form_says_which_options_wait_for_a_refresh() -> None:
    waiting = [path for path, schema in parts(SCHEMA) if schema.get("description", "").endswith(AT_REFRESHES)]

    assert [path.rpartition(".")[2] for path in waiting] == ["time_encoding", "extracted_at_encoding", "partition_by"]
