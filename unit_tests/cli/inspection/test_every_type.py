"""Every Airbyte type as key, column, member and item, through the queries of `inspect` and the page of `report`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal as Exact
from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.events import MergeData, SetDataSchema
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.table import InspectedTable, columns, table_files
from destination_s3_spark.cli.report.figures import table_figures
from destination_s3_spark.cli.report.page import page, render
from destination_s3_spark.schema.airbyte_type import AirbyteType, Array, Decimal, Field, Object, Scalar, type_to_json
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field, arrow_type, schema_to_text
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, encode_key, key_range
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, START, HandMadeChain, add_data
from unit_tests.schema.every_type import EVERY_TYPE

KEYS: Mapping[AirbyteType, tuple[Any, str]] = {
    Scalar.STRING: ("é", "é"),
    Scalar.BOOLEAN: (True, "true"),
    Scalar.INTEGER: (-7, "-7"),
    Scalar.NUMBER: (0.5, "0.5"),
    Scalar.DATE: (date(2026, 1, 2), "2026-01-02"),
    Scalar.TIME_WITH_TIMEZONE: (time(1, 2), "01:02:00Z"),
    Scalar.TIME_WITHOUT_TIMEZONE: (time(1, 2), "01:02:00"),
    Scalar.TIMESTAMP_WITH_TIMEZONE: (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    Scalar.TIMESTAMP_WITHOUT_TIMEZONE: (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00"),
    Decimal(38, 9): (Exact("-0.000000001"), "-0.000000001"),
}
"""A value of each type that a key can have, and its text. Others cannot be part of a key."""


def merged_table(of: AirbyteType) -> InspectedTable:
    """A table with the type in every place, sorted by a key of it where that is possible."""
    kinds: dict[str, AirbyteType] = {"c": of, "item": Array(of), "member": Object((Field("m", "m", of),))}
    fields = [Field(name, name, kind) for name, kind in kinds.items()]
    schema = {
        **SCHEMA.schema,
        "primaryKey": [["c"]],
        "cursor": [],
        "fields": [
            {"id": number, "name": field.name, "source": field.source, "type": type_to_json(field.type), "addedIn": 0}
            for number, field in enumerate(fields)
        ],
        "arrowSchema": schema_to_text(pa.schema([*META_FIELDS, *map(arrow_field, fields)])),
    }
    keys = None
    if of in KEYS:
        spec = KeySpec((fields[0],), None, None, CdcDeletion.HARD)
        (encoded,) = encode_key([pa.array([KEYS[of][0]], arrow_type(of))], [of]).to_pylist()
        keys = key_range(encoded, encoded, spec.fingerprint)
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 5, 7, "upload", keys=keys)
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    chain = HandMadeChain().append(SEED).append(SetDataSchema(schema)).append(add_data(0, 5))
    return chain.append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2).inspected()


@each("of", EVERY_TYPE.values())
def test_files_show_keys_of_the_type(of: AirbyteType) -> None:
    (final,) = (file for file in table_files(merged_table(of)) if file.kind is FileKind.FINAL)
    text = KEYS[of][1] if of in KEYS else None
    assert (final.first_key, final.last_key) == (text, text)


@each("of", EVERY_TYPE.values())
def test_columns_members_and_items_of_the_type_are_named(of: AirbyteType) -> None:
    found = {column.column: column.type for column in columns(merged_table(of))}
    assert found["c"] in found["item"]
    assert found["c"] in found["member"]
    assert views.columns(columns(merged_table(of))).rows


@each("of", EVERY_TYPE.values())
def test_the_page_of_a_table_with_the_type_is_written(of: AirbyteType) -> None:
    figures = table_figures(merged_table(of), OrphanUploads(Bucket(), "lake/"))
    assert "<h2>shop.orders</h2>" in render(page("s3://lake/", [figures], [], START))
