from __future__ import annotations

import pyarrow as pa
import pytest

from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field, arrow_type, schema_from_text, schema_to_text
from unit_tests.cases import each

UTC_MICROS = pa.timestamp("us", tz="UTC")
MICROS_OF_DAY = pa.time64("us")
OBJECT = Object((Field("é", "e", Scalar.NUMBER), Field("deep", "deep", Array(Array(Scalar.DATE)))))
RECORD = pa.struct([("e", pa.float64()), ("deep", pa.list_(pa.list_(pa.date32())))])


@each(
    ("airbyte_type", "expected"),
    [
        (Scalar.STRING, pa.string()),
        (Scalar.BOOLEAN, pa.bool_()),
        (Scalar.INTEGER, pa.int64()),
        (Scalar.NUMBER, pa.float64()),
        (Scalar.DATE, pa.date32()),
        (Scalar.TIME_WITH_TIMEZONE, MICROS_OF_DAY),
        (Scalar.TIME_WITHOUT_TIMEZONE, MICROS_OF_DAY),
        (Scalar.TIMESTAMP_WITH_TIMEZONE, UTC_MICROS),
        (Scalar.TIMESTAMP_WITHOUT_TIMEZONE, UTC_MICROS),
        (SchemalessObject(), pa.string()),
        (SchemalessArray(), pa.string()),
        (OBJECT, RECORD),
        (
            Union((Scalar.INTEGER, OBJECT, Scalar.TIMESTAMP_WITHOUT_TIMEZONE, SchemalessArray())),
            pa.struct(
                [
                    ("type", pa.string()),
                    ("integer", pa.int64()),
                    ("object", RECORD),
                    ("timestamp_without_timezone", UTC_MICROS),
                    ("array", pa.string()),
                ]
            ),
        ),
        (
            Union((SchemalessObject(), Array(Scalar.STRING))),
            pa.struct([("type", pa.string()), ("object", pa.string()), ("array", pa.list_(pa.string()))]),
        ),
    ],
)
def test_every_type_has_its_arrow_type(airbyte_type: AirbyteType, expected: pa.DataType) -> None:
    assert arrow_type(airbyte_type) == expected


def test_every_scalar_has_an_arrow_type() -> None:
    assert all(isinstance(arrow_type(scalar), pa.DataType) for scalar in Scalar)


def test_a_data_column_is_nullable_and_has_its_safe_name() -> None:
    assert arrow_field(Field("é", "e", Scalar.STRING)) == pa.field("e", pa.string(), nullable=True)


def test_the_raw_table_has_the_meta_columns_and_the_data() -> None:
    assert RAW_SCHEMA.names == ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "_airbyte_data"]
    assert list(RAW_SCHEMA)[:4] == list(META_FIELDS)
    assert RAW_SCHEMA.field("_airbyte_extracted_at").type == pa.timestamp("ms", tz="UTC")


def test_an_arrow_schema_reads_back_from_its_text() -> None:
    schema = pa.schema([*META_FIELDS, arrow_field(Field("o", "o", OBJECT))])
    assert schema_from_text(schema_to_text(schema)).equals(schema, check_metadata=True)


@each("text", ["not base64!", "AAAA", ""])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OSError, pa.ArrowInvalid)):
        schema_from_text(text)
