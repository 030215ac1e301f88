"""Forgetting of rows of files that destination-s3 wrote, before this connector took their table over."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import parse_token
from destination_s3_spark.delta_log.log import DeltaLog
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, ForgetfulLake, forgotten_wherever_it_dies, person, somebody

FIRST = "lake/users/2026_01_01_1700000000000_"
PROPERTIES = {"at": {"type": "string", "format": "date-time"}, "sum": {"type": "number"}, "day": {"type": "string", "format": "date"}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    decimals = [{"stream": "users", "column": "sum", "precision": 3, "scale": 2}]
    lake = ForgetfulLake(s3_settings, tmp_path, options={"publish": {"delta": True}, "tables": {"decimal_columns": decimals}})
    lake.keep_versions()
    return lake


def row(one: dict[str, Any]) -> dict[str, Any]:
    """A row as destination-s3 has it in Parquet."""
    moment = datetime(2026, 1, 1, one["id"] % 20, tzinfo=UTC)
    own = {"_airbyte_raw_id": str(one["id"]), "_airbyte_extracted_at": moment, "_airbyte_meta": {"sync_id": 1, "changes": []}}
    values = {name: one[name] for name in ("id", "mail", "price", "tags")}
    return {**own, "_airbyte_generation_id": 0, **values, "at": moment, "sum": Decimal("1.50"), "day": moment.date()}


def parquet(*rows: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(arrow(*rows), sink, row_group_size=5)
    return sink.getvalue()


def arrow(*rows: dict[str, Any]) -> pa.Table:
    """Rows with the types of destination-s3, which an empty list does not tell."""
    change = pa.struct([(name, pa.string()) for name in ("field", "change", "reason")])
    meta = pa.struct([("sync_id", pa.int64()), ("changes", pa.list_(change))])
    table = pa.Table.from_pylist(list(map(row, rows)))
    return table.cast(pa.schema([field.with_type(meta) if field.name == "_airbyte_meta" else field for field in table.schema]))


def jsonl(*rows: dict[str, Any]) -> bytes:
    own = '{"_airbyte_raw_id":"1","_airbyte_extracted_at":1,"_airbyte_meta":{"changes":[],"sync_id":1},"_airbyte_generation_id":0,'
    return gzip.compress("".join(f'{own}"_airbyte_data":{json.dumps(one)}}}\n' for one in rows).encode())


def flat_csv(*rows: dict[str, Any]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow(["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "id", "mail"])
    writer.writerows(["1", 1, "{}", 0, one["id"], one["mail"]] for one in rows)
    return text.getvalue().encode()


def avro(*rows: dict[str, Any]) -> bytes:
    """A file with every kind of type, of which destination-s3 and its libraries write some."""
    change = {"type": "record", "name": "change", "fields": [{"name": "field", "type": ["null", "string"]}]}
    meta = {"type": "record", "name": "meta", "fields": [{"name": "changes", "type": {"type": "array", "items": change}}]}
    own: dict[str, Any] = {"_airbyte_raw_id": "string", "_airbyte_meta": meta, "_airbyte_extracted_at": "long"}
    values: dict[str, Any] = {
        "id": "long",
        "mail": "string",
        "tags": {"type": "array", "items": ["null", "string"]},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "day": {"type": "int", "logicalType": "date"},
        "sum": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "more": {"type": "map", "values": ["double", "float", "boolean"]},
        "kind": {"type": "enum", "name": "kind", "symbols": ["a", "b"]},
        "hash": {"type": "fixed", "name": "hash", "size": 4},
        "again": change,
    }
    nullable = {name: of if name == "again" else ["null", of] for name, of in values.items()}
    nullable["again"] = ["null", "shop.change"]
    fields = [{"name": name, "type": of} for name, of in {**own, **nullable}.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "users", "namespace": "shop", "fields": fields})
    more = {"more": {"a": 1.5, "b": True}, "kind": "b", "hash": b"abcd", "again": {"field": "x"}}
    sink = io.BytesIO()
    made = [{**row(one), "_airbyte_extracted_at": 1, "_airbyte_meta": {"changes": [{"field": "x"}]}, **more} for one in rows]
    fastavro.writer(sink, schema, made, codec="snappy")
    return sink.getvalue()


WRITERS = {"0.parquet": parquet, "0.jsonl.gz": jsonl, "0.csv": flat_csv, "0.avro": avro}
FORMATS = {"0.parquet": "Parquet", "0.jsonl.gz": "JSONL", "0.csv": "CSV", "0.avro": "Avro"}


def take_over(lake: ForgetfulLake, name: str) -> None:
    """Write a file without the person, one with others and one of the person alone, each twice, as destination-s3, and take over."""
    write, others = WRITERS[name], [somebody(number) for number in range(20)]
    metadata = {"ab-generation-id": "1"}
    for number, rows in enumerate([others[:5], [*others[5:], person(1)], [person(2)]]):
        for _ in range(2):
            key = f"{FIRST}{number}{name}"
            lake.memory.put(key, write(*rows), metadata)
    lake.format = {"format_type": FORMATS[name]}
    lake.go("append", [somebody(30), person(3)], properties=PROPERTIES)
    assert len(lake.live_files().adopted) == 3


@pytest.mark.parametrize(
    "wanted",
    [{"id": NUMBER}, {"mail": f"{MARK}1@example.org"}, {"id": NUMBER, "at": "2026-01-01T05:00:00Z"}],
    ids=["by id", "by mail", "by time"],
)
@pytest.mark.parametrize("name", WRITERS)
def test_rows_leave_files_of_destination_s3(lake: ForgetfulLake, name: str, wanted: dict[str, Any]) -> None:
    if name != "0.parquet":
        lake.options = {}
    take_over(lake, name)
    record = lake.forget(wanted)
    if "mail" in wanted:
        assert record["rows"]["adopted"] == 1
    if "at" in wanted:
        assert record["rows"]["adopted"] == (2 if name in {"0.parquet", "0.avro"} else 0)
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    adopted = lake.live_files().adopted
    assert len(adopted) == 2
    assert [parse_token(key) is None for key in adopted] == [True, False]
    assert lake.memory.metadata(adopted[1])["ab-generation-id"] == "1"
    lake.check()
    store = lake.store
    if name == "0.parquet":
        tables = [pq.read_table(pa.BufferReader(store.get(key))) for key in adopted]
        expected = arrow(*map(somebody, range(20)))
        assert pa.concat_tables(tables).replace_schema_metadata(None).cast(expected.schema).equals(expected)
        log = DeltaLog(store, "lake/users/").read()
        assert log is not None
        assert {f"lake/users/{path}" for path in log.adds} >= set(adopted)
    if name == "0.avro":
        found = [one["id"] for key in adopted for one in fastavro.reader(io.BytesIO(store.get(key)))]
        assert found == [*range(20)]
    lake.go("append", [somebody(50)], properties=PROPERTIES)
    assert lake.live_files().adopted == adopted
    lake.check()


@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    take_over(lake, "0.parquet")
    forgotten_wherever_it_dies(lake, start)
    assert len(lake.live_files().adopted) == 2
