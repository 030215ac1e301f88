"""Publisher that registers tables in the AWS Glue Data Catalog, so that Athena and Redshift Spectrum find them.

Glue holds no data and no list of files. A table is registered once, and again when its columns change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import uuid4

from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.glue import GlueChanged, GlueFailed, GlueTables
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.publication import (
    NotPublished,
    PublisherKind,
    ShownTable,
    TimeOf,
    recorded_schema,
    require_current_types,
    rivals_of,
    undone_by,
)
from destination_s3_spark.tables.publishers.sql_types import HIVE, catalog_name, sql_columns
from destination_s3_spark.tables.publishers.symlink import MANIFEST
from destination_s3_spark.tables.rules import WAITING_PROPERTIES, MergeRule, waiting_properties

OWNER = "airbyte.table-id"
"""Table parameter: the S3 URI of the folder of the table's chain, or of a history's. A table with another one, or none, is not ours."""
BLOCK = "airbyte.block"
BLOCK_DIGITS = 20
"""Table parameter: number of the newest block of the chain when the columns were registered."""
TRIES = 4
"""Most attempts while other programs change the table at the same time."""
NAMESPACE_VARIABLE = "${NAMESPACE}"

logger = logging.getLogger("airbyte")

_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"

Columns = Sequence[Field]
Define = Callable[[str, Columns], dict[str, Any]]
"""Makes the parts of a definition that depend on how the table is read, from the URI of its folder and its columns."""


def symlink_definition(folder: str, columns: Columns) -> dict[str, Any]:
    """Return the definition of a table that is read through its symlink manifest.

    Names of columns are in small letters, as Glue stores them and its readers match them with those of files, in whatever case.
    """
    return {
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
        "StorageDescriptor": {
            "Columns": [{"Name": name.lower(), "Type": kind} for name, kind in sql_columns(columns, HIVE).typed],
            "Location": f"{folder}{MANIFEST.rpartition('/')[0]}/",
            "InputFormat": "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            "SerdeInfo": {"SerializationLibrary": _PARQUET_SERDE},
        },
    }


def delta_definition(folder: str, columns: Columns) -> dict[str, Any]:  # noqa: ARG001 - engines take the columns from the log
    """Return the definition of a table that is read through its Delta log.

    Trino takes the location from the SerDe's `path`, where Spark writes it, and its Hive catalogs fail for a table without a SerDe.
    """
    return {
        "Parameters": {"EXTERNAL": "TRUE", "table_type": "DELTA", "spark.sql.sources.provider": "delta"},
        "StorageDescriptor": {
            "Columns": [],
            "Location": folder,
            "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
            "SerdeInfo": {"SerializationLibrary": _PARQUET_SERDE, "Parameters": {"path": folder, "serialization.format": "1"}},
        },
    }


_OWN_PARAMETERS = {"EXTERNAL", "classification", "table_type", "spark.sql.sources.provider", *WAITING_PROPERTIES}
"""The parameters that definitions may have, so that a table that becomes another kind keeps none of the former kind."""


@dataclass(frozen=True, slots=True)
class GlueTable:
    """Publisher of one table. `folder`: as `ShownTable.owner`. `rival`: another stream with the same name in the catalog."""

    catalog: GlueTables
    identifier: tuple[str, str]
    folder: str
    define: Define = symlink_definition
    rival: StreamId | None = None
    merge_rule: MergeRule | None = None
    time_of: TimeOf | None = None

    name: ClassVar[str] = "glue"

    def asking(self, time_of: TimeOf) -> GlueTable:
        return replace(self, time_of=time_of)

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:  # noqa: ARG002
        """Register the table, its new columns, or what waits for a merge. Return the block as the mark."""
        if state.schema is not None:
            require_current_types(state, live)
            columns = stored_fields(recorded_schema(state))
            wanted = self._definition(state, columns)
            for _ in range(TRIES):
                with suppress(GlueChanged), _failures():
                    if self._register(wanted, state):
                        self._warn_of_columns(columns)
                    return str(state.sequence_number)
            raise NotPublished(f"Another program keeps changing the table {'.'.join(self.identifier)} in AWS Glue.")
        return str(state.sequence_number)

    def published(self, store: ObjectStore, state: TableState) -> int | None:  # noqa: ARG002
        """Return the head's block if Glue has the table's columns: readers then see what the manifest or the Delta log shows. One call."""
        if state.schema is None:
            return state.sequence_number
        with _failures():
            found = self._found()
        if found is None:
            return None
        wanted = self._definition(state, stored_fields(recorded_schema(state)))
        if _is_registered(found, wanted):
            return state.sequence_number
        if not _is_read_alike(found, wanted):
            return None  # readers look for a Delta log or a manifest that is no longer written, or do not find it
        return _block_of(found)

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:  # noqa: ARG002
        """Raise NotPublished while files hold columns in an older type."""
        if state.schema is not None:
            require_current_types(state, live)

    def _register(self, wanted: dict[str, Any], state: TableState) -> bool:
        """Register the definition. Return False if it is registered already, or if a later session has registered another one."""
        database, _ = self.identifier
        block, waiting = state.sequence_number, waiting_properties(state.contents, self.merge_rule)
        more = {**waiting, BLOCK: str(block)}
        found = self._found()
        if found is None:
            self.catalog.create(database, _with(wanted, more))
            return True
        known = {name: value for name, value in found["Parameters"].items() if name in WAITING_PROPERTIES}
        is_registered = _is_registered(found, wanted)
        if (is_registered and known == waiting) or self._is_later(_block_of(found), block):
            return False
        self.catalog.update(database, _with(_merged(found, wanted), more), str(found.get("VersionId", "")))
        return not is_registered

    def _is_later(self, number: int, block: int) -> bool:
        return number > block and (self.time_of is None or self.time_of(number) is not None)

    def _warn_of_columns(self, columns: Columns) -> None:
        left_out = [name for name, _ in sql_columns(columns, HIVE).left_out]
        if left_out and self.define is symlink_definition:
            logger.warning(
                "columns that Athena has no type for are not registered in Glue for %s: %s", ".".join(self.identifier), ", ".join(left_out)
            )

    def _found(self) -> dict[str, Any] | None:
        """Return the table's definition in Glue, or None if there is none. Raises NotPublished if the table is not ours."""
        if self.rival is not None:
            raise NotPublished(
                f"Stream '{self.rival}' would have the same name {'.'.join(self.identifier)} in AWS Glue. Put ${{NAMESPACE}} into "
                "publish.glue.database, or give the streams names that differ in more than signs and the case of letters."
            )
        found = self.catalog.get(*self.identifier)
        owner = None if found is None else found.get("Parameters", {}).get(OWNER)
        if found is not None and owner != self._owner:
            whose = "it was not made by this connector" if owner is None else f"it belongs to the table under '{owner}'"
            raise NotPublished(
                f"There is a table {'.'.join(self.identifier)} in AWS Glue already, and {whose}. Choose another publish.glue.database, or "
                "drop the table if nobody needs it: the next sync registers it again."
            )
        return found

    def _definition(self, state: TableState, columns: Columns) -> dict[str, Any]:
        definition = self.define(self._uri(state.identity.final_root), columns)
        return _table(self.identifier[1], {**definition, "Parameters": {**definition["Parameters"], OWNER: self._owner}})

    @property
    def _owner(self) -> str:
        return self._uri(self.folder)

    def _uri(self, key: str) -> str:
        return f"s3://{self.catalog.settings.bucket}/{key}"


def _table(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a table of this name. Athena asks for keys of partitions, also where there are none."""
    return {**definition, "Name": name, "TableType": "EXTERNAL_TABLE", "PartitionKeys": []}


def _block_of(found: Mapping[str, Any]) -> int:
    """Return the number of the block of a registered definition, 0 if it is none."""
    text = str(found["Parameters"].get(BLOCK, ""))
    return int(text) if text.isdecimal() and len(text) <= BLOCK_DIGITS else 0


def _is_registered(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the table has the wanted columns, parameters and way of reading, whatever else it has.

    Engines may add the columns of a Delta table, which is registered without any.
    """
    columns = [{key: column[key] for key in ("Name", "Type")} for column in found["StorageDescriptor"].get("Columns", ())]
    same = wanted["StorageDescriptor"]["Columns"] in ([], columns) and wanted["Parameters"].items() <= found["Parameters"].items()
    return same and _is_read_alike(found, wanted)


def _is_read_alike(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether readers find the same files with the same formats."""
    have, want = found["StorageDescriptor"], wanted["StorageDescriptor"]
    serde, wanted_serde = have.get("SerdeInfo", {}), want["SerdeInfo"]
    return (
        all(have.get(key) == want[key] for key in ("Location", "InputFormat", "OutputFormat"))
        and serde.get("SerializationLibrary") == wanted_serde["SerializationLibrary"]
        and wanted_serde.get("Parameters", {}).items() <= serde.get("Parameters", {}).items()
    )


def _merged(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted definition with what others have added: parameters, a description, an owner and comments of columns."""
    comments = {column["Name"]: column["Comment"] for column in found["StorageDescriptor"].get("Columns", ()) if "Comment" in column}
    columns = [
        {**column, **({"Comment": comments[column["Name"]]} if column["Name"] in comments else {})}
        for column in wanted["StorageDescriptor"]["Columns"]
    ]
    kept = {key: found[key] for key in ("Description", "Owner") if key in found}
    parameters = {name: value for name, value in found["Parameters"].items() if name not in _OWN_PARAMETERS}
    storage = {**wanted["StorageDescriptor"], "Columns": columns}
    return {**kept, **wanted, "StorageDescriptor": storage, "Parameters": {**parameters, **wanted["Parameters"]}}


def _with(definition: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    return {**definition, "Parameters": {**definition["Parameters"], **parameters}}


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except GlueFailed as error:
        raise NotPublished(str(error)) from error


def _of_tables(config: Config, tables: Sequence[ShownTable]) -> dict[ShownTable, GlueTable]:
    """Make a publisher for each table that has a Delta log or a symlink manifest, if a database is configured.

    A Delta table is preferred: its log has the columns, so Glue is never behind.
    """
    options = config.publish.glue
    if options is None or not _has_target(config):
        return {}
    define = delta_definition if config.publish.delta else symlink_definition
    catalog = GlueTables(s3_settings(config))
    names = {table: table_name(options.database, table.name) for table in tables if table.neighbour is None}
    rivals = rivals_of(names)
    return {table: GlueTable(catalog, name, table.owner, define, rivals.get(table), table.merge_rule) for table, name in names.items()}


def table_name(database: str, stream: StreamId) -> tuple[str, str]:
    return catalog_name(database.replace(NAMESPACE_VARIABLE, stream.namespace or "default")), catalog_name(stream.name)


def _require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:  # noqa: ARG001
    """Raise ConfigError if there is nothing that could be registered."""
    if config.publish.glue is not None and not _has_target(config):
        raise ConfigError(
            "publish.glue registers the Delta tables or the symlink manifests of Parquet tables. Choose the format Parquet and set "
            "publish.delta or publish.symlink to true, or remove publish.glue."
        )


def _has_target(config: Config) -> bool:
    return (config.publish.symlink or config.publish.delta) and isinstance(config.format, ParquetFormat)


def _check(config: Config, store: ObjectStore, template: PathTemplate) -> None:  # noqa: ARG001
    """Register, change and drop a table. Raises ConfigError."""
    options = config.publish.glue
    if options is None:
        return
    database, name = table_name(options.database, StreamId(None, f"airbyte_check_{uuid4().hex}"))
    definition = _table(name, symlink_definition(f"s3://{config.s3_bucket_name}/{template.base}", [Field("id", "id", Scalar.INTEGER)]))
    try:
        tables = GlueTables(s3_settings(config))
        with ExitStack() as undoing:
            if not tables.has_database(database):
                undoing.enter_context(undone_by(lambda: tables.drop_database(database)))
            undoing.enter_context(undone_by(lambda: tables.drop(database, name)))
            tables.create(database, definition)
            found = tables.get(database, name) or {}
            tables.update(database, definition, str(found.get("VersionId", "")))
    except (GlueFailed, GlueChanged) as error:
        raise ConfigError(f"Tables cannot be registered in the database '{database}' in AWS Glue: {error}") from error


GLUE = PublisherKind(_of_tables, _require_publishable, _check)
