"""Unions below arrays below objects below unions, in the files of both typed formats."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.formats.avro import AvroOptions
from destination_s3_spark.formats.parquet import ParquetOptions

TEXT, INTEGER, NUMBER, ANY_OBJECT, ANY_ARRAY = ({"type": name} for name in ("string", "integer", "number", "object", "array"))


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def array(*items: Any) -> dict[str, Any]:
    return {"type": "array", "items": list(items)}


def one_of(*options: Any) -> dict[str, Any]:
    return {"oneOf": list(options)}


PIECE = {"weight": INTEGER, "tag": TEXT}
MORE = one_of(array(TEXT), TEXT, of(count=INTEGER, rest=ANY_ARRAY))
PROPERTIES = {
    "shape": of(centre=of(label=TEXT, parts=one_of(array(of(**PIECE)), of(**PIECE, more=MORE)))),
    "either": one_of(ANY_OBJECT, NUMBER),
    "rows": array(INTEGER, ANY_OBJECT),
    "typed_rows": array(one_of(of(at={"type": "string", "format": "date-time"}), INTEGER)),
}
PARTS = [
    [{"weight": 1, "tag": "a"}, None],
    {"weight": 2, "tag": "b", "more": ["x", None]},
    {"weight": "3", "more": "text"},
    {"more": {"count": 4, "rest": [1, {"y": "z z"}], "undeclared": 1}},
    "neither",
]
RECORDS = [json.dumps({"shape": {"centre": {"label": str(number), "parts": parts}}}) for number, parts in enumerate(PARTS)]
MIXED = json.dumps(
    {"either": {"a": {"b": [1]}}, "rows": [1, {"c": 2}, None], "typed_rows": [{"at": "1970-01-01T00:00:01Z"}, 5, {"at": "no"}]}
)
NUMBERS = json.dumps({"either": 3.5, "rows": [], "typed_rows": None})


def test_avro_holds_the_value_of_the_option_that_takes_it(landing: Callable[..., Any]) -> None:
    rows = list(fastavro.reader(io.BytesIO(landing(AvroOptions(), PROPERTIES).file([*RECORDS, MIXED, NUMBERS]))))
    assert [row["shape"]["centre"]["parts"] for row in rows[: len(PARTS)]] == [
        [{"weight": 1, "tag": "a"}, None],
        {"weight": 2, "tag": "b", "more": ["x", None]},
        {"weight": 3, "tag": None, "more": "text"},
        {"weight": None, "tag": None, "more": {"count": 4, "rest": '[1,{"y":"z z"}]'}},
        None,
    ]
    assert [change["field"] for change in rows[4]["_airbyte_meta"]["changes"]] == ["shape.centre.parts"]
    mixed, numbers = rows[-2:]
    assert (mixed["either"], mixed["rows"], numbers["either"], numbers["rows"]) == ('{"a":{"b":[1]}}', [1, '{"c":2}', None], 3.5, [])
    assert [item if isinstance(item, int) else item["at"] and item["at"].timestamp() for item in mixed["typed_rows"]] == [1.0, 5, None]
    assert [change["field"] for change in mixed["_airbyte_meta"]["changes"]] == ["typed_rows.[2].at"]


def test_parquet_names_the_option_that_takes_a_value(landing: Callable[..., Any]) -> None:
    table = pq.read_table(io.BytesIO(landing(ParquetOptions(), PROPERTIES).file([*RECORDS, MIXED, NUMBERS])))
    parts = [row["centre"]["parts"] for row in table["shape"].to_pylist()[: len(PARTS)]]
    assert [found and found["type"] for found in parts] == ["array", "object", "object", "object", None]
    assert parts[0]["array"] == [{"tag": "a", "weight": 1}, None]
    assert parts[0]["object"] is None
    more = [found["object"]["more"] for found in parts[1:4]]
    assert more == [
        {"type": "array", "array": ["x", None], "string": None, "object": None},
        {"type": "string", "array": None, "string": "text", "object": None},
        {"type": "object", "array": None, "string": None, "object": {"count": 4, "rest": '[1,{"y":"z z"}]'}},
    ]
    more_type = pa.struct(
        [
            ("type", pa.string()),
            ("array", pa.list_(pa.string())),
            ("string", pa.string()),
            ("object", pa.struct([("count", pa.int64()), ("rest", pa.string())])),
        ]
    )
    piece = [("tag", pa.string()), ("weight", pa.int64())]
    of_parts = table.schema.field("shape").type.field("centre").type.field("parts").type
    assert of_parts.field("array").type == pa.list_(pa.struct(piece))
    assert of_parts.field("object").type == pa.struct([("more", more_type), *piece])
    assert table["either"].to_pylist()[-2:] == [
        {"type": "object", "object": '{"a":{"b":[1]}}', "number": None},
        {"type": "number", "object": None, "number": 3.5},
    ]
