"""The figures of a stream: which changed values are named, and which are only counted because their names may be data."""

from __future__ import annotations

from destination_s3_spark.decoding.changes import ChangedField
from destination_s3_spark.schema.airbyte_type import Array, Field, Object, Scalar, Union
from destination_s3_spark.sync.story.figures import MOST_CHANGED_FIELDS, ChangedValueCount, declared_changes, declared_paths

ITEM = Object((Field("sku", "sku", Scalar.STRING), Field("a b", "a_b", Scalar.INTEGER)))
FIELDS = (Field("id", "id", Scalar.INTEGER), Field("lines", "lines", Array(ITEM)), Field("either", "either", Union((Scalar.STRING, ITEM))))
ERROR = "DESTINATION_SERIALIZATION_ERROR"


def test_paths_are_those_of_the_changes_of_rows() -> None:
    assert set(declared_paths(FIELDS)) == {
        *("id", "lines", "lines.[]", "lines.[].sku", "lines.[].a b"),
        *("either", "either.sku", "either.a b"),
    }


def test_only_declared_fields_and_codes_of_the_protocol_are_named() -> None:
    counts = {
        ChangedField("id", "NULLED", ERROR): 2,
        ChangedField("lines.[].sku", "TRUNCATED", ERROR): 5,
        ChangedField("jane@example.org", "NULLED", ERROR): 1,
        ChangedField("lines", "NULLED", "as jane@example.org said"): 1,
        ChangedField(None, "NULLED", ERROR): 1,
    }
    assert declared_changes(counts, set(declared_paths(FIELDS))) == (
        ChangedValueCount("lines.[].sku", "TRUNCATED", ERROR, 5),
        ChangedValueCount("id", "NULLED", ERROR, 2),
        ChangedValueCount(None, None, None, 3),
    )


def test_the_fields_with_the_fewest_are_summed_up_if_there_are_too_many() -> None:
    names = [f"f{number}" for number in range(MOST_CHANGED_FIELDS + 2)]
    found = declared_changes({ChangedField(name, "NULLED", ERROR): 10 + number for number, name in enumerate(names)}, set(names))
    assert (len(found), found[0].field, found[-1]) == (MOST_CHANGED_FIELDS + 1, names[-1], ChangedValueCount(None, None, None, 21))
