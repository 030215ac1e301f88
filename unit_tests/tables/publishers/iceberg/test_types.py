from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema

from destination_s3_spark.schema.airbyte_type import AirbyteType, Field, Scalar
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.schema.field_ids import first_ids, with_ids
from destination_s3_spark.tables.publishers.iceberg.columns import iceberg_schema
from unit_tests.cases import each
from unit_tests.schema.every_type import EVERYWHERE


@each("of", EVERYWHERE.values())
def test_every_type_in_every_place_is_what_pyiceberg_makes_of_arrows(of: AirbyteType) -> None:
    columns = pa.schema([("id", pa.int64()), ("c", arrow_type(of)), ("last", pa.string())])
    fields = [Field("id", "id", Scalar.INTEGER), Field("c", "c", of), Field("last", "last", Scalar.STRING)]
    ids = first_ids(columns)

    assert iceberg_schema(fields, ids).as_struct() == pyarrow_to_schema(with_ids(columns, ids)).as_struct()
