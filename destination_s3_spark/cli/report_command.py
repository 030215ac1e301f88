"""Command `report`: writes a page about the tables of a configuration, with charts, for people to look at."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from destination_s3_spark.cli.configuration import read_config, write_file
from destination_s3_spark.cli.inspection.table import MOST_BLOCKS, find_tables, read_all, read_table, report_unread
from destination_s3_spark.cli.report.figures import TableFigures, table_figures
from destination_s3_spark.cli.report.page import Page, page, render
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable
from destination_s3_spark.wording import counted

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
