"""Names and types in the SQL of engines that read Parquet files: one dialect per way of writing them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from destination_s3_spark.schema.airbyte_type import (
    AirbyteType,
    Array,
    Decimal,
    Field,
    Object,
    Scalar,
    SchemalessArray,
    SchemalessObject,
    Union,
)
from destination_s3_spark.schema.table_schema import union_members
from destination_s3_spark.wording import printable

_HIVE_NAME = re.compile(r"[\w.$ ]+")
"""Names of members that Hive's parser of types accepts."""
_LONGEST = 255
_OTHER = re.compile(r"[^a-z0-9_]")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine writes types. `array` and `struct` have a place for what they hold, `member` for a member's name and type.

    `quote` encloses names. `member_names` is the form of the names that members can have, None for any.
    """

    engine: str
    quote: str
    text: str
    boolean: str
    integer: str
    number: str
    decimal: str
    date: str
    timestamp: str
    array: str
    struct: str
    member: str
    member_names: re.Pattern[str] | None = None

    def name(self, text: str) -> str:
        """Return a quoted name, without control characters: statements are copied from terminals."""
        return self.quote + printable(text, "_").replace(self.quote, self.quote * 2) + self.quote


HIVE = Dialect(
    "Athena", "`", "string", "boolean", "bigint", "double", "decimal", "date", "timestamp",
    "array<{}>", "struct<{}>", "{plain}:{type}", _HIVE_NAME,
)  # fmt: skip
ATHENA = replace(HIVE, member="{quoted}:{type}")
"""Types in statements, where names of members may be words of the language. Glue takes them as they are."""
REDSHIFT = Dialect(
    "Redshift", '"', "varchar(65535)", "boolean", "bigint", "double precision", "decimal", "date", "timestamp",
    "array<{}>", "struct<{}>", "{quoted}:{type}", _HIVE_NAME,
)  # fmt: skip
SPARK = Dialect(
    "Spark", "`", "STRING", "BOOLEAN", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP",
    "ARRAY<{}>", "STRUCT<{}>", "{quoted}:{type}",
)  # fmt: skip
TRINO = Dialect(
    "Trino", '"', "varchar", "boolean", "bigint", "double", "decimal", "date", "timestamp(6)",
    "array({})", "row({})", "{quoted} {type}",
)  # fmt: skip


class _NoType(Exception):
    """The engine has no type for a column. The message says for what of it."""


@dataclass(frozen=True, slots=True)
class SqlColumns:
    """Names and types of the columns that an engine can read, and the others by name, with what there is no type for."""

    typed: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...]


def sql_columns(fields: Sequence[Field], dialect: Dialect) -> SqlColumns:
    typed, left_out = [], []
    for field in fields:
        try:
            typed.append((field.name, _type(field.type, dialect)))
        except _NoType as error:
            left_out.append((field.name, str(error)))
    return SqlColumns(tuple(typed), tuple(left_out))


def _type(of: AirbyteType, dialect: Dialect) -> str:  # noqa: C901 (one case for each type)
    """Return the name of a type. Raises _NoType."""
    match of:
        case Scalar.STRING | SchemalessObject() | SchemalessArray():
            return dialect.text
        case Scalar.BOOLEAN:
            return dialect.boolean
        case Scalar.INTEGER:
            return dialect.integer
        case Scalar.NUMBER:
            return dialect.number
        case Scalar.DATE:
            return dialect.date
        case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
            return dialect.timestamp
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            raise _NoType("a time of day")
        case Decimal(precision, scale):
            return f"{dialect.decimal}({precision},{scale})"
        case Array(items):
            return dialect.array.format(_type(items, dialect))
        case Object(fields):
            return _struct(fields, dialect)
        case Union():
            return _struct(union_members(of), dialect)


def _struct(fields: Iterable[Field], dialect: Dialect) -> str:
    return dialect.struct.format(",".join(_member(field, dialect) for field in fields))


def _member(field: Field, dialect: Dialect) -> str:
    if dialect.member_names is not None and not dialect.member_names.fullmatch(field.name):
        raise _NoType(f"a member of the name {field.name}")
    return dialect.member.format(plain=field.name, quoted=dialect.name(field.name), type=_type(field.type, dialect))


def catalog_name(name: str) -> str:
    """Return the name in lower case with an underscore for every character that is neither a letter of ASCII nor a digit."""
    return _OTHER.sub("_", name.lower())[:_LONGEST]
