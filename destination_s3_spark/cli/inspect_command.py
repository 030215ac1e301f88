"""Command `inspect`: shows the tables under a configuration's bucket path, as recorded in their chains."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

import pyarrow as pa

from destination_s3_spark.cli import inspection, report, schema_report
from destination_s3_spark.cli.configuration import read_config
from destination_s3_spark.cli.inspection import InspectedTable
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.flatbuffer import bare_flatbuffer
from destination_s3_spark.tables.factory import table_factory


class SchemaForm(Enum):
    """The form of an Arrow schema in a file."""

    IPC = "ipc"
    """An encapsulated IPC message, which every Arrow library reads."""
    ODF = "odf"
    """A bare flatbuffer, as Open Data Fabric records it."""


def run(config_path: str, name: str | None, namespace: str | None) -> int:
    """Print all tables, or one stream's in detail. Raises ConfigError if the configuration is wrong or the stream has no table."""
    factory = table_factory(read_config(Path(config_path)))
    found = factory.find()
    publishers = factory.publishers(found)
    chosen = found if name is None else factory.choose(found, name, namespace)
    tables = [inspection.read_table(factory, table, publishers[table.stream]) for table in chosen]
    sys.stdout.write(_all_tables(tables, factory.place) if name is None else "\n".join(map(_one_table, tables)))
    return 0


def export_schema(config_path: str, name: str, namespace: str | None, file: Path, form: SchemaForm) -> int:
    """Write a table's current Arrow schema to a file.

    Raises ConfigError when there is no such table or more than one, when it has no schema yet, or when the file cannot be written.
    """
    factory = table_factory(read_config(Path(config_path)))
    chosen = factory.choose(factory.find(), name, namespace)
    if len(chosen) > 1:
        raise ConfigError(
            f"There are {len(chosen)} streams of the name {name}: {', '.join(str(t.stream) for t in chosen)}. Add --namespace."
        )
    columns = inspection.read_table(factory, chosen[0]).columns
    if columns is None:
        raise ConfigError(f"The table of stream {chosen[0].stream} has no schema yet: no record of it was ever committed.")
    try:
        file.write_bytes(_schema_bytes(columns, form))
    except OSError as error:
        raise ConfigError(f"The schema cannot be written to {file}: {error.strerror}.") from error
    sys.stdout.write(f"{file}: Arrow schema of {chosen[0].stream}, {len(columns)} columns, form {form.value}\n")
    return 0


def _schema_bytes(schema: pa.Schema, form: SchemaForm) -> bytes:
    return bare_flatbuffer(schema) if form is SchemaForm.ODF else schema.serialize().to_pybytes()


def _all_tables(tables: list[InspectedTable], place: str) -> str:
    if not tables:
        return f"No tables under {place}.\n"
    behind = report.not_current(tables)
    parts = [report.overview(tables), *([f"Readers do not see the last data of:\n{behind}"] if behind else [])]
    return "\n\n".join([*parts, "More about one of them: --stream NAME\n"])


def _one_table(table: InspectedTable) -> str:
    sections = {
        f"Table {table.stream}": report.table_state(table),
        "Readers": report.readers(table),
        "Files": report.files(table),
        "Columns": report.columns(table),
        "Recovered columns": schema_report.recovered_columns(table),
        "Schemas": schema_report.history(table),
        "Chain": report.chain(table),
    }
    return "\n".join(report.section(title, text) for title, text in sections.items() if text)
