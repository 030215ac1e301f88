"""Command `report`: writes the HTML page of the figures, one file with everything in it, which asks for nothing from any network."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from destination_s3_spark.cli.configuration import read_config, write_file
from destination_s3_spark.cli.inspection.commits import RecordedSync
from destination_s3_spark.cli.inspection.table import MOST_BLOCKS, RecordedChange, find_tables, read_all, read_table, report_unread
from destination_s3_spark.cli.report.figures import TableFigures, TableFinding, findings, table_figures
from destination_s3_spark.cli.report.scales import HEIGHT, WIDTH, Absent, Chart, number_scale, steps, thinned
from destination_s3_spark.cli.report.table_charts import END_TEXTS, SYNC_LOOKS, Quality, data_commits, points_of, quality, table_charts
from destination_s3_spark.cli.terminal import moment, number_text
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable, UnreadTable
from destination_s3_spark.wording import counted, duration_text, printable, size_text

OPEN_TABLES = 8
"""Most tables whose sections are open when the page is."""
SYNCS_LISTED = 10
"""Last sessions in the list of a table."""
FINDINGS_SHOWN = 12
"""Findings that are seen at once. The others fold out."""
SPARK_POINTS = 40
SCHEMAS_SHOWN = 12
"""Most schemas on a timeline, the newest ones."""
CHANGES_SHOWN = 8
"""Most changes of one schema that are named."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure about all tables. `value` is the number as it is recorded."""

    name: str
    text: str
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableSection:
    """A table with its charts. `share` is its part of the largest table's bytes, `spark` the SVG path of its rows over time."""

    anchor: str
    figures: TableFigures
    charts: tuple[Chart | Absent, ...]
    quality: Quality | Absent
    schemas: Timeline
    sessions: tuple[RecordedSync, ...]
    last: RecordedSync | None
    share: float
    spark: str
    remark: str


@dataclass(frozen=True, slots=True)
class Page:
    place: str
    made_at: datetime
    version: str
    tiles: tuple[Tile, ...]
    findings: tuple[TableFinding, ...]
    tables: tuple[TableSection, ...]
    unread: tuple[UnreadTable, ...]
    are_open: bool


def page(place: str, tables: Sequence[TableFigures], unread: Sequence[UnreadTable], made_at: datetime) -> Page:
    points = points_of(len(tables))
    largest = max([table.summary.bytes for table in tables], default=0) or 1
    found = findings(tables, unread)
    return Page(
        place,
        made_at,
        metadata.version("destination-s3-spark"),
        _tiles(tables, unread, found),
        found,
        tuple(_section(number, table, points, largest) for number, table in enumerate(tables, start=1)),
        tuple(unread),
        len(tables) <= OPEN_TABLES,
    )


def render(shown: Page) -> str:
    """Return the page as HTML. Every text is escaped: names of streams and fields come from sources."""
    environment = Environment(
        loader=PackageLoader("destination_s3_spark.cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    environment.filters |= {"number": number_text, "size": size_text, "moment": moment, "took": duration_text}
    environment.filters |= {"rows": lambda rows: counted(rows, "row"), "files": lambda files: counted(files, "file")}
    environment.tests |= {"absent": lambda chart: isinstance(chart, Absent)}
    environment.globals |= {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LOOKS": SYNC_LOOKS, "END_TEXTS": END_TEXTS, "FINDINGS_SHOWN": FINDINGS_SHOWN}
    return environment.get_template("page.html").render(page=shown)


def _safe(value: Any) -> Any:
    """Return the value without control characters, among them those that reverse the direction of the text around them."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _tiles(tables: Sequence[TableFigures], unread: Sequence[UnreadTable], found: Sequence[TableFinding]) -> tuple[Tile, ...]:
    rows, size, files, raw_size, raw_files = (
        sum(getattr(table.summary, what) for table in tables) for what in ("rows", "bytes", "files", "raw_bytes", "raw_files")
    )
    starts = [table.summary.last_sync_started_at for table in tables if table.summary.last_sync_started_at is not None]
    count = len(tables) + len(unread)
    return (
        Tile("Tables", number_text(count), count),
        Tile("Rows", number_text(rows), rows),
        Tile("Size", size_text(size), size, counted(files, "file")),
        Tile("Raw tables", size_text(raw_size), raw_size, counted(raw_files, "file")),
        Tile("Last sync", f"{max(starts):%Y-%m-%d}", None, f"{max(starts):%H:%M} UTC") if starts else Tile("Last sync", "none", None),
        Tile("To look at", number_text(len(found)), len(found)),
    )


def _section(number: int, table: TableFigures, points: int, largest: int) -> TableSection:
    syncs = [sync for sync in table.syncs if sync.sync_id is not None]
    return TableSection(
        f"table-{number}",
        table,
        table_charts(table, points),
        quality(table),
        timeline(table.schemas),
        tuple(reversed(table.syncs[-SYNCS_LISTED:])),
        syncs[-1] if syncs else None,
        100 * table.summary.bytes / largest,
        _spark(table),
        _left_out(table),
    )


def _left_out(table: TableFigures) -> str:
    if not table.first_block:
        return ""
    blocks = counted(table.first_block, "earlier block")
    return f"The charts begin at block {number_text(table.first_block)}. With --blocks, report reads the {blocks} too."


def _spark(table: TableFigures) -> str:
    """Return the path of the table's rows over time, in a plot of the size of a chart's."""
    drawn = thinned(data_commits(table), SPARK_POINTS)
    if not drawn:
        return ""
    values = [commit.table_rows for commit in drawn]
    _, line, _, _ = steps([commit.time for commit in drawn], values, number_scale(max(values), "rows"), [""] * len(drawn))
    return line


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """A schema: when it came, and in words what it changed."""

    version: str
    time: str
    columns: str
    changes: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The newest schemas, newest first. `remark` says how many are left out."""

    events: tuple[SchemaEvent, ...]
    remark: str


def timeline(changes: Sequence[RecordedChange]) -> Timeline:
    events = [_event(list(rows)) for _, rows in groupby(changes, key=lambda change: change.schema_id)]
    left = len(events) - SCHEMAS_SHOWN
    return Timeline(tuple(reversed(events[-SCHEMAS_SHOWN:])), f"{counted(left, 'earlier schema')} not shown." if left > 0 else "")


def _event(rows: list[RecordedChange]) -> SchemaEvent:
    first = rows[0]
    said = tuple(_change_text(row) for row in rows if row.change is not None)
    return SchemaEvent(
        f"version {first.version}" if first.version else f"schema {first.schema_id}",
        f"{moment(first.time)} UTC, block {first.block}",
        counted(first.columns, "column"),
        said[:CHANGES_SHOWN],
        max(0, len(said) - CHANGES_SHOWN),
    )


def _change_text(row: RecordedChange) -> str:
    types = " → ".join(text for text in (row.old, row.new) if text)
    return f"{row.change} {row.path}: {types}" if types else f"{row.change} {row.path}"


REPORTED_AT_ONCE = 4
"""Tables that are read at the same time. The blocks of each are read in parallel, too."""


def run(config_path: str, out: Path, most_blocks: int) -> int:
    """Write the page to `out`. Return 1 if a table could not be read; the page says why and shows the others."""
    written = write(table_factory(read_config(config_path)), out, most_blocks)
    tables = counted(len(written.tables) + len(written.unread), "table")
    sys.stdout.write(f"{out}: {tables}, {counted(len(written.findings), 'thing')} to look at\n")
    return report_unread(written.unread)


def write(factory: TableFactory, out: Path, most_blocks: int = MOST_BLOCKS) -> Page:
    """Write the page about the tables. Raises ConfigError if the file cannot be written."""
    found = find_tables(factory)
    publishers, uploads = factory.publishers(found), factory.orphans()

    def read(table: FoundTable) -> TableFigures:
        # Only the figures are kept: the blocks of very many tables would fill the memory.
        return table_figures(read_table(factory, table, publishers[table.stream], most_blocks), uploads)

    tables, unread = read_all(found, read, REPORTED_AT_ONCE)
    place = f"s3://{factory.config.s3_bucket_name}/{factory.template.base}"
    shown = page(place, tables, unread, datetime.now(UTC))
    write_file(out, render(shown).encode(), "page")
    return shown
