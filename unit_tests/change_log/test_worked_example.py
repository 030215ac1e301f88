"""The worked example of docs/change-log.md is what the writers write."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.manifest import LogFile, LogKind, manifest_of
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.stream_id import StreamId

PAGE = (Path(__file__).parents[2] / "docs" / "change-log.md").read_text()
FIELDS = [("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string()), ("placed_at", pa.timestamp("us", tz="UTC"))]
PLACED_AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ROWS = [
    {"id": 1, "amount": 10.0, "note": "gift, wrapped", "placed_at": PLACED_AT},
    {"id": 2, "amount": 7.5, "note": None, "placed_at": PLACED_AT.replace(second=1, microsecond=250_000)},
]
EVENTS = [
    ("I", {"id": 3, "amount": 99.0, "note": "NULL", "placed_at": PLACED_AT}, {}, '{"_ab_cdc_lsn":101}'),
    ("U", {"note": None}, {"id": 1}, '{"_ab_cdc_lsn":102}'),
    ("D", {}, {"id": 2}, '{"_ab_cdc_lsn":103}'),
]
TWO_ROWS = OperationCount(insert_count=2)


@pytest.fixture
def lines(log: Callable[..., Any]) -> Callable[[ChangeLogFormat], tuple[list[str], list[str]]]:
    """The lines of the example's snapshot and of its changes."""

    def of(form: ChangeLogFormat) -> tuple[list[str], list[str]]:
        orders = log(FIELDS, ["id"], ChangeLogOptions(form), StreamId("shop", "orders"))
        files = orders.snapshot_file([orders.rows(ROWS)]), orders.changes_file([orders.events(EVENTS)], TWO_ROWS)
        snapshot, changes = (gzip.decompress(file).decode().splitlines() for file in files)
        return snapshot, changes

    return of


def test_the_csv_example(lines: Callable[..., Any]) -> None:
    snapshot, changes = lines(ChangeLogFormat.REPLICANT_CSV)

    assert "\n".join(snapshot) in PAGE
    assert "\n".join(re.sub(r'(lsn"":\d+)', r"\1,…", line) for line in changes) in PAGE


@pytest.mark.parametrize("include_header", [True, False])
def test_duckdb_reads_the_csv_example_as_the_page_says(
    log: Callable[..., Any], tmp_path: Path, monkeypatch: Any, include_header: bool
) -> None:
    options = ChangeLogOptions(ChangeLogFormat.REPLICANT_CSV, include_header=include_header)
    orders = log(FIELDS, ["id"], options, StreamId("shop", "orders"))
    group = "orders/00000000000000000002-42188367100000000200000007-"
    files = [LogFile("00000-changes.csv.gz", len(EVENTS))]
    manifest = manifest_of(orders.columns, options, LogKind.CHANGES, (3, 0), files, TWO_ROWS, TWO_ROWS)
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    Path(f"{group}00000-changes.csv.gz").write_bytes(orders.changes_file([orders.events(EVENTS)], TWO_ROWS))
    Path(f"{group}manifest.json").write_bytes(manifest.to_bytes())
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.partition("### replicant_json")[0], re.DOTALL)
    names = "header = false, names = getvariable('columns')"
    assert names in query

    with duckdb.connect() as connection:
        rows = connection.execute(query.replace(names, "header = true") if include_header else query).fetchall()

    assert rows == [("I", "3", "NULL", "1"), ("U", "1", None, "1"), ("D", "2", None, "0")]


def test_duckdb_reads_parquet_as_the_page_says(log: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    orders = log(FIELDS, ["id"], ChangeLogOptions(ChangeLogFormat.PARQUET), StreamId("shop", "orders"))
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    Path("orders/00000-changes.parquet").write_bytes(orders.changes_file([orders.events(EVENTS)], TWO_ROWS))
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.partition("### parquet")[2], re.DOTALL)

    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall() == [(4, 1, None)]


def test_the_replicant_json_example(lines: Callable[..., Any]) -> None:
    _, changes = lines(ChangeLogFormat.REPLICANT_JSON)
    shown = re.search(r"### replicant_json.*?```json\n(.*?)```", PAGE, re.DOTALL)

    assert shown is not None
    assert json.loads(shown[1].replace(",…", "")) == json.loads(changes[1])


def test_the_jsonl_example(lines: Callable[..., Any]) -> None:
    _, changes = lines(ChangeLogFormat.JSONL)

    assert "\n".join(re.sub(r'"(cursor|operationCount)":\{[^}]*\}', r'"\1":{…}', line) for line in changes) in PAGE
