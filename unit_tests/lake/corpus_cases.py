"""The cases of `corpus/` as data: what to send in each sync, and which rows a table must hold after it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.shop import complete
from unit_tests.lake.table_readers import Row, without_meta

CORPUS = Path(__file__).parent / "corpus"
TYPED_VARIANTS = ("all", "drop_undeclared", "typed (Avro, Parquet)", "strongly typed")
PARQUET_VARIANTS = (*TYPED_VARIANTS, "Parquet", "PROMOTE_TO_OBJECT (Parquet)")
AVRO_VARIANTS = (*TYPED_VARIANTS, "Avro", "native union (Avro)")
MILLISECOND_US = 1000


@dataclass(frozen=True, slots=True)
class CaseSync:
    """One sync of a case."""

    catalog: dict[str, Any]
    messages: list[bytes]
    end: str
    expected: dict[str, Any]
    renamed: dict[str, str]

    @property
    def streams(self) -> list[StreamName]:
        return [(entry["stream"].get("namespace"), entry["stream"]["name"]) for entry in self.catalog["streams"]]

    @property
    def completions(self) -> list[bytes]:
        """The status lines that the case leaves to the runner."""
        return [complete(name, namespace) for namespace, name in self.streams]

    def in_namespace(self, namespace: str) -> CaseSync:
        """The sync with this namespace in place of `test_ns`, so that cases can share one catalog."""
        messages = [message.replace(b"test_ns", namespace.encode()) for message in self.messages]
        catalog, expected = (json.loads(json.dumps(part).replace("test_ns", namespace)) for part in (self.catalog, self.expected))
        return replace(self, catalog=catalog, messages=messages, expected=expected)

    def expected_rows(self, known_variants: tuple[str, ...] = PARQUET_VARIANTS) -> dict[StreamName, list[Row]]:
        """The rows of each stream the case speaks about, in the form of `comparable`."""
        if "by_stream" in self.expected:
            default = self.streams[0][1]
            return {(found["namespace"], found.get("name", default)): self._rows(found["records"]) for found in self.expected["by_stream"]}
        variants = self.expected.get("records", {})
        chosen = [rows for name, rows in variants.items() if name.startswith(known_variants)]
        return {self.streams[0]: self._rows(chosen[0])} if chosen else {}

    def _rows(self, rows: list[Row]) -> list[Row]:
        declared = self.catalog["streams"][0]["stream"]["json_schema"].get("properties", {})
        return [
            {
                "extracted_at_us": row["_airbyte_extracted_at"] * MILLISECOND_US,
                "generation": row["_airbyte_generation_id"],
                "meta": row["_airbyte_meta"],
                "data": {
                    self.renamed.get(name, name): _stored(value, declared.get(name, {}))
                    for name, value in row["data"].items()
                    if value is not None
                },
            }
            for row in rows
        ]


def load(name: str) -> list[CaseSync]:
    case = json.loads((CORPUS / f"{name}.json").read_text(encoding="utf-8"))
    renamed = case.get("avro_parquet_name_mapping", {})
    return [
        CaseSync(
            sync["catalog"], [message.encode() + b"\n" for message in sync["messages"]], sync["end"], sync.get("expected", {}), renamed
        )
        for sync in case["syncs"]
    ]


def comparable(row: Row) -> Row:
    """A row as read, in the form of the expected ones: without its random id and without nulls, since null and absent are one here."""
    return {
        "extracted_at_us": row["_airbyte_extracted_at"],
        "generation": row["_airbyte_generation_id"],
        "meta": row["_airbyte_meta"],
        "data": {name: _without_nulls(value) for name, value in without_meta(row).items() if value is not None},
    }


def sorted_rows(rows: list[Row]) -> list[Row]:
    """Comparable rows in an order of their own, and so are the changes in each."""
    for row in rows:
        row["meta"]["changes"].sort(key=lambda change: str(change["field"]))
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def _stored(value: Any, schema: dict[str, Any]) -> Any:
    """What a file must hold for an expected value. Dates and times come with their text and their number, or as timestamps in text."""
    if isinstance(value, str) and schema.get("format") == "date-time":
        at = datetime.fromisoformat(value)
        return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp()) * 1000 * MILLISECOND_US
    if isinstance(value, dict) and "iso" in value:
        (number,) = (item for name, item in value.items() if name != "iso")
        return number
    return _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    return {name: _without_nulls(item) for name, item in value.items() if item is not None} if isinstance(value, dict) else value


def _without_key(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _without_key(item, key) for name, item in value.items() if name != key}
    return [_without_key(item, key) for item in value] if isinstance(value, list) else value
