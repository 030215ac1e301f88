"""Tour of the demo: shows the connector at work, from an empty bucket to readable tables and the chain it recorded."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo import connector, delta_tables, server, shop
from demo.server import LocalS3
from demo.shop import Chunk, Sale, Shop
from demo.wares import Season
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.commits import changed_values, commits
from destination_s3_spark.cli.inspection.summary import summary
from destination_s3_spark.cli.inspection.table import InspectedTable, columns, read_table
from destination_s3_spark.cli.report import page
from destination_s3_spark.cli.terminal import Cell, Progress, Rows, Terminal, number_text
from destination_s3_spark.config.config import Config
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.factory import table_factory

BUCKET = "demo"
BUCKET_PATH = "lake"
REGION = "us-east-1"
KEY_ID, SECRET_KEY = "demo", "demo"
MODES = {"customers": "append_dedup", "products": "append", "orders": "append"}
"""Destination sync modes: customers have one row per key; the other two tables keep every version."""
PAGE = "report.html"
"""File name of the page about the tables."""
ROWS_SHOWN = 3
CELL = 26
"""Longest text of a value in a list of rows; longer ones are cut."""
VERSION_COLUMNS = ("id", "email", "_valid_from", "_valid_to", "_is_current")
ROWS_WIDTH = 100
"""Width that a list of rows may take: as many columns are shown as fit."""
DELTA_TABLES = (
    Cell("table", lambda d: d.uri),
    Cell("version", lambda d: str(d.version), number=True),
    Cell("rows", lambda d: number_text(d.rows), number=True),
    Cell("files", lambda d: number_text(d.files), number=True),
)


class After(Enum):
    """The treatment of the S3 server and the files after the demo."""

    STOP = "stop"
    KEEP = "keep"


def run(records: int, seed: int, after: After) -> int:
    """Run the demo and return its exit code. Progress goes to stderr, the result to stdout. Raises SyncError if it cannot start."""
    server.require_installed()
    directory = Path(tempfile.mkdtemp(prefix="destination-s3-spark-demo-"))
    _say("starting an S3 server on this machine")
    local, code = None, 1
    try:
        local = server.start(BUCKET, directory / "s3-server.log")
        code = _sync_and_show(local, Shop(seed), records, directory)
    finally:
        if local is not None and (after is After.STOP or code != 0):
            local.stop()
        if after is After.STOP and code == 0:
            _leave_only(directory, PAGE)
    terminal = Terminal()
    if after is After.KEEP and code == 0:
        terminal.section("Still running")
        terminal.say(_how_to_go_on(local, directory))
    if code == 0:
        terminal.section("A page about these tables")
        terminal.say(f"open it in a browser: {directory / PAGE}")
    return code


def visits(records: int) -> tuple[tuple[int, float, Season], ...]:
    """Return the syncs of the demo: records, the share of them with a value that does not fit its type, and the season."""
    cycles = -(-records // shop.CYCLE)
    first, second = cycles // 2, cycles // 5
    syncs = ((first, 0.01, Season.FIRST), (second, 0.03, Season.FIRST), (cycles - first - second, 0.005, Season.LATER))
    return tuple((cycles * shop.CYCLE, dirty_share, season) for cycles, dirty_share, season in syncs if cycles)


def _leave_only(directory: Path, name: str) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != name:
            path.unlink()


def _sync_and_show(local: LocalS3, source: Shop, records: int, directory: Path) -> int:
    config, log = directory / "config.json", directory / "connector.log"
    options = _options(local.endpoint)
    config.write_text(json.dumps(options, indent=2))
    _say(f"destination-s3-spark check --config {config}")
    status = connector.check(config, log)
    if status != connector.SUCCEEDED:
        return _failed(f"check failed: {status}", log)
    sale = Sale(source)
    for sync_id, (sent, dirty_share, season) in enumerate(visits(records), start=1):
        catalog = directory / f"catalog-{sync_id}.json"
        catalog.write_text(json.dumps(source.catalog(MODES, sync_id, season), indent=2))
        if not _sync(config, catalog, sale.read(sent, dirty_share, season), sent, log):
            return 1
    _say(f"records were typed {HOW_LINES_ARE_TYPED}")
    _show(Config.parse(options))
    _show_delta_tables(Config.parse(options), local.endpoint)
    return 1 if page.write(table_factory(Config.parse(options)), directory / PAGE).unread else 0


def _sync(config: Path, catalog: Path, chunks: Iterable[Chunk], records: int, log: Path) -> bool:
    """Run a sync and return whether it succeeded."""
    _say(f"destination-s3-spark write --config {config} --catalog {catalog}")
    with Progress("syncing", records) as shown:
        code, progress = connector.write(
            config, catalog, chunks, log, lambda now: shown.update(now.records, note=f"{now.states_back} states acknowledged")
        )
    if code != 0:
        _failed(f"write ended with exit code {code}: {'; '.join(progress.errors) or 'without a TRACE ERROR'}", log)
        return False
    _say(_progress_text(progress))
    return True


def _options(endpoint: str) -> dict[str, Any]:
    return {
        "s3_bucket_name": BUCKET,
        "s3_bucket_path": BUCKET_PATH,
        "s3_bucket_region": REGION,
        "s3_endpoint": endpoint,
        "access_key_id": KEY_ID,
        "secret_access_key": SECRET_KEY,
        "format": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
        "publish": {"delta": True},
        "tables": {"history": [{"stream": "customers"}]},
    }


def _show(config: Config) -> None:
    factory, terminal = table_factory(config), Terminal()
    tables = [read_table(factory, table) for table in factory.find().tables]
    terminal.section("Tables")
    terminal.table(views.summaries([summary(table) for table in tables], factory.place))
    for table in tables:
        sections = {
            f"{table.stream}: columns": views.columns(columns(table)),
            f"{table.stream}: first rows": first_rows(_final_rows(factory.store, table), ROWS_SHOWN),
            f"{table.stream}: values that were changed": views.values(changed_values(table.blocks)),
            f"{table.stream}: chain": views.commits(commits(table)),
        }
        if (history := table.history()) is not None:
            sections[f"{table.stream}: every version of a row"] = versions(_final_rows(factory.store, history))
        for title, shown in sections.items():
            terminal.section(title)
            terminal.table(shown)
    sys.stdout.flush()


def _show_delta_tables(config: Config, endpoint: str) -> None:
    terminal = Terminal()
    terminal.section("Delta tables, as delta-rs reads them")
    if not delta_tables.readable():
        terminal.say("delta-rs is not installed; to read these tables with it: pip install deltalake")
        return
    factory = table_factory(config)
    tables = [read_table(factory, table) for table in factory.find().tables]
    shown = [*tables, *(history for table in tables if (history := table.history()) is not None)]
    roots = [table.state.identity.final_root for table in shown]
    read = delta_tables.read([f"s3://{BUCKET}/{root}" for root in roots], endpoint, KEY_ID, SECRET_KEY, REGION)
    terminal.table(Rows(read, delta_tables.DeltaReading, DELTA_TABLES, "no tables"))
    sys.stdout.flush()


def _final_rows(store: ObjectStore, table: InspectedTable) -> pa.Table:
    files = table.files_of(FileKind.FINAL)
    return pa.concat_tables([pq.read_table(pa.BufferReader(store.get(file.key))) for file in files], promote_options="default")


def _how_to_go_on(local: LocalS3, directory: Path) -> str:
    address = local.endpoint.removeprefix("http://")
    files = f"s3://{BUCKET}/{BUCKET_PATH}/{shop.NAMESPACE}/orders/*.parquet"
    return f"""The S3 server is {local.endpoint}, process {local.process.pid}; it holds everything in memory.

DuckDB:
  INSTALL httpfs; LOAD httpfs;
  CREATE SECRET (TYPE s3, KEY_ID '{KEY_ID}', SECRET '{SECRET_KEY}', REGION '{REGION}',
                 ENDPOINT '{address}', URL_STYLE 'path', USE_SSL false);
  FROM '{files}' SELECT status, count(*), sum(total) GROUP BY status;

Polars:
  options = {{"aws_endpoint_url": "{local.endpoint}", "aws_access_key_id": "{KEY_ID}",
             "aws_secret_access_key": "{SECRET_KEY}", "aws_region": "{REGION}", "aws_allow_http": "true"}}
  pl.scan_parquet("{files}", storage_options=options).head().collect()

This connector:
  destination-s3-spark inspect orders --config {directory}/config.json

To stop and clean up:
  kill {local.process.pid}; rm -r {directory}"""


def _progress_text(progress: connector.Progress) -> str:
    return (
        f"{progress.records:>9,} records sent, {progress.sent_bytes / 1e6:6.1f} MB, {progress.states_back:>3} of {progress.states_sent:>3} "
        f"states acknowledged, {progress.seconds:5.1f} s"
    )


def _failed(what: str, log: Path) -> int:
    _say(what)
    _say(f"the connector's messages are in {log}")
    return 1


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def first_rows(rows: pa.Table, count: int) -> Rows:
    """Show the first rows, with as many data columns as fit into ROWS_WIDTH."""
    shown = rows.slice(0, count)
    names = [name for name in rows.column_names if not name.startswith("_airbyte_")]
    cells: list[Cell] = []
    room = ROWS_WIDTH
    records = [{name: value_text(value) for name, value in row.items()} for row in shown.select(names).to_pylist()]
    for name in names:
        room -= max(len(name), *(len(record[name]) for record in records)) + 2
        if room < 0:
            break
        cells.append(Cell(name, lambda record, name=name: record[name]))  # type: ignore[misc]
    if more := len(names) - len(cells):
        cells.append(Cell(f"and {more} more columns", lambda _: "…"))
    return Rows(records, dict, cells, "No rows.")


def versions(rows: pa.Table) -> Rows:
    """Show the versions of the row that has the most of them."""
    most = max(rows["id"].value_counts().to_pylist(), key=lambda counted: counted["counts"])["values"]
    found = [row for row in rows.select(VERSION_COLUMNS).to_pylist() if row["id"] == most]
    records = [{name: value_text(value) for name, value in row.items()} for row in sorted(found, key=lambda row: row["_valid_from"])]
    return Rows(records, dict, [Cell(name, lambda record, name=name: record[name]) for name in VERSION_COLUMNS], "No versions.")  # type: ignore[misc]


def value_text(value: Any) -> str:
    """Return a value on one line, cut to CELL characters."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case datetime() | date():
            text = value.isoformat().replace("+00:00", "Z")
        case dict() | list():
            text = json.dumps(value, ensure_ascii=False, default=str)
        case _:
            text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"
