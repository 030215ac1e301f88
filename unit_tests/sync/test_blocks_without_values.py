"""No block holds a value of a record: marked values in columns of every type and in keys, through every kind of update."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, time
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.events import AddData, MergeData, OpenEpoch, ReplaceData, SetDataSchema, Snapshot
from destination_s3_spark.chain.files import GENERATION_METADATA, FileKind
from destination_s3_spark.errors import SyncError
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, line, schema_of, status

FOLDER = "lake/airbyte_internal/_raw__stream_users/chain/"
MOMENT = {"type": "string", "format": "date-time"}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "email": {"type": "string"},
    "name": {"type": "string"},
    "essay": {"type": "string"},
    "price": {"type": "number"},
    "born": {"type": "string", "format": "date"},
    "at": {**MOMENT, "airbyte_type": "timestamp_with_timezone"},
    "seen": {**MOMENT, "airbyte_type": "timestamp_without_timezone"},
    "opens": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
    "tags": {"type": "array", "items": {"type": "string"}},
    "anything": {},
    "kind": {"type": "string"},
    "lsn": {"type": "integer"},
    "_ab_cdc_lsn": {"type": "integer"},
    "_ab_cdc_updated_at": MOMENT,
    "_ab_cdc_deleted_at": MOMENT,
}
INTEGER = 7_316_000_000_000_000
"""The marked integers count up from here, so that no number of a block is like one."""
MARK = "qzjxvw"
"""The marked texts begin so."""
DAY, YEAR = date(2741, 3, 1), 2741
AT = datetime(YEAR, 7, 9, 11, 13, 17, 191_919, UTC)
FORMATS: dict[str, dict[str, Any]] = {
    "Parquet": {"format_type": "Parquet"},
    "Avro": {"format_type": "Avro"},
    "JSONL": {"format_type": "JSONL"},
    "CSV": {"format_type": "CSV", "flattening": "Root level flattening"},
}


def record(number: int, **changed: Any) -> dict[str, Any]:
    data = {
        "id": INTEGER + number,
        "email": f"{MARK}mail{number}@example.org",
        "name": f"{MARK}name{number}",
        "essay": f"{MARK}essay" + "y" * 5_000,
        "price": 73160.7 + number / 1_000,
        "born": DAY.isoformat(),
        "at": AT.isoformat(),
        "seen": AT.replace(tzinfo=None).isoformat(),
        "opens": time(11, 13, 17, 191_919).isoformat(),
        "address": {"city": f"{MARK}city{number}", "zip": INTEGER + number},
        "tags": [f"{MARK}tag{number}"],
        "anything": {f"{MARK}member": f"{MARK}any{number}", f"{MARK}odd": float("nan")},
        "kind": f"{MARK}kind{number % 2}",
        "lsn": INTEGER + number,
        "_ab_cdc_lsn": INTEGER + number,
        "_ab_cdc_updated_at": AT.isoformat(),
        "_ab_cdc_deleted_at": None,
    }
    return {**data, **changed}


def source_changes(number: int) -> list[dict[str, str]]:
    """What a source says of its changes, in words that may be values of the record."""
    size, said = "SOURCE_FIELD_SIZE_LIMITATION", f"{MARK}said{number}"
    return [
        {"field": said, "change": "NULLED", "reason": size},
        {"field": f"tags.[0].{said}", "change": "NULLED", "reason": size},
        {"field": "address.city", "change": said, "reason": size},
        {"field": "name", "change": "TRUNCATED", "reason": said},
        {"field": f"anything.{said}", "change": said, "reason": said},
    ]


def marks() -> dict[str, bytes]:
    """The bytes by which a value is found: as text, and as keys, Parquet and Avro have it."""
    found = {"text": MARK.encode(), "integer": str(INTEGER)[:10].encode(), "number": b"73160.7", "date": b"2741-0", "time": b"11:13:17"}
    binary = {
        "key": (INTEGER ^ 1 << 63).to_bytes(8, "big")[:6],
        "integer, little-endian": INTEGER.to_bytes(8, "little")[2:],
        "day": ((DAY.toordinal() - date(1970, 1, 1).toordinal()) ^ 1 << 31).to_bytes(4, "big"),
        "moment": str(int(AT.timestamp()))[:8].encode(),
    }
    return found | binary


def catalog(mode: str, sync: int, generation: int, minimum: int, key: Sequence[str], retyped: bool) -> JsonObject:
    columns = PROPERTIES | ({"lsn": {"type": "number"}} if retyped else {})
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": sync}
    return messages.catalog(messages.stream(schema=schema_of(columns), mode=mode, key=key, cursor="lsn", **ids))


def state(number: int) -> bytes:
    body = {"stream_descriptor": {"name": "users"}, "stream_state": {"cursor": f"{MARK}state{number}", "lsn": INTEGER + number}}
    return line({"type": "STATE", "state": {"type": "STREAM", "stream": body}})


class MarkedLake(Lake):
    syncs = 0

    def go(
        self,
        mode: str,
        records: Sequence[dict[str, Any]],
        *,
        generation: int = 1,
        minimum: int = 0,
        key: Sequence[str] = ("email", "id"),
        retyped: bool = False,
        word: str = "COMPLETE",
    ) -> None:
        self.syncs += 1
        sent = [
            messages.record(one, emitted_at=1_767_323_045_678, meta={"changes": source_changes(number)})
            for number, one in enumerate(records)
        ]
        blocks = [*sent, state(self.syncs), status(word)]
        configured = catalog(mode, self.syncs, generation, minimum, key, retyped)
        with nullcontext() if word == "COMPLETE" else suppress(SyncError):
            self.sync(configured, blocks)

    def blocks(self) -> dict[str, bytes]:
        return {key: body for key, body in self.memory.objects.items() if key.startswith(FOLDER) and not key.endswith("hint.json")}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> MarkedLake:
    return MarkedLake(s3_settings, tmp_path)


def strings(value: Any) -> Iterator[str]:
    """Every text and number of a block, names included."""
    match value:
        case dict():
            for name, member in value.items():
                yield name
                yield from strings(member)
        case list():
            for item in value:
                yield from strings(item)
        case _:
            yield str(value)


def require_no_values(lake: MarkedLake, ignored: Callable[[str], str] = str) -> None:
    """Look for the marked values in every block: as they are, in hex and in base64, and in base64 and hex within the block.

    `ignored` takes away what a text may hold.
    """
    wanted = marks()
    for key, body in lake.blocks().items():
        texts = [ignored(text) for text in strings(json.loads(body))]
        for text in texts:
            forms = [text.encode(), *unpacked(text)]
            for name, mark in wanted.items():
                for form in forms:
                    assert mark not in form, f"{key} holds a marked value ({name}) in {text[:200]!r}"
        assert all(mark.hex().encode() not in body for mark in wanted.values()), key


def unpacked(text: str) -> Iterator[bytes]:
    with suppress(ValueError):
        yield bytes.fromhex(text)
    with suppress(ValueError):
        yield base64.b64decode(text, validate=True)


def kinds(lake: MarkedLake) -> set[type]:
    return {type(block.event) for block, _ in lake.own_chain().all_blocks()}


def publish(lake: MarkedLake) -> dict[str, Any]:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{lake.directory}/catalog.db", "catalog_name": "lake"}
    return {"delta": True, "symlink": True, "iceberg": iceberg, "keep_replaced_minutes": 30}


class Case(NamedTuple):
    format: str
    raw: bool
    mode: str


CASES = [Case(name, raw, mode) for name in FORMATS for raw in (True, False) for mode in ("append", "append_dedup")]


def case_id(case: Case) -> str:
    return f"{case.format}-{'raw' if case.raw else 'no raw'}-{case.mode}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_update_writes_a_value_into_a_block(case: Case, lake: MarkedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.chain.opening.SNAPSHOT_EVERY", 10)
    lake.format = FORMATS[case.format]
    parquet, deduplicated = case.format == "Parquet", case.mode == "append_dedup"
    options = {"raw_tables": case.raw, "schema_change": "rewrite" if parquet else "recover", "compaction": "on"}
    lake.options = {
        "tables": {**options, "cdc_deletion_mode": "soft"} if deduplicated else options,
        "change_log": {"enabled": deduplicated},
        **({"publish": publish(lake)} if parquet else {}),
    }
    for start in (0, 4, 2):
        lake.go(case.mode, [record(number) for number in range(start, start + 6)])
    lake.go(case.mode, [record(1, _ab_cdc_deleted_at=AT.isoformat()), record(2, born="no date", price="no number")])
    require_no_values(lake)
    if parquet:
        lake.go(case.mode, [record(9)], retyped=True)
    lake.go(case.mode, [record(10)], word="INCOMPLETE", retyped=parquet)
    lake.go(case.mode, [record(11), record(1)], retyped=parquet)
    if case.raw:
        lake.rebuild()
    if deduplicated and (case.raw or parquet):
        lake.go(case.mode, [record(12)], key=("id", "price", "born", "at"), retyped=parquet)
        lake.go(case.mode, [record(12), record(13)], key=("id", "price", "born", "at"), retyped=parquet)
    lake.go(case.mode, [record(20)], generation=2, minimum=2, word="INCOMPLETE", retyped=parquet)
    lake.go(case.mode, [record(number) for number in range(20, 25)], generation=2, minimum=2, retyped=parquet)
    lake.go(case.mode, [record(26)], generation=2, retyped=parquet)

    assert {AddData, ReplaceData, OpenEpoch, SetDataSchema, Snapshot} <= kinds(lake)
    assert MergeData in kinds(lake) or not (deduplicated or case.raw)
    require_no_values(lake)


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("name", ["Parquet", "Avro"])
def test_a_value_of_a_partition_is_in_keys_alone(name: str, mode: str, lake: MarkedLake) -> None:
    lake.format = FORMATS[name]
    lake.options = {"tables": {"partition_by": [{"stream": "users", "column": "kind", "transform": "identity"}], "compaction": "on"}}
    for start in range(0, 12, 2):
        lake.go(mode, [record(number) for number in range(start, start + 4)], key=("kind", "id"))
    folders = [f"kind_identity={MARK}kind{number}/" for number in range(2)]

    def keys_aside(text: str) -> str:
        for folder in folders:
            text = text.replace(folder, "")
        return text

    files = lake.live(FileKind.FINAL)
    assert {file.partition for file in files} == {f"{MARK}kind0", f"{MARK}kind1"}
    require_no_values(lake, keys_aside)


def test_adopted_files_bring_no_values(lake: MarkedLake) -> None:
    own = {"_airbyte_raw_id": "r", "_airbyte_extracted_at": AT, "_airbyte_meta": {"sync_id": 1, "changes": []}, "_airbyte_generation_id": 1}
    schema = pa.schema([*META_FIELDS, ("id", pa.int64()), ("name", pa.string())])
    body = BytesIO()
    pq.write_table(pa.Table.from_pylist([{**own, "id": INTEGER, "name": f"{MARK}name"}], schema), body)
    lake.memory.put("lake/users/2026_01_01_1700000000000_0.parquet", body.getvalue(), {GENERATION_METADATA: "1"})
    lake.options = {"publish": publish(lake)}
    lake.go("append", [record(1)])
    lake.go("append", [record(2)], generation=2, minimum=2)

    assert ReplaceData in kinds(lake)
    require_no_values(lake)


def test_the_look_finds_values_where_they_are(lake: MarkedLake) -> None:
    """The hint of a table with statistics has values of every kind that the look for them knows."""
    lake.options = {"publish": publish(lake)}
    lake.go("append_dedup", [record(1), record(2)], key=("id", "email", "born"))
    hint = lake.memory.objects[f"{FOLDER}hint.json"]
    texts = list(strings(json.loads(hint)))
    found = {name for name, mark in marks().items() if any(mark in form for text in texts for form in (text.encode(), *unpacked(text)))}

    assert {"text", "integer", "number", "date", "time", "key", "day"} <= found
