"""Command `inspect`: shows the tables under a configuration's bucket path, as recorded in their chains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from click import UsageError

from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli import views
from destination_s3_spark.cli.configuration import read_config, write_file
from destination_s3_spark.cli.inspection.commits import changed_values, commits, merge_cost, syncs
from destination_s3_spark.cli.inspection.ddl import SqlEngine, ddl
from destination_s3_spark.cli.inspection.summary import PublisherState, ReaderState, TableSummary, readers, summary
from destination_s3_spark.cli.inspection.table import (
    TABLES_AT_ONCE,
    InspectedTable,
    columns,
    file_totals,
    find_tables,
    read_all,
    read_head,
    read_table,
    report_unread,
    schema_changes,
    shown_or_unread,
    table_files,
)
from destination_s3_spark.cli.terminal import Output, Progress, Rows, Terminal, write_json, write_rows
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.arrow import bare_flatbuffer
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.found import FoundTables, UnreadTable, without_schema
from destination_s3_spark.tables.publishers.publication import Publisher

Publishers: TypeAlias = Mapping[StreamId, Sequence[Publisher]]
SYNCS_SHOWN = 10
"""Last sessions in the overview of one table."""


def run(  # noqa: PLR0913 (one parameter per option)
    config_path: str,
    name: str | None,
    namespace: str | None,
    *,
    table: str | None,
    view: str | None,
    output: str,
    wide: bool,
    most_blocks: int,
    engine: str | None,
    schema_file: Path | None,
    form: str,
) -> int:
    """Print all tables, one table, a view of it or its statement for an engine, or write its schema.

    `table` is another form of `name`. Returns 1 if a table could not be read; the others are printed. Raises UsageError, and ConfigError
    if the configuration is wrong, there is no such table or its schema, no statement, or a file that cannot be written.
    """
    if name is not None and table is not None:
        raise UsageError(f"TABLE is {table} and --stream is {name}: name the table once.")
    name = name or table
    factory, terminal = table_factory(read_config(config_path)), Terminal(wide=wide)
    if engine is not None:
        head = _head(factory, name, namespace, "--ddl", "prints the statement")
        sys.stdout.write(ddl(head, factory.config, SqlEngine(engine)))
        return 0
    if schema_file is not None:
        head = _head(factory, name, namespace, "--export-schema", "writes the schema")
        return _export_schema(head, schema_file, form)
    shown_as, found = Output(output), find_tables(factory)
    publishers = factory.publishers(found)
    if name is None:
        found = replace(found, tables=tuple(factory.choose(found, None, namespace)))
        return report_unread(_all_tables(factory, publishers, found, shown_as, terminal))
    tables = choose(factory, found, name, namespace)
    if shown_as is not Output.TABLE:
        _require_one(tables)

    def show(one: Table) -> None:
        with Progress(f"reading the chain of {one.stream}"):
            shown = publishers[one.stream] if view is None else ()
            read = read_table(factory, one, shown, most_blocks, keys=view == "files")
        if view is None:
            _one_table(read, shown_as, terminal)
        else:
            _one_view(read, view, shown_as, terminal)

    return report_unread([unread for one in tables if (unread := shown_or_unread(one, show)) is not None])


def _head(factory: TableFactory, name: str | None, namespace: str | None, option: str, does: str) -> InspectedTable:
    """Read the head of the table of an option. Raises UsageError without a name, ConfigError if there is no such table or more than one."""
    if name is None:
        raise UsageError(f"{option} {does} of one table: say which, as in inspect TABLE {option}.")
    return read_head(factory, _require_one(choose(factory, factory.find(), name, namespace)))


def _export_schema(table: InspectedTable, file: Path, form: str) -> int:
    """Write a table's current Arrow schema to a file, as an encapsulated IPC message or (odf) a bare flatbuffer. Raises ConfigError."""
    found = table.columns
    if found is None:
        raise without_schema(table.stream)
    write_file(file, bare_flatbuffer(found) if form == "odf" else found.serialize().to_pybytes(), "schema")
    sys.stdout.write(f"{file}: Arrow schema of {table.stream}, {len(found)} columns, form {form}\n")
    return 0


def choose(factory: TableFactory, found: FoundTables, name: str, namespace: str | None) -> list[Table]:
    """Choose the tables of a name, which may begin with the namespace and a dot. Raises ConfigError when there are none."""
    exact = [table for table in found.tables if str(table.stream) == name and namespace is None]
    return exact or factory.choose(found, name, namespace)


def _require_one(tables: Sequence[Table]) -> Table:
    if len(tables) > 1:
        names = ", ".join(str(table.stream) for table in tables)
        raise ConfigError(f"There are {len(tables)} streams of the name {tables[0].stream.name}: {names}. Add --namespace.")
    return tables[0]


def _all_tables(factory: TableFactory, publishers: Publishers, found: FoundTables, output: Output, terminal: Terminal) -> list[UnreadTable]:
    """Print a line for each table. Return those that could not be read."""

    def read(table: Table) -> tuple[TableSummary, tuple[PublisherState, ...]]:
        head = read_head(factory, table, publishers[table.stream])
        return summary(head), readers(head)

    tables, unread = read_all(found, read, TABLES_AT_ONCE)
    rows = [row for row, _ in tables]
    write_rows(views.summaries(rows, factory.place), output, terminal)
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
    held = [row for row in rows if row.held_back]
    if held:
        terminal.say("\nHeld back:", style="bold")
        for row in held:
            terminal.say(f"{row.table}: {views.pending(row)}")
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
            write_rows(views.summaries([about], ""), output, terminal)


def _one_view(table: InspectedTable, view: str, output: Output, terminal: Terminal) -> None:
    if view == "schema":
        _schema(table, output, terminal)
        return
    first = table.blocks[0].sequence_number if table.blocks else 0
    if first and output is Output.TABLE:
        terminal.say(f"(read from block {first} on; --blocks N reads more of the chain)")
    write_rows(_VIEWS[view](table), output, terminal)


def _schema(table: InspectedTable, output: Output, terminal: Terminal) -> None:
    shown = views.columns(columns(table))
    parts = [("columns", shown), ("history", views.schemas(schema_changes(table.schemas)))]
    match output:
        case Output.TABLE:
            _print_parts(parts, terminal)
        case Output.JSON:
            write_json({title: rows.rows for title, rows in parts})
        case Output.CSV:
            write_rows(shown, output, terminal)


def _print_parts(parts: Sequence[tuple[str, Rows]], terminal: Terminal) -> None:
    for title, shown in parts:
        terminal.section(_TITLES[title])
        terminal.table(shown)


_TITLES = {"files": "Files", "columns": "Columns", "syncs": "Last syncs", "history": "Schemas"}
_VIEWS: Mapping[str, Callable[[InspectedTable], Rows]] = {
    "files": lambda table: views.files(table_files(table)),
    "syncs": lambda table: views.syncs(syncs(table.blocks)),
    "values": lambda table: views.values(changed_values(table.blocks)),
    "commits": lambda table: views.commits(commits(table)),
}
