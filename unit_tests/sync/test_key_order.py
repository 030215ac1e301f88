"""The parts of a composite key in another order than before: the same fields are the same key, wherever keys are compared."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import TransientError
from unit_tests.cases import each
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, catalog, complete, records, schema_of, state, stream
from unit_tests.sync.logged_lake import manifests

Data = dict[str, Any]
ONE_WAY, OTHER_WAY = ("a", "b"), ("b", "a")
DELETED = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
PARQUET, CSV = {"format_type": "Parquet"}, {"format_type": "CSV", "flattening": "Root level flattening"}
WAITS = {"merge": [{"stream": "users", "when_runs_mb": 1000}]}
LAKES: dict[str, tuple[JsonObject, JsonObject]] = {
    "parquet": (PARQUET, {}),
    "jsonl": ({"format_type": "JSONL"}, {}),
    "csv": (CSV, {}),
    "soft deletions": (PARQUET, {"tables": {"cdc_deletion_mode": "soft"}}),
    "a change log": (PARQUET, {"change_log": {"enabled": True}}),
    "a history": (PARQUET, {"tables": {"history": [{"stream": "users"}]}}),
    "partitions": (PARQUET, {"tables": {"partition_by": [{"stream": "users", "column": "b", "transform": "identity"}]}}),
    "waiting rows": (PARQUET, {"tables": WAITS}),
}
"""A format and options each."""


def of(a: str, b: int, u: int, v: str | None = None) -> Data:
    """A row of key (a, b) and cursor u. Without a value it is a deletion."""
    return {"a": a, "b": b, "u": u, **(DELETED if v is None else {"v": v})}


def sync(lake: Lake, key: tuple[str, ...], *sent: Data, at: int, generation: int = 1, minimum: int = 0, done: bool = True) -> None:
    types = {"a": "string", "b": "integer", "u": "integer", "v": "string", "_ab_cdc_deleted_at": "string"}
    schema = schema_of({name: {"type": ["null", one]} for name, one in types.items()})
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": at}
    streams = catalog(stream("users", schema=schema, mode="append_dedup", key=key, cursor="u", **ids))
    with nullcontext() if done else pytest.raises(TransientError):
        lake.sync(streams, [records(sent, "users", emitted_at=at), state(at, "users"), *([complete("users")] if done else [])])


def merge(lake: Lake) -> None:
    """Merge what waits."""
    lake.options = {**lake.options, "tables": {**lake.options.get("tables", {}), "merge": []}}
    sync(lake, ONE_WAY, at=100)


def seen(lake: Lake) -> set[tuple[Any, ...]]:
    """The rows that are not deleted, as readers see them."""
    found: list[Data] = lake.glob("users")
    found += (json.loads(text) for body in lake.files(".jsonl.gz", "users") for text in gzip.decompress(body).splitlines())
    found += (row for body in lake.files(".csv.gz", "users") for row in csv.DictReader(gzip.decompress(body).decode().splitlines()))
    rows = [row.get("_airbyte_data", row) for row in found]
    return {(row["a"], int(row["b"]), row["v"]) for row in rows if not row.get("_ab_cdc_deleted_at")}


def recorded_key(lake: Lake) -> Any:
    return (lake.own_chain().head.schema or {})["primaryKey"]


@pytest.fixture
def make(make_bucket: Any, tmp_path: Any) -> Callable[[str], Lake]:
    def made(name: str) -> Lake:
        found, options = LAKES[name]
        return Lake(make_bucket(), tmp_path / name.replace(" ", "-"), format=found, options=options)

    return made


@each("name", LAKES)
def test_a_deleted_row_stays_deleted_and_no_other_is_rewritten(make: Callable[[str], Lake], name: str, caplog: Any) -> None:
    caplog.clear()
    lake = make(name)
    sync(lake, ONE_WAY, of("x", 1, 4, "new"), of("x", 1, 5), of("x", 2, 1, "stays"), at=1)
    if name == "waiting rows":
        sync(lake, ONE_WAY, of("x", 3, 1, "waits"), at=2)
    before = {file.key for file in lake.live(FileKind.FINAL)}
    schema_id = lake.own_chain().head.schema_id
    with caplog.at_level(logging.WARNING):
        sync(lake, OTHER_WAY, of("x", 1, 3, "older, arrives late"), at=3)
    assert not [one for one in caplog.messages if "key" in one]
    assert (recorded_key(lake), lake.own_chain().head.schema_id) == ([["a"], ["b"]], schema_id)
    if name == "waiting rows":
        assert {file.key for file in lake.live(FileKind.FINAL)} == before
        assert len(lake.live(FileKind.DELTA)) == 2
        merge(lake)
        assert seen(lake) == {("x", 2, "stays"), ("x", 3, "waits")}
    else:
        assert seen(lake) == {("x", 2, "stays")}
    if name == "a change log":
        assert len(manifests(lake)) == 1, "nothing has changed"
    if name == "a history":
        assert {file.history for file in lake.live(FileKind.CURRENT, FileKind.CLOSED)} == {1}
    assert not lake.verified().problems


def test_a_key_of_other_fields_is_another_key(make: Callable[[str], Lake]) -> None:
    lake = make("parquet")
    sync(lake, ONE_WAY, of("x", 1, 1, "p"), of("y", 1, 1, "q"), at=1)
    sync(lake, ("b",), of("z", 1, 2, "r"), at=2)
    assert recorded_key(lake) == [["b"]]
    assert seen(lake) == {("z", 1, "r")}
    sync(lake, OTHER_WAY, of("y", 2, 2, "s"), at=3)
    assert recorded_key(lake) == [["b"], ["a"]], "the first order of these fields since then"


@each("name", ["parquet", "a change log", "soft deletions", "a history"])
def test_a_refresh_lists_the_parts_in_another_order(make: Callable[[str], Lake], name: str) -> None:
    lake = make(name)
    sync(lake, ONE_WAY, of("x", 1, 4, "a"), of("x", 2, 1, "b"), at=1)
    sync(lake, OTHER_WAY, of("x", 1, 5, "c"), at=2, generation=2, minimum=2, done=False)
    assert seen(lake) == {("x", 1, "a"), ("x", 2, "b")}
    sync(lake, ONE_WAY, of("x", 3, 5, "d"), at=3, generation=2, minimum=2)
    assert seen(lake) == {("x", 1, "c"), ("x", 3, "d")}
    assert recorded_key(lake) == [["a"], ["b"]]
    if name == "a history":
        assert {file.history for file in lake.live(FileKind.CURRENT, FileKind.CLOSED)} == {1}
    if name == "soft deletions":
        assert len(lake.glob("users")) == 3, "the row that the refresh lacks stays, marked"
    assert not lake.verified().problems


def test_barred_keys_stay_barred(make: Callable[[str], Lake]) -> None:
    lake = make("parquet")
    sync(lake, ONE_WAY, of("x", 1, 1, "p"), of("x", 2, 1, "q"), at=1)
    where = '{"b": 1, "a": "x"}'
    found = lake.connector().run("forget", "--stream", "users", "--where", where, "--forever")
    assert found.exit_code == 0, found.describe()
    sync(lake, OTHER_WAY, of("x", 1, 2, "again"), at=2)
    assert seen(lake) == {("x", 2, "q")}
