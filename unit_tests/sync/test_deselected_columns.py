"""Fields that the catalog declares no longer, and that the source sends all the same: no later row has them in the column of before."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.decoding.declared_texts import DeclaredTexts
from destination_s3_spark.tables.stored import conversion
from unit_tests.cases import each
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, records, schema_of, state, stream
from unit_tests.sync.logged_lake import manifests, records_of

Data = dict[str, Any]
PLAIN = {"compression_type": "No Compression"}
CSV: JsonObject = {"format_type": "CSV", "flattening": "Root level flattening", "compression": PLAIN}
PARQUET: JsonObject = {"format_type": "Parquet"}
RAW: JsonObject = {"tables": {"raw_tables": True}}
LATER: JsonObject = {"tables": {"merge": [{"stream": "users", "when_runs_mb": 1000}]}}
SOFT: JsonObject = {"tables": {"cdc_deletion_mode": "soft"}}
LOG: JsonObject = {"change_log": {"enabled": True, "format": "jsonl"}}
LAKES: dict[str, tuple[str, JsonObject]] = {
    "appended": ("append", {}),
    "appended, with raw rows": ("append", RAW),
    "merged": ("append_dedup", {}),
    "merged, with raw rows": ("append_dedup", RAW),
    "merged later": ("append_dedup", LATER),
    "soft deletions": ("append_dedup", SOFT),
}
SECRET = "two@example.com"


@pytest.fixture
def make(make_bucket: Any, tmp_path: Path) -> Callable[..., Lake]:
    def made(options: JsonObject, form: JsonObject = CSV) -> Lake:
        settings = make_bucket()
        return Lake(settings, tmp_path / settings.bucket, format=form, options=options)

    return made


def sync(lake: Lake, mode: str, number: int, *sent: Data, declares: str = "id email n") -> None:
    types = {"id": "integer", "email": "string", "n": "string", "never": "string", "_ab_cdc_deleted_at": "string"}
    schema = schema_of({name: {"type": ["null", types[name]]} for name in declares.split()})
    key: Any = {"key": "id"} if mode == "append_dedup" else {}
    lake.sync(
        catalog(stream(schema=schema, mode=mode, sync_id=number, **key)), [records(sent, emitted_at=number), state(number), complete()]
    )


def rows(lake: Lake) -> Iterator[Data]:
    for body in lake.files(".csv"):
        yield from csv.DictReader(body.decode().splitlines())


def emails(lake: Lake) -> dict[int, str]:
    return {int(row["id"]): row["email"] for row in rows(lake)}


def three_syncs(lake: Lake, mode: str) -> None:
    sync(lake, mode, 1, {"id": 1, "email": "one@example.com", "n": "a", "never": "x"})
    sync(lake, mode, 2, {"id": 2, "email": SECRET, "n": "b", "never": "x"}, declares="id n")
    sync(lake, mode, 3, {"id": 3, "email": "three@example.com", "n": "c", "never": "y"}, declares="id email n never")


EXPECTED = {1: "one@example.com", 2: "", 3: "three@example.com"}


@each("name", LAKES)
def test_a_row_has_the_fields_that_were_declared_when_it_came(make: Callable[..., Lake], name: str) -> None:
    mode, options = LAKES[name]
    lake = make(options)
    three_syncs(lake, mode)
    if options == LATER:
        lake.options = {}
        sync(lake, mode, 4, declares="id email n never")
    for again in (False, True):
        assert emails(lake) == EXPECTED
        assert {int(row["id"]): row["never"] for row in rows(lake) if row.get("never")} == {3: "y"}
        if not again and options == RAW:
            lake.rebuild()
    if mode == "append_dedup":
        assert not any(SECRET in content for key, content in stored(lake) if "/raw/" not in key)


def stored(lake: Lake) -> Iterator[tuple[str, str]]:
    """The key and the content of every object."""
    for found in lake.store.list("lake/"):
        body = lake.store.get(found.key)
        is_parquet = found.key.endswith(".parquet")
        yield found.key, repr(pq.read_table(pa.BufferReader(body)).to_pylist() if is_parquet else body)


@each("mode", ["append", "append_dedup"])
def test_another_format_made_of_raw_rows(make: Callable[..., Lake], mode: str) -> None:
    lake = make(RAW, PARQUET)
    three_syncs(lake, mode)
    lake.format = CSV
    sync(lake, mode, 4, {"id": 4, "email": "four@example.com"}, declares="id email n never")
    lake.rebuild()
    assert emails(lake) == {**EXPECTED, 4: "four@example.com"}


def test_a_key_and_deletions_are_kept(make: Callable[..., Lake]) -> None:
    """They decide which rows there are."""
    lake = make(SOFT)
    every = "id email n _ab_cdc_deleted_at"
    sync(lake, "append_dedup", 1, {"id": 1, "email": "one@example.com"}, {"id": 2, "email": "x"}, declares=every)
    sync(lake, "append_dedup", 2, {"id": 1, "email": SECRET, "_ab_cdc_deleted_at": "2026-01-01"}, declares="id n _ab_cdc_deleted_at")
    assert {int(row["id"]): (row["email"], row["_ab_cdc_deleted_at"]) for row in rows(lake)} == {
        1: ("one@example.com", "2026-01-01"),
        2: ("x", ""),
    }


def test_the_change_log_does_not_show_them_either(make: Callable[..., Lake]) -> None:
    lake = make(LOG)
    three_syncs(lake, "append_dedup")
    sync(lake, "append_dedup", 4, {"id": 2, "n": "later"})
    told = json.dumps([records_of(lake, manifest) for manifest in manifests(lake)])
    assert "one@example.com" in told
    assert SECRET not in told


TEXTS = ['{"a":1,"b":{"a":2},"c":"x"}', '{ "b" : 1 , "a":2.50 }', "{}", '{"\\u0061":1,"b":2,"a":3}', '{"a":"}\\n{"}', '{"a":\n1,\n"b":2}']
KEPT = ['{"a":1,"c":"x"}', '{ "a":2.50 }', "{}", '{"\\u0061":1,"a":3}', '{"a":"}\\n{"}', '{"a": 1}']


@each("native", [True, False])
def test_texts_of_declared_fields(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("destination_s3_spark.decoding.declared_texts.KERNEL", None)
    texts = DeclaredTexts(["a", "c"])
    assert texts.of(pa.array(TEXTS)).to_pylist() == KEPT
    assert texts.of(pa.array([], pa.string())).to_pylist() == []
    raw = pa.RecordBatch.from_pylist([{"_airbyte_data": TEXTS[0]}])
    assert conversion.with_declared(raw, {"a", "c"}).to_pylist() == [{"_airbyte_data": KEPT[0]}]
