from __future__ import annotations

import pyarrow as pa

from destination_s3_spark.decoding.changes import ChangedField, changed_values
from destination_s3_spark.schema.arrow import META_FIELDS


def rows(*changes: list[tuple[str | None, str, str]]) -> pa.Table:
    meta = [
        {"sync_id": 1, "changes": [dict(zip(("field", "change", "reason"), change, strict=True)) for change in of_row]}
        for of_row in changes
    ]
    return pa.table({"_airbyte_meta": pa.array(meta, META_FIELDS[2].type)})


def test_changes_are_counted_by_field_with_any_index() -> None:
    table = rows(
        [("lines.[0].n", "NULLED", "A"), ("lines.[17].n", "NULLED", "A"), ("id", "TRUNCATED", "B")],
        [],
        [("lines.[0].n", "NULLED", "B"), (None, "NULLED", "A"), ("[3]", "NULLED", "A")],
    )

    assert changed_values(table) == {
        ChangedField("lines.[].n", "NULLED", "A"): 2,
        ChangedField("id", "TRUNCATED", "B"): 1,
        ChangedField("lines.[].n", "NULLED", "B"): 1,
        ChangedField(None, "NULLED", "A"): 1,
        ChangedField("[3]", "NULLED", "A"): 1,
    }


def test_a_slice_of_rows_has_its_own_changes_only() -> None:
    table = rows([("a", "NULLED", "A")], [("b", "NULLED", "A")], [])

    assert changed_values(table.slice(1, 1).to_batches()[0]) == {ChangedField("b", "NULLED", "A"): 1}
    assert changed_values(table.slice(2)) == {}
