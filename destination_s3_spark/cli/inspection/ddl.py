"""SQL statements that define a table in an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

import pyarrow as pa

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.table import InspectedTable
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.registry import chosen_format, format_of
from destination_s3_spark.schema.encodings import DESTINATION_S3, stored_schema
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.tables.configured import final_options
from destination_s3_spark.tables.publishers.hive_types import hive_columns
from destination_s3_spark.tables.publishers.symlink import MANIFEST


class SqlEngine(Enum):
    """An engine with a dialect of its own."""

    ATHENA = "athena"
    TRINO = "trino"
    SPARK = "spark"
    DUCKDB = "duckdb"
    REDSHIFT = "redshift"


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The names of an engine's types, and how it quotes names. `member` joins name and type of a struct's member."""

    engine: str
    quote: str
    scalars: dict[str, str]
    array: Callable[[str], str]
    struct: Callable[[Iterable[str]], str]
    member: Callable[[str, str], str]

    def name(self, text: str) -> str:
        """Return a quoted name."""
        return self.quote + text.replace(self.quote, self.quote * 2) + self.quote

    def type(self, kind: pa.DataType) -> str | None:
        """Return the name of a type, or None if the engine cannot read it."""
        if pa.types.is_struct(kind):
            members = [(field.name, self.type(field.type)) for field in kind]
            known = [self.member(name, text) for name, text in members if text is not None]
            return self.struct(known) if len(known) == len(members) else None
        if pa.types.is_list(kind):
            item = self.type(kind.value_type)
            return None if item is None else self.array(item)
        return self.scalars.get("timestamp" if pa.types.is_timestamp(kind) else str(kind))


_HIVE = _Dialect(
    "Athena",
    "`",
    {"string": "string", "bool": "boolean", "int64": "bigint", "double": "double", "date32[day]": "date", "timestamp": "timestamp"},
    lambda item: f"array<{item}>",
    lambda members: f"struct<{','.join(members)}>",
    lambda name, text: f"{name}:{text}",
)
_SPARK = _Dialect(
    "Spark",
    "`",
    {name: text.upper() for name, text in _HIVE.scalars.items()},
    lambda item: f"ARRAY<{item}>",
    lambda members: f"STRUCT<{', '.join(members)}>",
    lambda name, text: f"`{name.replace('`', '``')}`: {text}",
)
_TRINO = _Dialect(
    "Trino",
    '"',
    {**_HIVE.scalars, "string": "varchar"},
    lambda item: f"array({item})",
    lambda members: f"row({', '.join(members)})",
    lambda name, text: '"' + name.replace('"', '""') + f'" {text}',
)
_REDSHIFT = _Dialect(
    "Redshift",
    '"',
    {**_HIVE.scalars, "string": "varchar(65535)", "double": "double precision"},
    lambda item: f"array<{item}>",
    lambda members: f"struct<{', '.join(members)}>",
    lambda name, text: f"{name}:{text}",
)
_MANIFEST_FORMAT = """ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'
STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'
OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'"""
_FOLDER_FORMAT = "STORED AS PARQUET"


def ddl(table: InspectedTable, config: Config, engine: SqlEngine) -> str:
    """Return the statement that defines the table in an engine. Columns that the engine cannot read become comments.

    Raises ConfigError if the table has no schema yet, or if the engine has no statement for files of its format.
    """
    if table.columns is None:
        raise ConfigError(f"The table of stream {table.stream} has no schema yet: no record of it was ever committed.")
    if engine is SqlEngine.DUCKDB:
        return _duckdb(table, config)
    if not isinstance(config.format, ParquetFormat):
        raise ConfigError(
            f"There is a statement for {engine.value} for Parquet tables only, and the configured format is "
            f"{chosen_format(config.format).title}. Of the engines, duckdb also reads JSON Lines and CSV."
        )
    match engine:
        case SqlEngine.SPARK:
            return _spark(table, config)
        case SqlEngine.TRINO:
            return _trino(table, config)
        case SqlEngine.ATHENA:
            return _hive(table, config, _HIVE, "CREATE EXTERNAL TABLE IF NOT EXISTS")
        case SqlEngine.REDSHIFT:
            return _hive(table, config, _REDSHIFT, "CREATE EXTERNAL TABLE")


def _hive(table: InspectedTable, config: Config, dialect: _Dialect, create: str) -> str:
    root, location = _root(table, config, "s3"), _FOLDER_FORMAT
    if config.publish.symlink:
        root, location = root + MANIFEST.rpartition("/")[0] + "/", _MANIFEST_FORMAT
    comments, columns = _columns(table, config, dialect)
    return f"{comments}{create} {_qualified(table, dialect)} (\n{columns}\n)\n{location}\nLOCATION {_text(root)};\n"


def _spark(table: InspectedTable, config: Config) -> str:
    depth = max(_depths(table), default=0)
    options = "\nOPTIONS (recursiveFileLookup 'true')" if depth else ""
    database = f"CREATE DATABASE IF NOT EXISTS {_SPARK.name(table.stream.namespace)};\n" if table.stream.namespace else ""
    comments, columns = _columns(table, config, _SPARK)
    return (
        f"{comments}{database}CREATE TABLE IF NOT EXISTS {_qualified(table, _SPARK)} (\n{columns}\n)\n"
        f"USING parquet{options}\nLOCATION {_text(_root(table, config, 's3a'))};\n"
    )


def _trino(table: InspectedTable, config: Config) -> str:
    comments, columns = _columns(table, config, _TRINO)
    return (
        f"{comments}CREATE TABLE IF NOT EXISTS {_qualified(table, _TRINO)} (\n{columns}\n)\n"
        f"WITH (format = 'PARQUET', external_location = {_text(_root(table, config, 's3'))});\n"
    )


def _duckdb(table: InspectedTable, config: Config) -> str:
    chosen = chosen_format(config.format)
    root = _root(table, config, "s3")
    patterns = [f"{root}{'*/' * depth}*{_extension(table, config)}" for depth in sorted(_depths(table)) or [0]]
    files = f"[{', '.join(map(_text, patterns))}]"
    match chosen.format_type:
        case "Parquet":
            reader = f"read_parquet({files}, union_by_name = true)"
        case "JSONL":
            reader = f"read_json({files}, format = 'newline_delimited', union_by_name = true)"
        case "CSV":
            reader = f"read_csv({files}, union_by_name = true)"
        case _:
            raise ConfigError(f"There is no statement for duckdb for files of the format {chosen.title}.")
    quoted = _TRINO.name
    names = [name for name in (table.stream.namespace, table.stream.name) if name]
    schema = f"CREATE SCHEMA IF NOT EXISTS {quoted(names[0])};\n" if len(names) > 1 else ""
    view = ".".join(map(quoted, names))
    return f"{_duckdb_secret(config)}{schema}CREATE OR REPLACE VIEW {view} AS\nSELECT * FROM {reader};\n"


def _duckdb_secret(config: Config) -> str:
    """Return a comment with the statement that gives DuckDB access. It holds no secret."""
    options = ["TYPE s3", "PROVIDER credential_chain"]
    if config.s3_bucket_region:
        options.append(f"REGION {_text(config.s3_bucket_region)}")
    if config.s3_endpoint:
        parts = urlsplit(config.s3_endpoint)
        options += [f"ENDPOINT {_text(parts.netloc)}", "URL_STYLE 'path'", f"USE_SSL {str(parts.scheme == 'https').lower()}"]
    return f"-- For access to the bucket, once per session: CREATE SECRET ({', '.join(options)});\n"


def _columns(table: InspectedTable, config: Config, dialect: _Dialect) -> tuple[str, str]:
    """Return comments about the columns that the engine cannot read, and the list of the others, as they are stored."""
    recorded = from_event(table.state.schema or {})
    options = final_options(config)
    encodings = recorded.encodings or (options.encodings if isinstance(options, ParquetOptions) else DESTINATION_S3)
    columns = stored_schema(recorded.arrow, encodings)
    odd = set(hive_columns(columns)[1]) if dialect in (_HIVE, _REDSHIFT) else set()
    types = [(field.name, None if field.name in odd else dialect.type(field.type)) for field in columns]
    left_out = [_comment(name) for name, text in types if text is None]
    what = "a time of day or such a name of a member" if odd else "a time of day"
    comments = "".join(f"-- Left out, because {dialect.engine} has no type for {what}: {name}\n" for name in left_out)
    return comments, ",\n".join(f"  {dialect.name(name)} {text}" for name, text in types if text is not None)


def _qualified(table: InspectedTable, dialect: _Dialect) -> str:
    return ".".join(dialect.name(name) for name in (table.stream.namespace, table.stream.name) if name)


def _root(table: InspectedTable, config: Config, scheme: str) -> str:
    return f"{scheme}://{config.s3_bucket_name}/{table.state.identity.final_root}"


def _depths(table: InspectedTable) -> set[int]:
    """Return the numbers of folders between the final root and the live files."""
    return {key.removeprefix(table.state.identity.final_root).count("/") for key in _keys(table)}


def _extension(table: InspectedTable, config: Config) -> str:
    extension = final_options(config).extension
    return extension if all(key.endswith(extension) for key in _keys(table) if format_of(key) is not None) else ""


def _keys(table: InspectedTable) -> list[str]:
    return [*(file.key for file in table.files_of(FileKind.FINAL)), *table.readable.live.adopted]


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _comment(text: str) -> str:
    return " ".join(text.split())
