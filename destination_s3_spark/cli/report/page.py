"""Command `report`: writes the HTML page of the figures, one file with everything in it, which asks for nothing from any network."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli import presentable
from destination_s3_spark.cli.configuration import read_config, write_file
from destination_s3_spark.cli.inspection.table import MOST_BLOCKS, RecordedChange, find_tables, read_all, read_table, report_unread
from destination_s3_spark.cli.report.figures import TableFigures, TableFinding, findings, table_figures
from destination_s3_spark.cli.report.scales import HEIGHT, WIDTH, Absent, number_scale, steps, thinned
from destination_s3_spark.cli.report.table_charts import END_TEXTS, SYNC_LOOKS, data_commits, points_of, quality, table_charts
from destination_s3_spark.cli.terminal import moment, number_text
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import UnreadTable
from destination_s3_spark.wording import counted, duration_text, size_text

SPARK_POINTS = 40
REPORTED_AT_ONCE = 4
"""Tables that are read at the same time. The blocks of each are read in parallel, too."""


@dataclass(frozen=True, slots=True)
class Page:
    """The figures of all tables under a place, and what is to be said about them."""

    place: str
    made_at: datetime
    findings: tuple[TableFinding, ...]
    tables: Sequence[TableFigures]
    unread: Sequence[UnreadTable]


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

    def read(table: Table) -> TableFigures:
        # Only the figures are kept: the blocks of very many tables would fill the memory.
        return table_figures(read_table(factory, table, publishers[table.stream], most_blocks), uploads)

    tables, unread = read_all(found, read, REPORTED_AT_ONCE)
    shown = page(f"s3://{factory.config.s3_bucket_name}/{factory.template.base}", tables, unread, datetime.now(UTC))
    write_file(out, render(shown).encode(), "page")
    return shown


def page(place: str, tables: Sequence[TableFigures], unread: Sequence[UnreadTable], made_at: datetime) -> Page:
    return Page(place, made_at, findings(tables, unread), tables, unread)


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
    environment.filters |= {"number": number_text, "size": size_text, "moment": moment, "took": duration_text, "counted": counted}
    environment.filters |= {"by_schema": _by_schema, "change": _change_text, "growth_line": _growth_line, "quality": quality}
    environment.filters["charts"] = partial(table_charts, most_points=points_of(len(shown.tables)))
    environment.tests["absent"] = lambda chart: isinstance(chart, Absent)
    environment.globals |= {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LOOKS": SYNC_LOOKS, "END_TEXTS": END_TEXTS}
    return environment.get_template("page.html").render(page=shown, version=metadata.version("destination-s3-spark"))


def _safe(value: Any) -> Any:
    """Return the value without secrets and control characters, among them those that reverse the direction of the text around them."""
    return presentable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _growth_line(table: TableFigures) -> str:
    """Return the SVG path of the table's rows over time, in a plot of the size of a chart's."""
    drawn = thinned(data_commits(table), SPARK_POINTS)
    if not drawn:
        return ""
    values = [commit.table_rows for commit in drawn]
    _, line, _ = steps([commit.time for commit in drawn], values, number_scale(max(values), "rows"), [""] * len(drawn))
    return line


def _by_schema(changes: Sequence[RecordedChange]) -> list[list[RecordedChange]]:
    return [list(rows) for _, rows in groupby(changes, key=lambda change: change.schema_id)]


def _change_text(row: RecordedChange) -> str:
    types = " → ".join(text for text in (row.old, row.new) if text)
    return f"{row.change} {row.path}: {types}" if types else f"{row.change} {row.path}"
