from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.decoding.changes import ChangedField, changed_values, declared_paths
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, Union
from destination_s3_spark.schema.arrow import META_FIELDS

ITEM = Object((Field("sku", "sku", Scalar.STRING), Field("a b", "a_b", Scalar.INTEGER)))
FIELDS = (Field("id", "id", Scalar.INTEGER), Field("lines", "lines", Array(ITEM)), Field("either", "either", Union((Scalar.STRING, ITEM))))
DECLARED = {"id", "lines", "lines.[]", "lines.[].sku", "lines.[].a b", "either", "either.sku", "either.a b"}
SIZE, RETRIEVAL = "DESTINATION_FIELD_SIZE_LIMITATION", "SOURCE_RETRIEVAL_ERROR"


def rows(*changes: list[tuple[str | None, str | None, str | None]]) -> pa.Table:
    meta = [
        {"sync_id": 1, "changes": [dict(zip(("field", "change", "reason"), change, strict=True)) for change in of_row]}
        for of_row in changes
    ]
    return pa.table({"_airbyte_meta": pa.array(meta, META_FIELDS[2].type)})


def test_paths_are_those_of_the_changes_of_rows() -> None:
    assert set(declared_paths(FIELDS)) == DECLARED


def test_changes_are_counted_by_field_with_any_index() -> None:
    table = rows(
        [("lines.[0].sku", "NULLED", SIZE), ("lines.[17].sku", "NULLED", SIZE), ("id", "TRUNCATED", SIZE)],
        [],
        [("lines.[0].sku", "NULLED", RETRIEVAL), (None, "NULLED", SIZE)],
    )

    assert changed_values(table, DECLARED) == {
        ChangedField("lines.[].sku", "NULLED", SIZE): 2,
        ChangedField("id", "TRUNCATED", SIZE): 1,
        ChangedField("lines.[].sku", "NULLED", RETRIEVAL): 1,
        ChangedField(None, "NULLED", SIZE): 1,
    }


def test_only_declared_paths_and_words_of_the_protocol_are_named() -> None:
    said = "as jane@example.org said"
    table = rows(
        [(said, "NULLED", SIZE), (f"id.{said}", "NULLED", SIZE), (f"{said}.[3].id", "NULLED", SIZE), ("[3]", "NULLED", SIZE)],
        [("id", said, SIZE), ("id", "NULLED", said), ("id", "nulled", SIZE), ("id", None, None), (said, said, said)],
    )

    assert changed_values(table, DECLARED) == {
        ChangedField(None, "NULLED", SIZE): 4,
        ChangedField("id", None, SIZE): 2,
        ChangedField("id", "NULLED", None): 1,
        ChangedField("id", None, None): 1,
        ChangedField(None, None, None): 1,
    }


def test_a_slice_of_rows_has_its_own_changes_only() -> None:
    table = rows([("id", "NULLED", SIZE)], [("lines", "NULLED", SIZE)], [])

    assert changed_values(table.slice(1, 1).to_batches()[0], DECLARED) == {ChangedField("lines", "NULLED", SIZE): 1}
    assert changed_values(table.slice(2), DECLARED) == {}
