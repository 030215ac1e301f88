"""Decimals through whole syncs: exact values, keys and cursors in the order of numbers, and columns that become decimals or cease to be."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, schema_of, state, stream

PARQUET, AVRO = {"format_type": "Parquet"}, {"format_type": "Avro", "compression_codec": {"codec": "no compression"}}
JSONL = {"format_type": "JSONL", "compression": {"compression_type": "No Compression"}}
TRUNCATED = {"field": "price", "change": "TRUNCATED", "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}
TOO_LARGE = {**TRUNCATED, "change": "NULLED"}
NO_NUMBER = {**TOO_LARGE, "reason": "DESTINATION_SERIALIZATION_ERROR"}
DOUBLE: dict[str, Any] = {"tables": {}}


def prices(precision: int, scale: int, **tables: Any) -> dict[str, Any]:
    """A configuration by which every `price` and `seen` is a decimal."""
    named = [{"stream": "items", "column": column, "precision": precision, "scale": scale} for column in ("price", "seen")]
    return {"tables": {"decimal_columns": named, **tables}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options=prices(12, 2))


def items(
    mode: str = "append", key: str = "id", cursor: str | None = None, price: Mapping[str, Any] | None = None, *, cdc: bool = False
) -> JsonObject:
    number = {"type": "number"}
    properties = {"id": {"type": "integer"}, "price": price or number, "seen": number, "note": {"type": "string"}}
    if cdc:
        properties["_ab_cdc_deleted_at"] = {"type": "string"}
    return catalog(stream("items", schema=schema_of(properties), mode=mode, key=key, cursor=cursor or "", sync_id=1))


def sync(lake: Lake, sent: Iterable[str], catalog: JsonObject | None = None, at: int = 1) -> None:
    """Sync records, given as the members of their data."""
    records = (f'{{"type":"RECORD","record":{{"stream":"items","emitted_at":{at},"data":{{{data}}}}}}}\n'.encode() for data in sent)
    lake.sync(catalog or items(), [*records, state(at, "items"), complete("items")])


def rows(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for body in lake.files(".parquet", "items"):
        found += pq.read_table(pa.BufferReader(body)).to_pylist()
    for body in lake.files(".avro", "items"):
        found += fastavro.reader(io.BytesIO(body))
    for body in lake.files(".jsonl", "items"):
        found += [{**one, **one["_airbyte_data"]} for one in (json.loads(text, parse_float=Decimal) for text in body.splitlines())]
    return found


def notes(lake: Lake) -> list[str]:
    return sorted(row["note"] for row in rows(lake))


def columns(lake: Lake) -> dict[str, str]:
    """The data columns over all Parquet files, with their types."""
    schemas = (pq.read_schema(pa.BufferReader(body)) for body in lake.files(".parquet", "items"))
    return {field.name: str(field.type) for schema in schemas for field in schema if not field.name.startswith("_airbyte_")}


@pytest.mark.parametrize("options", [PARQUET, AVRO], ids=lambda options: options["format_type"])
def test_values_are_exact_and_what_they_lose_is_recorded(lake: Lake, options: dict[str, Any]) -> None:
    lake.format = options
    texts = [
        "0.1",
        "1e-2",
        "1234567890.12",
        '"12.50"',
        "-0.0",
        "null",
        "1.005",
        "-1.005",
        "9999999999.994",
        "9999999999.995",
        "1e10",
        "true",
    ]
    sync(lake, [f'"id":{number},"price":{text}' for number, text in enumerate(texts)])
    found = {row["id"]: row for row in rows(lake)}
    values = ["0.10", "0.01", "1234567890.12", "12.50", "0.00", None, "1.01", "-1.01", "9999999999.99", None, None, None]
    assert [repr(found[number]["price"]) for number in range(12)] == [repr(value and Decimal(value)) for value in values]
    assert [found[number]["_airbyte_meta"]["changes"] for number in range(12)] == [
        *([] for _ in range(6)),
        *([TRUNCATED] for _ in range(3)),
        *([change] for change in (TOO_LARGE, TOO_LARGE, NO_NUMBER)),
    ]


def test_without_the_option_a_number_is_a_double(lake: Lake) -> None:
    lake.options = DOUBLE
    sync(lake, ['"id":1,"price":0.1'], items(price={"type": "number", "multipleOf": 0.01, "airbyte_type": "big_number"}))
    assert columns(lake)["price"] == "double"


def test_declared_numbers_are_decimals(lake: Lake) -> None:
    lake.options = {"tables": {"declared_decimals": True}}
    sync(lake, ['"id":1,"price":"12345678901234567890.123456789"'], items(price={"type": "string", "airbyte_type": "big_number"}))
    assert columns(lake) == {"id": "int64", "note": "string", "price": "decimal128(38, 9)", "seen": "double"}
    assert [row["price"] for row in rows(lake)] == [Decimal("12345678901234567890.123456789")]


def test_text_stays_as_it_was_sent(lake: Lake) -> None:
    lake.format = JSONL
    sync(lake, ['"id":1,"price":1.50500000000000000001', '"id":2,"price":1e99'])
    assert [str(row["price"]) for row in rows(lake)] == ["1.50500000000000000001", "1E+99"]


@pytest.mark.parametrize("options", [PARQUET, AVRO, JSONL], ids=lambda options: options["format_type"])
@pytest.mark.parametrize("raw_tables", [True, False])
def test_keys_are_numbers(lake: Lake, options: dict[str, Any], raw_tables: bool) -> None:
    lake.format, lake.options = options, prices(12, 2, raw_tables=raw_tables)
    catalog = items("append_dedup", key="price")
    sent = ["-10", "-9.5", "-0.01", "0", "0.1", "9", "10.25", "9007199254.01", "9007199254.02"]
    sync(lake, [f'"price":{number},"note":"{number}"' for number in sent], catalog)
    if options is not JSONL:
        assert [str(row["note"]) for row in rows(lake)] == sent, "rows are in the order of the numbers"
    sync(lake, ['"price":1e-1,"note":"again"', '"price":"0.10","note":"once more"', '"price":-9.50,"note":"negative"'], catalog, at=2)
    assert notes(lake) == sorted({*sent, "once more", "negative"} - {"0.1", "-9.5"})
    sync(lake, ['"price":0.101,"note":"rounded"', '"price":0.102,"note":"also"', '"price":1e15,"note":"large"'], catalog, at=3)
    assert notes(lake) == sorted({*sent, "once more", "negative", "rounded", "also", "large"} - {"0.1", "-9.5"})
    sync(lake, ['"price":0.102,"note":"also again"', '"price":1e15,"note":"large again"'], catalog, at=4)
    assert notes(lake) == sorted({*sent, "once more", "negative", "rounded", "also again", "large again"} - {"0.1", "-9.5"})


@pytest.mark.parametrize("options", [PARQUET, AVRO, JSONL], ids=lambda options: options["format_type"])
def test_a_cursor_is_compared_as_a_number(lake: Lake, options: dict[str, Any]) -> None:
    lake.format = options
    catalog = items("append_dedup", cursor="seen")
    sync(lake, ['"id":1,"seen":10.5,"note":"new"', '"id":1,"seen":9.75,"note":"old"', '"id":2,"seen":-1,"note":"b"'], catalog)
    sync(lake, ['"id":1,"seen":9.99,"note":"older"', '"id":2,"seen":-0.5,"note":"c"', '"id":3,"note":"no cursor"'], catalog, at=2)
    assert notes(lake) == ["c", "new", "no cursor"]
    sync(lake, ['"id":1,"seen":10.51,"note":"newest"', '"id":3,"seen":-9999999999.99,"note":"least"'], catalog, at=3)
    assert notes(lake) == ["c", "least", "newest"]


def test_a_column_that_becomes_a_decimal_is_recovered_and_found_again(lake: Lake) -> None:
    lake.options = DOUBLE
    sync(lake, ['"id":1,"price":0.1'])
    lake.options = prices(10, 2)
    sync(lake, ['"id":2,"price":0.1'], at=2)
    lake.options = prices(12, 2)
    sync(lake, ['"id":3,"price":0.1'], at=3)
    lake.options = DOUBLE
    sync(lake, ['"id":4,"price":0.2'], at=4)
    lake.options = prices(10, 2)
    sync(lake, ['"id":5,"price":0.2'], at=5)
    found = {name: kind for name, kind in columns(lake).items() if name.startswith("price")}
    assert sorted(found.values()) == ["decimal128(10, 2)", "decimal128(12, 2)", "double"]
    by_type = {kind: name for name, kind in found.items()}
    base, ten, twelve = (by_type[kind] for kind in ("double", "decimal128(10, 2)", "decimal128(12, 2)"))
    assert base == "price"
    values = {row["id"]: {name: row.get(name) for name in found if row.get(name) is not None} for row in rows(lake)}
    assert values == {1: {base: 0.1}, 2: {ten: Decimal("0.10")}, 3: {twelve: Decimal("0.10")}, 4: {base: 0.2}, 5: {ten: Decimal("0.20")}}


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_rewritten_column_is_typed_again_from_the_records(lake: Lake, mode: str) -> None:
    lake.options = {"tables": {"schema_change": "rewrite"}}
    sync(lake, ['"id":1,"price":123456789012345678.05', '"id":2,"price":1.005', '"id":3,"price":1e30'], items(mode))
    for number, digits in enumerate((20, 22), start=2):
        lake.options = prices(digits, 2, schema_change="rewrite")
        sync(lake, [f'"id":{number + 2},"price":0.5'], items(mode), at=number)
        found = {row["id"]: row for row in rows(lake)}
        assert columns(lake)["price"] == f"decimal128({digits}, 2)"
        values = [Decimal("123456789012345678.05"), Decimal("1.01"), None, Decimal("0.5")]
        assert [found[number]["price"] for number in (1, 2, 3, 4)] == values
        assert [found[number]["_airbyte_meta"]["changes"] for number in (1, 2, 3)] == [[], [TRUNCATED], [TOO_LARGE]]
    lake.options = {"tables": {"schema_change": "rewrite"}}
    sync(lake, ['"id":6,"price":0.5'], items(mode), at=4)
    found = {row["id"]: row for row in rows(lake)}
    assert [found[number]["price"] for number in (1, 2, 3, 6)] == [1.2345678901234568e17, 1.005, 1e30, 0.5]
    assert not any(row["_airbyte_meta"]["changes"] for row in found.values())


def test_without_a_raw_table_stored_values_are_cast_or_refused(lake: Lake) -> None:
    lake.options = {"tables": {"schema_change": "rewrite", "raw_tables": False}}
    sync(lake, ['"id":1,"price":0.1', '"id":2,"price":123456.75'])
    lake.options = prices(10, 2, schema_change="rewrite", raw_tables=False)
    sync(lake, ['"id":3,"price":0.1'], at=2)
    assert sorted(row["price"] for row in rows(lake)) == [Decimal("0.10"), Decimal("0.10"), Decimal("123456.75")]
    lake.options = prices(10, 1, schema_change="rewrite", raw_tables=False)
    with pytest.raises(ConfigError, match="do not fit"):
        sync(lake, ['"id":4,"price":0.1'], at=3)


def test_a_key_gets_another_precision_in_place(lake: Lake) -> None:
    catalog = items("append_dedup", key="price")
    lake.options = DOUBLE
    sync(lake, ['"price":0.1,"note":"a"', '"price":-2,"note":"b"', '"price":10,"note":"c"'], catalog)
    for at, digits in enumerate((10, 12), start=2):
        lake.options = prices(digits, 2)
        sync(lake, [f'"price":0.10,"note":"a{digits}"', f'"price":10,"note":"c{digits}"'], catalog, at=at)
        assert notes(lake) == [f"a{digits}", "b", f"c{digits}"]
        assert columns(lake)["price"] == f"decimal128({digits}, 2)"


def test_the_change_log_has_all_digits(lake: Lake) -> None:
    lake.options = {**prices(38, 9), "change_log": {"enabled": True, "format": "jsonl", "before_image": "ALL"}}
    catalog = items("append_dedup", cdc=True)
    sync(lake, ['"id":1,"price":12345678901234567890.123456789', '"id":2,"price":0.1'], catalog)
    sync(lake, ['"id":1,"price":12345678901234567890.123456788', '"id":2,"price":1e-1', '"id":3,"price":0'], catalog, at=2)
    lines = [
        json.loads(one, parse_float=str)
        for body in lake.files(".jsonl.gz", "airbyte_changes")
        for one in gzip.decompress(body).splitlines()
    ]
    assert [row["price"] for row in lines[:2]] == ["12345678901234567890.123456789", "0.100000000"]
    assert [(event["op"], event["key"]["id"], event["old"].get("price"), event["new"].get("price")) for event in lines[2:]] == [
        ("U", 1, "12345678901234567890.123456789", "12345678901234567890.123456788"),
        ("I", 3, None, "0.000000000"),
    ]
