"""A table in a bucket, its Iceberg table in a catalog on sqlite, and readers of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.config.iceberg_options import IcebergSql
from destination_s3_spark.schema.arrow import META_FIELDS, schema_to_text
from destination_s3_spark.schema.field_ids import FieldIds, first_ids, later_ids, with_ids
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers.iceberg.publisher import IcebergCatalog, IcebergTable
from unit_tests.lake.memory_bucket import ENDPOINT
from unit_tests.lake.memory_s3 import arrow_filesystem
from unit_tests.schema.of_arrow import recorded

NAME = ("shop", "users")
MICROS = pa.timestamp("us", tz="UTC")
MICROS_ENCODING = {"extractedAt": "micros", "time": "time"}
OWN_COLUMNS = [field.with_type(MICROS) if field.name == "_airbyte_extracted_at" else field for field in META_FIELDS]


def sql_options(folder: Path) -> IcebergSql:
    return IcebergSql(database_uri=f"sqlite:///{folder}/catalog.db", catalog_name="lake")


def published(folder: Path, settings: S3Settings, chain_folder: str) -> IcebergTable:
    """The publisher of one table, with a connection of its own."""
    return IcebergTable(IcebergCatalog(sql_options(folder), settings), NAME, chain_folder)


def properties(settings: S3Settings) -> dict[str, str]:
    """What a reader needs besides the catalog: the store, through Arrow's own client."""
    keys = settings.credentials
    assert keys is not None
    return {
        "s3.endpoint": settings.endpoint or "",
        "s3.access-key-id": keys.access_key_id,
        "s3.secret-access-key": keys.secret_access_key,
        "s3.region": settings.region,
    }


def reader(folder: Path, settings: S3Settings) -> Catalog:
    """The catalog as another program sees it."""
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", **properties(settings))


def _read_memory() -> None:
    """Let pyiceberg reach buckets in memory, as `memory_s3.install` lets the connector."""
    real = PyArrowFileIO._initialize_s3_fs

    def filesystem(files: PyArrowFileIO, netloc: str | None) -> FileSystem:
        return arrow_filesystem() if files.properties.get("s3.endpoint") == ENDPOINT else real(files, netloc)

    PyArrowFileIO._initialize_s3_fs = filesystem  # type: ignore[method-assign, assignment]


_read_memory()


class Lake:
    """A table of `make_table`, written by sessions that publish it."""

    def __init__(self, table: Any, folder: Path) -> None:
        self.table = table
        self.folder = folder
        self._columns, self._ids, self._last_id = pa.schema([]), FieldIds(), 0

    def publisher(self) -> IcebergTable:
        return published(self.folder, self.table.settings, self.table.table.folder)

    def session(self, sync_id: int) -> TableWriter:
        writer: TableWriter = self.table.writer(sync_id, publishers=[self.publisher()])
        return writer

    def set_schema(self, writer: TableWriter, schema_id: int, columns: Sequence[tuple[str, pa.DataType]], **more: object) -> pa.Schema:
        """Make these the data columns, beside the connector's own in microseconds; returns the whole schema."""
        schema = self._with_ids(pa.schema([*OWN_COLUMNS, *columns]))
        event = {
            "schemaId": schema_id,
            "version": "1-0-0",
            "fields": recorded(columns, schema_id),
            "encodings": MICROS_ENCODING,
            "arrowSchema": schema_to_text(schema),
            "fieldIds": list(self._ids),
            "lastFieldId": self._last_id,
        }
        writer.open()
        writer.ensure_schema({**event, **more})
        return schema

    def _with_ids(self, columns: pa.Schema) -> pa.Schema:
        """Give the columns field ids, as those that follow the columns before."""
        ids = later_ids(self._columns, self._ids, self._last_id, columns) if self._ids else first_ids(columns)
        self._columns, self._ids, self._last_id = columns, ids, max(self._last_id, *ids)
        return with_ids(columns, ids)

    def append(self, writer: TableWriter, schema: pa.Schema, *rows: dict[str, object]) -> FileEntry:
        file: FileEntry = self.table.stage(writer, FileKind.FINAL, self.table.rows(schema, *rows))
        self.table.commit(writer, file)
        return file

    def merge(self, writer: TableWriter, schema: pa.Schema, *rows: dict[str, object]) -> FileEntry:
        """Replace all final files by one."""
        file: FileEntry = self.table.stage(writer, FileKind.FINAL, self.table.rows(schema, *rows))
        writer.merge([file], writer.live_files().of(FileKind.FINAL), None)
        return file

    def synced(self, sync_id: int, columns: Sequence[tuple[str, pa.DataType]], *rows: dict[str, object], schema_id: int = 0) -> TableWriter:
        """A session from start to end."""
        writer = self.session(sync_id)
        self.append(writer, self.set_schema(writer, schema_id, columns), *rows)
        writer.close()
        return writer

    def catalog(self) -> Catalog:
        return reader(self.folder, self.table.settings)

    def iceberg(self) -> Table:
        """The Iceberg table as another program sees it."""
        return self.catalog().load_table(NAME)

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """The rows that another program reads through Iceberg, in the order of their first column."""
        found = self.iceberg().scan(selected_fields=columns or ("*",)).to_arrow().to_pylist()
        return sorted(found, key=lambda row: str(next(iter(row.values()))))

    def paths(self) -> set[str]:
        """The keys of the files in the Iceberg table."""
        bucket = f"s3://{self.table.settings.bucket}/"
        return {task.file.file_path.removeprefix(bucket) for task in self.iceberg().scan().plan_files()}

    def live(self) -> set[str]:
        """The keys of the live final files by the chain."""
        writer = self.session(0)
        writer.catch_up()
        return {file.key for file in writer.live_files().of(FileKind.FINAL)}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "airbyte"]
