"""SQL statements that define a table in an engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.config.iceberg_options import IcebergSql
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import chosen_format, format_of
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.encodings import DESTINATION_S3
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import final_options
from destination_s3_spark.tables.found import without_schema
from destination_s3_spark.tables.publishers.iceberg.publisher import NO_NAMESPACE, table_name
from destination_s3_spark.tables.publishers.publication import HISTORY_SUFFIX
from destination_s3_spark.tables.publishers.sql_types import ATHENA, REDSHIFT, SPARK, TRINO, Dialect, catalog_name, sql_columns
from destination_s3_spark.tables.publishers.symlink import MANIFEST
from destination_s3_spark.wording import printable


@dataclass(frozen=True, slots=True)
class ConfiguredTable:
    """A table, or the history of this number as a table of its own."""

    table: InspectedTable
    config: Config
    history: int | None = None

    @property
    def stream(self) -> StreamId:
        """The namespace and the name by which catalogs know the table."""
        of = self.table.stream
        return of if self.history is None else StreamId(of.namespace, of.name + HISTORY_SUFFIX)

    @property
    def names(self) -> list[str]:
        """The namespace, if the stream has one, and the name."""
        return [name for name in (self.stream.namespace, self.stream.name) if name]

    @property
    def has_delta_log(self) -> bool:
        return self.config.publish.delta and isinstance(self.config.format, ParquetFormat)

    @property
    def depths(self) -> set[int]:
        """The numbers of folders between the folder of the files and the files."""
        return {key.removeprefix(self._folder).count("/") for key in self._keys()}

    @property
    def root(self) -> str:
        """The key prefix of the table and what is published of it."""
        return self.table.state.identity.final_root

    @property
    def extension(self) -> str:
        """The extension of all files, or nothing if they have several."""
        extension = final_options(self.config).extension
        return extension if all(key.endswith(extension) for key in self._keys() if format_of(key) is not None) else ""

    @property
    def uri(self) -> str:
        """The URI of the table, under which it is published."""
        return f"s3://{self.config.s3_bucket_name}/{self.root}"

    def folder(self, scheme: str) -> str:
        """Return the URI of the folder of the files."""
        return f"{scheme}://{self.config.s3_bucket_name}/{self._folder}"

    @property
    def _folder(self) -> str:
        return self.root if self.history is None else f"{self.root}{self.history}/"

    def fields(self) -> tuple[Field, ...]:
        options = final_options(self.config)
        configured = options.encodings if isinstance(options, ParquetOptions) else DESTINATION_S3
        return stored_fields(from_event(self.table.state.schema or {}), configured)

    def _keys(self) -> list[str]:
        return [*(file.key for file in self.table.files_of(FileKind.FINAL)), *self.table.readable.live.adopted]


class SqlEngine(Enum):
    """An engine with a statement of its own."""

    ATHENA = "athena"
    TRINO = "trino"
    SPARK = "spark"
    DUCKDB = "duckdb"
    CLICKHOUSE = "clickhouse"
    REDSHIFT = "redshift"
    DATABRICKS = "databricks"
    SNOWFLAKE = "snowflake"


UNTRIED = {SqlEngine.ATHENA, SqlEngine.REDSHIFT, SqlEngine.DATABRICKS, SqlEngine.SNOWFLAKE}
"""Engines for which there was no account. Their statements follow their makers' documentation."""

_MANIFEST_FORMAT = """ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'
STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'
OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'"""

_REDSHIFT_PROPERTIES = "\nTABLE PROPERTIES ('data_cleansing_enabled' = 'true', 'surplus_char_handling' = 'FAIL')"
"""Make a query fail for a text that is longer than Redshift can hold. By default it sees a null or a part of it."""


def ddl(table: InspectedTable, config: Config, engine: SqlEngine) -> str:
    """Return the statements that define the table and its history in an engine. Columns that the engine cannot read become comments.

    Raises ConfigError if the table has no schema yet, or if the engine has no statement for the table's files.
    """
    if table.columns is None:
        raise without_schema(table.stream)
    if engine is not SqlEngine.DUCKDB and not isinstance(config.format, ParquetFormat):
        raise ConfigError(
            f"There is a statement for {engine.value} for Parquet tables only, and the configured format is "
            f"{chosen_format(config.format).title}. Of the engines, duckdb also reads JSON Lines and CSV."
        )
    untried = f"-- Not tried with {engine.value.capitalize()}, for want of an account.\n" if engine in UNTRIED else ""
    return untried + _statement(ConfiguredTable(table, config), engine) + _history_statement(table, config, engine)


def _history_statement(table: InspectedTable, config: Config, engine: SqlEngine) -> str:
    mark, history = table.readable.contents.history, table.history()
    if mark is None or history is None:
        return ""
    return f"-- Its history, with a row for every version of a row:\n{_statement(ConfiguredTable(history, config, mark.number), engine)}"


def _statement(source: ConfiguredTable, engine: SqlEngine) -> str:
    match engine:
        case SqlEngine.ATHENA:
            return _athena_delta(source) if source.has_delta_log else _hive(source, ATHENA, "CREATE EXTERNAL TABLE IF NOT EXISTS")
        case SqlEngine.REDSHIFT:
            return _hive(source, REDSHIFT, "CREATE EXTERNAL TABLE", _REDSHIFT_PROPERTIES)
        case SqlEngine.SPARK:
            return _spark(source, "s3a")
        case SqlEngine.DATABRICKS:
            return _databricks_delta(source) if source.has_delta_log else _spark(source, "s3")
        case SqlEngine.TRINO:
            return _trino(source)
        case SqlEngine.DUCKDB:
            return _duckdb(source)
        case SqlEngine.CLICKHOUSE:
            return _clickhouse(source)
        case SqlEngine.SNOWFLAKE:
            return _snowflake(source)


def _athena_delta(source: ConfiguredTable) -> str:
    """Return the statement for a Delta table: Athena takes the columns from the log."""
    return (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {_qualified(source, ATHENA)}\n"
        f"LOCATION {_escaped(source.uri)}\nTBLPROPERTIES ('table_type' = 'DELTA');\n"
    )


def _hive(source: ConfiguredTable, dialect: Dialect, create: str, properties: str = "") -> str:
    root, location = source.folder("s3"), "STORED AS PARQUET"
    if source.config.publish.symlink:
        root, location = source.uri + MANIFEST.rpartition("/")[0] + "/", _MANIFEST_FORMAT
    comments, columns = _columns(source, dialect)
    return f"{comments}{create} {_qualified(source, dialect)} (\n{columns}\n)\n{location}\nLOCATION {_escaped(root)}{properties};\n"


def _spark(source: ConfiguredTable, scheme: str) -> str:
    options = "\nOPTIONS (recursiveFileLookup 'true')" if any(source.depths) else ""
    comments, columns = _columns(source, SPARK)
    return (
        f"{comments}{_spark_database(source)}CREATE TABLE IF NOT EXISTS {_qualified(source, SPARK)} (\n{columns}\n)\n"
        f"USING parquet{options}\nLOCATION {_escaped(source.folder(scheme))};\n"
    )


def _databricks_delta(source: ConfiguredTable) -> str:
    """Return the statement for a Delta table. Databricks refuses to read such a folder as Parquet."""
    create = f"CREATE TABLE IF NOT EXISTS {_qualified(source, SPARK)}\nUSING DELTA\nLOCATION {_escaped(source.uri)};\n"
    return _spark_database(source) + create


def _spark_database(source: ConfiguredTable) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {SPARK.name(source.names[0])};\n" if len(source.names) > 1 else ""


def _trino(source: ConfiguredTable) -> str:
    publish = source.config.publish
    schema, name = catalog_name(source.stream.namespace or NO_NAMESPACE), catalog_name(source.stream.name)
    shown = ""
    if publish.iceberg is not None:
        there = ".".join(map(TRINO.name, ("iceberg", *table_name(publish.iceberg, source.stream))))
        shown = (
            "-- Nothing is to be defined for a catalog `iceberg` with connector.name=iceberg and the catalog of publish.iceberg.\n"
            f"SELECT * FROM {there};\n"
        )
    if source.has_delta_log:
        return shown + (
            "-- For a catalog `delta` with connector.name=delta_lake and delta.register-table-procedure.enabled=true.\n"
            "-- Trino reads the timestamps of Delta tables in milliseconds, rounded; those of Iceberg tables are exact.\n"
            f'CREATE SCHEMA IF NOT EXISTS delta."{schema}";\n'
            f"CALL delta.system.register_table(schema_name => {_text(schema)}, table_name => {_text(name)}, "
            f"table_location => {_text(source.uri)});\n"
        )
    return shown or _trino_folder(source)


def _trino_folder(source: ConfiguredTable) -> str:
    needed = ["hive.timestamp-precision=MICROSECONDS, or it refuses timestamp(6)"]
    if any(source.depths):
        needed.insert(0, "hive.recursive-directories=true, or the table is empty")
    catalog = "".join(f"-- The catalog, connector.name=hive, needs {option}.\n" for option in needed)
    comments, columns = _columns(source, TRINO)
    return (
        f"{catalog}-- While files are replaced, it shows rows twice: publish.delta and publish.iceberg never do.\n"
        f"{comments}CREATE TABLE IF NOT EXISTS {_qualified(source, TRINO)} (\n{columns}\n)\n"
        f"WITH (format = 'PARQUET', external_location = {_text(source.folder('s3'))});\n"
    )


def _duckdb(source: ConfiguredTable) -> str:
    quoted = TRINO.name
    schema = f"CREATE SCHEMA IF NOT EXISTS {quoted(source.names[0])};\n" if len(source.names) > 1 else ""
    view = ".".join(map(quoted, source.names))
    reader = f"delta_scan({_text(source.uri)})" if source.has_delta_log else _duckdb_files(source)
    return f"{_duckdb_secret(source.config)}{schema}CREATE OR REPLACE VIEW {view} AS\nSELECT * FROM {reader};\n"


def _duckdb_files(source: ConfiguredTable) -> str:
    chosen = chosen_format(source.config.format)
    patterns = [f"{source.folder('s3')}{'*/' * depth}*{source.extension}" for depth in sorted(source.depths) or [0]]
    files = f"[{', '.join(map(_text, patterns))}]"
    match chosen.format_type:
        case "Parquet":
            return f"read_parquet({files}, union_by_name = true)"
        case "JSONL":
            return f"read_json({files}, format = 'newline_delimited', union_by_name = true)"
        case "CSV":
            return f"read_csv({files}, union_by_name = true)"
        case _:
            raise ConfigError(f"There is no statement for duckdb for files of the format {chosen.title}.")


def _duckdb_secret(config: Config) -> str:
    """Return a comment with the statement that gives DuckDB access. It holds no secret."""
    options = ["TYPE s3", "PROVIDER credential_chain"]
    if region := config.s3.region or config.s3_bucket_region:
        options.append(f"REGION {_text(region)}")
    if config.s3_endpoint:
        parts, style = urlsplit(config.s3_endpoint), "path" if config.s3.addressing == "path" else "vhost"
        options += [f"ENDPOINT {_text(parts.netloc)}", f"URL_STYLE '{style}'", f"USE_SSL {str(parts.scheme == 'https').lower()}"]
    return f"-- For access to the bucket, once per session: CREATE SECRET ({', '.join(options)});\n"


def _clickhouse(source: ConfiguredTable) -> str:
    """Return a view over the Delta table. Of a folder, ClickHouse takes the columns of the first file."""
    if not source.has_delta_log:
        raise _needs_a_publisher("clickhouse", "publish.delta")
    bucket = _bucket_address(source.config)
    database = f"CREATE DATABASE IF NOT EXISTS {_clickhouse_name(source.names[0])};\n" if len(source.names) > 1 else ""
    view = ".".join(map(_clickhouse_name, source.names))
    return (
        "-- For access to the bucket, give the key and its secret as two more arguments, or a named collection in place of all.\n"
        f"{database}CREATE OR REPLACE VIEW {view} AS\nSELECT * FROM deltaLake({_escaped(f'{bucket}/{source.root}')});\n"
    )


def _bucket_address(config: Config) -> str:
    if config.s3_endpoint is None:
        region = f".{config.s3_bucket_region}" if config.s3_bucket_region else ""
        domain = "amazonaws.com.cn" if config.s3_bucket_region.startswith("cn-") else "amazonaws.com"
        return f"https://{config.s3_bucket_name}.s3{region}.{domain}"
    endpoint = config.s3_endpoint.rstrip("/")
    if config.s3.addressing == "path":
        return f"{endpoint}/{config.s3_bucket_name}"
    return endpoint.replace("://", f"://{config.s3_bucket_name}.", 1)


def _clickhouse_name(text: str) -> str:
    return "`" + printable(text, "_").replace("\\", "\\\\").replace("`", "\\`") + "`"


def _snowflake(source: ConfiguredTable) -> str:
    volume = f"-- `lake` is an external volume with ALLOW_WRITES = FALSE on {source.config.s3_bucket_name}."
    create = f"CREATE ICEBERG TABLE IF NOT EXISTS {_qualified(source, TRINO)}\n  EXTERNAL_VOLUME = 'lake'\n  AUTO_REFRESH = TRUE\n"
    iceberg = source.config.publish.iceberg
    if iceberg is not None and not isinstance(iceberg, IcebergSql):
        schema, name = table_name(iceberg, source.stream)
        return (
            f"{volume} `iceberg` is a catalog integration for the catalog of publish.iceberg.\n"
            f"{create}  CATALOG = 'iceberg'\n  CATALOG_NAMESPACE = {_escaped(schema)}\n  CATALOG_TABLE_NAME = {_escaped(name)};\n"
        )
    if source.has_delta_log:
        return (
            "-- Snowflake does not support Delta tables whose files have field ids, as these have. Better set publish.iceberg.\n"
            f"{volume} Once: CREATE CATALOG INTEGRATION delta CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = DELTA ENABLED = TRUE;\n"
            f"{create}  CATALOG = 'delta'\n  BASE_LOCATION = {_escaped(source.root)};\n"
        )
    raise _needs_a_publisher("snowflake", "publish.iceberg with a REST catalog or AWS Glue")


def _needs_a_publisher(engine: str, options: str) -> ConfigError:
    return ConfigError(f"There is no statement for {engine} for the files alone. Set {options}; the next sync publishes the table.")


def _columns(source: ConfiguredTable, dialect: Dialect) -> tuple[str, str]:
    """Return comments about the columns that the engine cannot read, and the list of the others, as they are stored."""
    found = sql_columns(source.fields(), dialect)
    comments = "".join(
        f"-- Left out, because {dialect.engine} has no type for {_line(what)}: {_line(name)}\n" for name, what in found.left_out
    )
    return comments, ",\n".join(f"  {dialect.name(name)} {text}" for name, text in found.typed)


def _qualified(source: ConfiguredTable, dialect: Dialect) -> str:
    names = map(catalog_name, source.names) if dialect is ATHENA else source.names
    return ".".join(map(dialect.name, names))


def _text(text: str) -> str:
    """Return a text of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    """Return a text for engines in whose texts a backslash begins an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _line(text: str) -> str:
    return " ".join(text.split())
