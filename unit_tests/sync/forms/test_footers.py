"""What Parquet's footer says of the files a sync wrote, and what the chain says of their columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unit_tests.lake.table_readers import META_COLUMNS
from unit_tests.sync.forms.fixtures import Landed
from unit_tests.sync.forms.forms import Form, avro_schema
from unit_tests.sync.forms.landing import OWN, TYPES
from unit_tests.sync.forms.own_cases import NAMES_GIVEN, TYPE_TABLES

TEXT, INT, BOOL, DOUBLE = ("BYTE_ARRAY", "String"), ("INT64", "None"), ("BOOLEAN", "None"), ("DOUBLE", "None")
DATE = ("INT32", "Date")
TIME = ("INT64", "Time(isAdjustedToUTC=true, timeUnit=microseconds)")
META = {
    "_airbyte_raw_id": TEXT,
    "_airbyte_extracted_at": ("INT64", "Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds)"),
    "_airbyte_meta.sync_id": INT,
    "_airbyte_meta.changes.list.element.field": TEXT,
    "_airbyte_meta.changes.list.element.change": TEXT,
    "_airbyte_meta.changes.list.element.reason": TEXT,
    "_airbyte_generation_id": INT,
}
TIMESTAMP = ("INT64", "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds)")
EXPECTED = {
    (TYPES, "plain"): {
        "array_without_schema": TEXT, "boolean": BOOL, "date": DATE, "integer": INT, "number": DOUBLE, "object_without_schema": TEXT,
        "string": TEXT, "timestamp_with_timezone": TIMESTAMP, "timestamp_without_timezone": TIMESTAMP,
    },
    (TYPES, "clocks"): {"time_with_timezone": TIME, "time_without_timezone": TIME},
    (TYPES, "nested"): {
        "array.list.element": INT, "array_of_objects.list.element.sku": TEXT, "object.number": INT, "object.street": TEXT,
    },
    (TYPES, "unions"): {"union.type": TEXT, "union.integer": INT, "union.string": TEXT},
    ("testUnions", "problematic_types"): {
        "combined_type.type": TEXT, "combined_type.string": TEXT, "combined_type.integer": INT, "id": INT,
        "union_of_objects_with_properties_contradicting.id.type": TEXT,
        "union_of_objects_with_properties_contradicting.id.integer": INT,
        "union_of_objects_with_properties_contradicting.id.string": TEXT,
        "union_of_objects_with_properties_contradicting.name": TEXT,
        "union_of_objects_with_properties_identical.id": INT, "union_of_objects_with_properties_identical.name": TEXT,
        "union_of_objects_with_properties_nonoverlapping.description": TEXT,
        "union_of_objects_with_properties_nonoverlapping.flagged": BOOL, "union_of_objects_with_properties_nonoverlapping.id": INT,
        "union_of_objects_with_properties_nonoverlapping.name": TEXT,
        "union_of_objects_with_properties_overlapping.flagged": BOOL, "union_of_objects_with_properties_overlapping.id": INT,
        "union_of_objects_with_properties_overlapping.name": TEXT, "union_of_string_and_schemaless_type.type": TEXT,
        "union_of_string_and_schemaless_type.object": TEXT, "union_of_string_and_schemaless_type.integer": INT,
    },
}  # fmt: skip
"""Physical and logical type of every column, without destination-s3's own (`META`)."""


def columns(path: object) -> dict[str, tuple[str, str]]:
    schema = pq.ParquetFile(path).schema
    found = (schema.column(index) for index in range(len(schema)))
    return {column.path: (column.physical_type, _without_history(str(column.logical_type))) for column in found}


def _without_history(logical_type: str) -> str:
    return logical_type.replace(", is_from_converted_type=false, force_set_converted_type=false", "")


@pytest.mark.parametrize("stream", EXPECTED, ids=lambda stream: stream[1])
def test_the_footer_has_the_types_of_the_migration_guide(landed: Landed, stream: tuple[str, str]) -> None:
    (path,) = landed(Form.PARQUET).files(stream)
    assert columns(path) == META | EXPECTED[stream]


def test_the_footer_has_the_configured_codec_and_the_schema_of_the_chain(landed: Landed) -> None:
    landing = landed(Form.PARQUET)
    for stream in EXPECTED:
        (path,) = landing.files(stream)
        metadata = pq.read_metadata(path)
        assert {metadata.row_group(0).column(index).compression for index in range(metadata.num_columns)} == {"SNAPPY"}
        assert list(landing.chains[stream].schemas.values()) == [pq.read_schema(path)]


def test_times_as_integers_are_a_matter_of_the_file_not_of_the_table(landed: Landed) -> None:
    landing = landed(Form.PARQUET_INT64)
    for stream in ((OWN, "times"), (OWN, "nested"), (TYPES, "clocks")):
        (schema,) = landing.chains[stream].schemas.values()
        (path,) = landing.files(stream)
        stored = pq.read_schema(path)
        assert "time64" in str(schema)
        assert "time64" not in str(stored)
        assert pq.read_table(path).cast(schema).schema == schema
    (path,) = landing.files((TYPES, "clocks"))
    assert columns(path) == META | dict.fromkeys(TYPE_TABLES["clocks"], INT)


def test_local_times_and_microseconds_are_in_the_footer(landed: Landed) -> None:
    landing = landed(Form.PARQUET_LOCAL)
    local = ("INT64", "Time(isAdjustedToUTC=false, timeUnit=microseconds)")
    (path,) = landing.files((TYPES, "clocks"))
    assert columns(path) == META | {"_airbyte_extracted_at": TIMESTAMP} | dict.fromkeys(TYPE_TABLES["clocks"], local)
    (path,) = landing.files((TYPES, "plain"))
    assert columns(path) == META | {"_airbyte_extracted_at": TIMESTAMP} | EXPECTED[TYPES, "plain"]
    assert list(landing.chains[TYPES, "plain"].schemas.values()) == [pq.read_schema(path)]


@pytest.mark.parametrize("form", [Form.PARQUET, Form.AVRO], ids=lambda form: form.value)
def test_names_are_safe_and_distinct_and_the_chain_keeps_the_originals(landed: Landed, form: Form) -> None:
    landing = landed(form)
    (path,) = landing.files((OWN, "names"))
    names = pq.read_schema(path).names if form is Form.PARQUET else [member["name"] for member in avro_schema(path)["fields"]]
    assert names[:4] == list(META_COLUMNS)
    assert len({name.casefold() for name in names}) == len(names)
    assert all(name.isidentifier() and name.isascii() for name in names)
    (event,) = landing.chains[(OWN, "names")].events("SetDataSchema")
    fields = {field["source"]: field for field in event["fields"]}
    assert {source: field["name"] for source, field in fields.items()} == {**NAMES_GIVEN, "inner": "inner"}
    assert [field["name"] for field in event["fields"]] == names[4:]
    members = {member["source"]: member["name"] for member in fields["inner"]["type"]["fields"]}
    assert members == {"x y": "x_y_1", "x_y": "x_y", "_airbyte_meta": "_airbyte_meta"}


def test_avro_files_have_the_types_of_the_migration_guide(landed: Landed) -> None:
    landing = landed(Form.AVRO)
    micros = [["null", {"type": "long", "logicalType": f"{name}-micros"}] for name in ("time", "timestamp")]
    text = ["null", "string"]
    expected = {
        "array_without_schema": text, "boolean": ["null", "boolean"], "date": ["null", {"type": "int", "logicalType": "date"}],
        "integer": ["null", "long"], "number": ["null", "double"], "object_without_schema": text, "string": text,
        "timestamp_with_timezone": micros[1], "timestamp_without_timezone": micros[1], "time_with_timezone": micros[0],
        "time_without_timezone": micros[0], "array": ["null", {"type": "array", "items": ["null", "long"]}],
        "union": ["null", "long", "string"],
    }  # fmt: skip
    found = {}
    for table in TYPE_TABLES:
        (path,) = landing.files((TYPES, table))
        found.update({member["name"]: member["type"] for member in avro_schema(path)["fields"]})
    assert {name: found[name] for name in expected} == expected


def test_the_arrow_types_of_a_union_are_a_typed_disjoint_record(landed: Landed) -> None:
    (path,) = landed(Form.PARQUET).files((TYPES, "unions"))
    assert pq.read_schema(path).field("union").type == pa.struct([("type", pa.string()), ("integer", pa.int64()), ("string", pa.string())])
