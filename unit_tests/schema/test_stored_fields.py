from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.schema.airbyte_type import AirbyteType
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field, arrow_type
from destination_s3_spark.schema.encodings import Encodings, TimeEncoding, stored_schema
from destination_s3_spark.schema.table_schema import OWN_FIELDS, TableField, TableSchema, stored_fields
from unit_tests.cases import each
from unit_tests.schema.every_type import EVERY_TYPE, places


def test_the_own_columns_are_those_of_every_table() -> None:
    assert [field.name for field in OWN_FIELDS] == [column.name for column in META_FIELDS]
    for field, column in zip(OWN_FIELDS, META_FIELDS, strict=True):
        if not pa.types.is_timestamp(column.type):  # whose unit is an encoding
            assert arrow_type(field.type) == column.type


@each("time", TimeEncoding)
@each("of", EVERY_TYPE.values())
def test_they_are_the_columns_of_the_files(of: AirbyteType, time: TimeEncoding) -> None:
    columns = (TableField(number, name, name, kind, 0) for number, (name, kind) in enumerate(places(of).items()))
    schema = TableSchema(0, tuple(columns))
    encodings = Encodings(time=time)

    found = pa.schema([arrow_field(field) for field in stored_fields(schema, encodings)[len(OWN_FIELDS) :]])

    assert found == pa.schema(list(stored_schema(schema.arrow, encodings))[len(META_FIELDS) :])
