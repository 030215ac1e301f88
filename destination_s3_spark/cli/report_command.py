"""Command `report`: writes a page about the tables of a configuration, with charts, for people to look at."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.inspection.table import MOST_BLOCKS, read_table, shown_or_unread
from destination_s3_spark.cli.report.figures import TableFigures, table_figures
from destination_s3_spark.cli.report.page import page, render
from destination_s3_spark.cli.terminal import Progress
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable, FoundTables, UnreadTable
from destination_s3_spark.wording import counted

FINDERS = 16
REPORTED_AT_ONCE = 4
"""Tables that are read at the same time. The blocks of each are read in parallel, too."""


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """A page that was written: how many tables it shows, what is to look at, and the tables that could not be read."""

    tables: int
    findings: int
    unread: tuple[UnreadTable, ...]

    @property
    def exit_code(self) -> int:
        """1 if a table could not be read."""
        return 1 if self.unread else 0


def run(config_path: str, out: Path, most_blocks: int) -> int:
    """Write the page to `out`. Return 1 if a table could not be read; the page says why and shows the others."""
    written = write(table_factory(read_config(config_path)), out, most_blocks)
    sys.stdout.write(f"{out}: {counted(written.tables, 'table')}, {counted(written.findings, 'thing')} to look at\n")
    for table in written.unread:
        sys.stderr.write(f"{table.table}: {table.reason}\n")
    return written.exit_code


def write(factory: TableFactory, out: Path, most_blocks: int = MOST_BLOCKS) -> WrittenPage:
    """Write the page about the tables. Raises ConfigError if the file cannot be written."""
    with ThreadPoolExecutor(FINDERS, "tables") as pool:
        found = replace(factory, map_tables=pool.map).find()
    read = _read(factory, found, most_blocks)
    tables = [table for table in read if isinstance(table, TableFigures)]
    unread = (*found.unread, *(table for table in read if isinstance(table, UnreadTable)))
    place = f"s3://{factory.config.s3_bucket_name}/{factory.template.base}"
    shown = page(place, tables, unread, datetime.now(UTC))
    try:
        out.write_text(render(shown), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The page cannot be written to {out}: {error.strerror}.") from error
    return WrittenPage(len(tables) + len(unread), len(shown.findings), unread)


def _read(factory: TableFactory, found: FoundTables, most_blocks: int) -> list[TableFigures | UnreadTable]:
    publishers, uploads = factory.publishers(found), factory.orphans()
    with ThreadPoolExecutor(REPORTED_AT_ONCE, "tables") as pool, Progress("reading tables", len(found.tables)) as progress:

        def read(table: FoundTable) -> TableFigures:
            # Only the figures are kept: the blocks of very many tables would fill the memory.
            return table_figures(read_table(factory, table, publishers[table.stream], most_blocks), uploads)

        def read_safely(table: FoundTable) -> TableFigures | UnreadTable:
            figures = shown_or_unread(table, read)
            progress.advance()
            return figures

        return list(pool.map(read_safely, found.tables))
