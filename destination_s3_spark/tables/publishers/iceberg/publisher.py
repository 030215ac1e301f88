"""Publisher of Iceberg tables, and the rules for which tables it publishes, under which names and to which addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.config.iceberg_options import IcebergOptions, IcebergRest, IcebergSql
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.formats.parquet import PARQUET
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.arrow import arrow_type
from destination_s3_spark.schema.encodings import DESTINATION_S3, ExtractedAtEncoding, has_time
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.endpoint import check_endpoint
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.table_paths import ICEBERG_FOLDER, INTERNAL_FOLDER
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.iceberg.database import require_allowed_database
from destination_s3_spark.tables.publishers.publication import (
    NotPublished,
    PublisherKind,
    ShownTable,
    TimeOf,
    recorded_schema,
    require_current_types,
    rivals_of,
)
from destination_s3_spark.tables.publishers.sql_types import catalog_name
from destination_s3_spark.tables.rules import MergeRule, waiting_properties

if TYPE_CHECKING:  # pyiceberg is an extra, and a second of start-up time
    from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection
    from destination_s3_spark.tables.publishers.iceberg.table import CatalogTable

NO_NAMESPACE = "default"
"""The Iceberg namespace of streams without a namespace."""
URI = "publish.iceberg.uri"


class IcebergCatalog:
    """The configured catalog, which is connected at first use."""

    def __init__(self, options: IcebergOptions, settings: S3Settings) -> None:
        self.options = options
        self.settings = settings

    @cached_property
    def connection(self) -> Connection:
        from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection  # noqa: PLC0415

        return Connection(self.options, self.settings)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """Publisher of one table.

    `folder`: as `ShownTable.owner`. `rival`: another stream with the same name in the catalog. `neighbour`: another stream
    whose files lie in the same folder.
    """

    catalog: IcebergCatalog
    identifier: tuple[str, str]
    folder: str
    rival: StreamId | None = None
    neighbour: StreamId | None = None
    merge_rule: MergeRule | None = None
    time_of: TimeOf | None = None

    name: ClassVar[str] = "iceberg"

    def asking(self, time_of: TimeOf) -> IcebergTable:
        return replace(self, time_of=time_of)

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:  # noqa: ARG002
        """Commit one snapshot with the files that were added and removed since the last one. Return the block as the mark."""
        if state.schema is not None:
            self._require_own_place()
            self.require_fitting(store, state, live)
            files = {self._uri(file.key): file for file in live.settled(FileKind.FINAL)}
            with self._connected(store, state) as table:
                table.publish(state, files, waiting_properties(state.contents, self.merge_rule), self.time_of)
        return str(state.sequence_number)

    def begin_anew(self, store: ObjectStore, state: TableState) -> None:
        """Drop the table in the catalog, then delete its metadata. Raises NotPublished."""
        folder = self._metadata(state)
        if next(iter(store.list(folder)), None) is None:
            return  # nothing was published, perhaps because the name or the folder is another stream's
        self._require_own_place()
        with self._connected(store, state) as table:
            if table.load() is not None:
                table.catalog.drop_table(self.identifier)
        store.delete([info.key for info in store.list(folder)])

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        """Return the block of the table's last publish. Takes one call of the catalog. A table without columns has nothing to show."""
        if state.schema is None:
            return state.sequence_number
        self._require_own_place()
        with self._connected(store, state) as table:
            return table.published_block(state)

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:  # noqa: ARG002
        """Raise NotPublished if Iceberg's readers could not read the files."""
        if state.schema is not None:
            _require_own_parquet(live)
            require_current_types(state, live)
            _require_readable_times(state)

    def _require_own_place(self) -> None:
        if self.rival is not None:
            raise NotPublished(
                f"Stream '{self.rival}' would have the same name {'.'.join(self.identifier)} in the Iceberg catalog. Give the streams "
                "names or namespaces that differ in more than signs and the case of letters, and leave publish.iceberg.namespace empty."
            )
        if self.neighbour is not None:
            raise NotPublished(
                f"The files of stream '{self.neighbour}' lie in the same folder, and an Iceberg table needs one of its own. Write "
                "${NAMESPACE} and ${STREAM_NAME} into s3_path_format; tables that exist keep their folders."
            )

    @contextmanager
    def _connected(self, store: ObjectStore, state: TableState) -> Iterator[CatalogTable]:
        """Provide the table in the catalog. Raises as `Connection.calls`."""
        folder = self._metadata(state)
        location, metadata = (self._uri(key).rstrip("/") for key in (state.identity.final_root, folder))
        with self.catalog.connection.calls(store, folder) as catalog:
            from destination_s3_spark.tables.publishers.iceberg.table import CatalogTable  # noqa: PLC0415

            yield CatalogTable(catalog, store, self.identifier, self._uri(self.folder), location, metadata)

    def _metadata(self, state: TableState) -> str:
        return f"{state.identity.final_root}{ICEBERG_FOLDER}"

    def _uri(self, key: str) -> str:
        return f"s3://{self.catalog.settings.bucket}/{key}"


def _of_tables(config: Config, tables: Sequence[ShownTable]) -> dict[ShownTable, IcebergTable]:
    """Make a publisher for each Parquet table if a catalog is configured."""
    options = config.publish.iceberg
    if options is None or not isinstance(config.format, ParquetFormat):
        return {}
    catalog = IcebergCatalog(options, s3_settings(config))
    names = {table: table_name(options, table.name) for table in tables}
    rivals, neighbours = rivals_of(names), rivals_of({table: table.root for table in tables})
    return {
        table: IcebergTable(catalog, name, table.owner, rivals.get(table), neighbours.get(table), table.merge_rule)
        for table, name in names.items()
    }


def _require_own_parquet(live: LiveFiles) -> None:
    if live.adopted:
        raise NotPublished(
            f"{len(live.adopted):,} live files come from destination-s3, whose timestamps in milliseconds Iceberg's readers misread. Run a "
            "refresh that removes the records: it replaces the files."
        )
    other = next((file.key for file in live.settled(FileKind.FINAL) if format_of(file.key) is not PARQUET), None)
    if other is not None:
        raise NotPublished(
            f"Live files of the table are not Parquet, for example '{other}'. Run a refresh that removes the records: it replaces them."
        )


def _require_readable_times(state: TableState) -> None:
    schema = recorded_schema(state)
    times = [field.name for field in stored_fields(schema) if has_time(arrow_type(field.type))]
    if times:
        raise NotPublished(
            f"Spark cannot read an Iceberg table with TIME columns, and this one has {', '.join(times)}. Set format.time_encoding to int64 "
            "and run a refresh that removes the records."
        )
    if (schema.encodings or DESTINATION_S3).extracted_at is ExtractedAtEncoding.MILLIS:
        raise NotPublished(
            "The table's files have timestamps in milliseconds, which Iceberg's readers misread. Run a refresh that removes the records: "
            "its files have microseconds."
        )


def table_name(options: IcebergOptions, stream: StreamId) -> tuple[str, str]:
    """Return the namespace and the name of a stream's table in the catalog."""
    return options.namespace or catalog_name(stream.namespace or NO_NAMESPACE), catalog_name(stream.name)


def _require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:  # noqa: ARG001
    """Raise ConfigError if tables cannot be published at all: in this format, by this installation, or to this address."""
    options = config.publish.iceberg
    if options is None:
        return
    if not isinstance(config.format, ParquetFormat):
        raise ConfigError(
            f"publish.iceberg is for Parquet tables, and format.format_type is {config.format.format_type}. Choose Parquet or remove "
            "publish.iceberg."
        )
    if find_spec("pyiceberg") is None or (isinstance(options, IcebergSql) and find_spec("sqlalchemy") is None):
        raise ConfigError("publish.iceberg needs a package that is not installed: pip install destination-s3-spark[iceberg]")
    require_allowed(options)


def _check(config: Config, store: ObjectStore, template: PathTemplate) -> None:
    """Create, change and drop a table in the catalog. Raises ConfigError."""
    options = config.publish.iceberg
    if options is None:
        return
    catalog = IcebergCatalog(options, s3_settings(config))
    name = f"airbyte_check_{uuid4().hex}"
    folder = f"{template.base}{INTERNAL_FOLDER}/check/{name}"
    uri = f"s3://{catalog.settings.bucket}/{folder}"
    try:
        with catalog.connection.calls(store, f"{folder}/") as connected:
            from destination_s3_spark.tables.publishers.iceberg.table import CatalogTable  # noqa: PLC0415

            CatalogTable(connected, store, (options.namespace or NO_NAMESPACE, name), uri, uri, uri).try_out()
    except NotPublished as error:
        raise ConfigError(f"Tables cannot be published for Iceberg: {error}") from error
    finally:
        with suppress(SyncError):
            store.delete([info.key for info in store.list(f"{folder}/")])


ICEBERG = PublisherKind(_of_tables, _require_publishable, _check)


def require_allowed(options: IcebergOptions) -> None:
    """Raise ConfigError unless connections to the catalog are allowed from here."""
    match options:
        case IcebergRest():
            check_endpoint(options.uri, URI)
            if options.oauth2_server_uri is not None:
                check_endpoint(options.oauth2_server_uri, "publish.iceberg.oauth2_server_uri")
        case IcebergSql():
            require_allowed_database(options)
