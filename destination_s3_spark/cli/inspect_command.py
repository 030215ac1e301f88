"""Command `inspect`: shows the tables under a configuration's bucket path, as recorded in their chains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from destination_s3_spark.cli import views
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.inspection.commits import ChangedValue, Commit, RecordedSync, changed_values, commits, merge_cost, syncs
from destination_s3_spark.cli.inspection.ddl import SqlEngine, ddl
from destination_s3_spark.cli.inspection.files import TableFile, file_totals, table_files
from destination_s3_spark.cli.inspection.summary import PublisherState, ReaderState, TableSummary, readers, summary
from destination_s3_spark.cli.inspection.table import (
    InspectedColumn,
    InspectedTable,
    columns,
    read_head,
    read_table,
    schema_changes,
    shown_or_unread,
)
from destination_s3_spark.cli.terminal import Output, Progress, Rows, Terminal, Width, write_json, write_rows
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.arrow import bare_flatbuffer
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTable, FoundTables, UnreadTable
from destination_s3_spark.tables.publishers.publication import Publisher

Publishers: TypeAlias = Mapping[StreamId, Sequence[Publisher]]
TABLES_AT_ONCE = 16
SYNCS_SHOWN = 10
"""Last sessions in the overview of one table."""


class SchemaForm(Enum):
    """The form of an Arrow schema in a file."""

    IPC = "ipc"
    """An encapsulated IPC message, which every Arrow library reads."""
    ODF = "odf"
    """A bare flatbuffer, as Open Data Fabric records it."""


class View(Enum):
    """A part of a table to look at."""

    FILES = "files"
    SCHEMA = "schema"
    SYNCS = "syncs"
    VALUES = "values"
    COMMITS = "commits"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tables to look at: all without a name. `table` is the name of a stream or its namespace, a dot and the name."""

    table: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Look:
    """What to print of the tables, and how."""

    view: View | None
    output: Output
    width: Width
    most_blocks: int


def run(config_path: str, chosen: Chosen, look: Look) -> int:
    """Print all tables, one table or a view of it. Return 1 if a table could not be read; the others are printed.

    Raises ConfigError if the configuration is wrong or there is no such table.
    """
    factory = table_factory(read_config(config_path))
    terminal = Terminal(look.width)
    with ThreadPoolExecutor(TABLES_AT_ONCE, "tables") as pool:
        found = replace(factory, map_tables=pool.map).find()
    publishers = factory.publishers(found)
    if chosen.table is None:
        return _report_unread(_all_tables(factory, publishers, found, look.output, terminal))
    tables = choose(factory, found, chosen)
    if look.output is not Output.TABLE:
        _require_one(tables)

    def show(table: FoundTable) -> None:
        with Progress(f"reading the chain of {table.stream}"):
            shown = publishers[table.stream] if look.view is None else ()
            read = read_table(factory, table, shown, look.most_blocks, keys=look.view is View.FILES)
        if look.view is None:
            _one_table(read, look.output, terminal)
        else:
            _one_view(read, look.view, look.output, terminal)

    return _report_unread([unread for table in tables if (unread := shown_or_unread(table, show)) is not None])


def _report_unread(unread: Sequence[UnreadTable]) -> int:
    """Say on stderr which tables could not be read, and return the exit code."""
    for table in unread:
        sys.stderr.write(f"{table.table}: {table.reason}\n")
    return 1 if unread else 0


def print_ddl(config_path: str, chosen: Chosen, engine: SqlEngine) -> int:
    """Print the statement that defines a table in an engine. Raises ConfigError if there is no such table or no statement."""
    config = read_config(config_path)
    factory = table_factory(config)
    table = _require_one(choose(factory, factory.find(), chosen))
    sys.stdout.write(ddl(read_head(factory, table), config, engine))
    return 0


def export_schema(config_path: str, chosen: Chosen, file: Path, form: SchemaForm) -> int:
    """Write a table's current Arrow schema to a file.

    Raises ConfigError when there is no such table or more than one, when it has no schema yet, or when the file cannot be written.
    """
    factory = table_factory(read_config(config_path))
    table = _require_one(choose(factory, factory.find(), chosen))
    found = read_head(factory, table).columns
    if found is None:
        raise ConfigError(f"The table of stream {table.stream} has no schema yet: no record of it was ever committed.")
    try:
        file.write_bytes(_schema_bytes(found, form))
    except OSError as error:
        raise ConfigError(f"The schema cannot be written to {file}: {error.strerror}.") from error
    sys.stdout.write(f"{file}: Arrow schema of {table.stream}, {len(found)} columns, form {form.value}\n")
    return 0


def choose(factory: TableFactory, found: FoundTables, chosen: Chosen) -> list[FoundTable]:
    """Choose the tables of a name. Raises ConfigError when there are none."""
    exact = [table for table in found.tables if str(table.stream) == chosen.table and chosen.namespace is None]
    return exact or factory.choose(found, chosen.table or "", chosen.namespace)


def _require_one(tables: Sequence[FoundTable]) -> FoundTable:
    if len(tables) > 1:
        names = ", ".join(str(table.stream) for table in tables)
        raise ConfigError(f"There are {len(tables)} streams of the name {tables[0].stream.name}: {names}. Add --namespace.")
    return tables[0]


def _schema_bytes(schema: pa.Schema, form: SchemaForm) -> bytes:
    return bare_flatbuffer(schema) if form is SchemaForm.ODF else schema.serialize().to_pybytes()


def _all_tables(factory: TableFactory, publishers: Publishers, found: FoundTables, output: Output, terminal: Terminal) -> list[UnreadTable]:
    """Print a line for each table. Return those that could not be read."""
    with ThreadPoolExecutor(TABLES_AT_ONCE, "tables") as pool, Progress("reading tables", len(found.tables)) as progress:

        def read(table: FoundTable) -> tuple[TableSummary, tuple[PublisherState, ...]]:
            head = read_head(factory, table, publishers[table.stream])
            return summary(head), readers(head)

        def read_safely(table: FoundTable) -> tuple[TableSummary, tuple[PublisherState, ...]] | UnreadTable:
            shown = shown_or_unread(table, read)
            progress.advance()
            return shown

        every = list(pool.map(read_safely, found.tables))
    unread = [*found.unread, *(one for one in every if isinstance(one, UnreadTable))]
    tables = [one for one in every if not isinstance(one, UnreadTable)]
    rows = [row for row, _ in tables]
    write_rows(views.summaries(rows, factory.place), output, TableSummary, terminal)
    if output is not Output.TABLE or not rows:
        return unread
    behind = [state for _, states in tables for state in states if state.state is not ReaderState.CURRENT]
    if behind:
        terminal.say("\nReaders do not see the last data of:", style="bold")
        for state in behind:
            terminal.say(f"{state.table}, {views.reader_line(state)}")
    waiting = [row for row in rows if row.waiting is not None]
    if waiting:
        terminal.say("\nNot merged yet:", style="bold")
        for row in waiting:
            terminal.say(f"{row.table}: {row.waiting}")
    terminal.say("\nMore about one of them: inspect TABLE, inspect TABLE files|schema|syncs|values|commits")
    return unread


def _one_table(table: InspectedTable, output: Output, terminal: Terminal) -> None:
    about, merges = summary(table), merge_cost(table)
    last = syncs(table.blocks)[-SYNCS_SHOWN:]
    parts = [("files", views.totals(file_totals(table))), ("columns", views.columns(columns(table))), ("syncs", views.syncs(last))]
    match output:
        case Output.TABLE:
            terminal.section(f"Table {table.stream}")
            terminal.facts(views.facts(about, merges))
            if table.publications:
                terminal.section("Readers")
            for state in readers(table):
                terminal.say(views.reader_line(state))
            _print_parts(parts, terminal)
        case Output.JSON:
            write_json({"table": about, "merges": merges, "readers": readers(table), **{title: shown.rows for title, shown in parts}})
        case Output.CSV:
            write_rows(views.summaries([about], ""), output, TableSummary, terminal)


def _one_view(table: InspectedTable, view: View, output: Output, terminal: Terminal) -> None:
    if output is Output.TABLE:
        first = table.blocks[0].sequence_number if table.blocks else 0
        if first and view is not View.SCHEMA:
            terminal.say(f"(read from block {first} on; --blocks N reads more of the chain)")
    if view is View.SCHEMA:
        _schema(table, output, terminal)
        return
    shown, row_type = _VIEWS[view](table)
    write_rows(shown, output, row_type, terminal)


def _schema(table: InspectedTable, output: Output, terminal: Terminal) -> None:
    shown = views.columns(columns(table))
    parts = [("columns", shown), ("history", views.schemas(schema_changes(table.schemas)))]
    match output:
        case Output.TABLE:
            _print_parts(parts, terminal)
        case Output.JSON:
            write_json({title: rows.rows for title, rows in parts})
        case Output.CSV:
            write_rows(shown, output, InspectedColumn, terminal)


def _print_parts(parts: Sequence[tuple[str, Rows]], terminal: Terminal) -> None:
    for title, shown in parts:
        terminal.section(_TITLES[title])
        terminal.table(shown)


_TITLES = {"files": "Files", "columns": "Columns", "syncs": "Last syncs", "history": "Schemas"}
_VIEWS: Mapping[View, Callable[[InspectedTable], tuple[Rows, type[Any]]]] = {
    View.FILES: lambda table: (views.files(table_files(table)), TableFile),
    View.SYNCS: lambda table: (views.syncs(syncs(table.blocks)), RecordedSync),
    View.VALUES: lambda table: (views.values(changed_values(table.blocks)), ChangedValue),
    View.COMMITS: lambda table: (views.commits(commits(table)), Commit),
}
