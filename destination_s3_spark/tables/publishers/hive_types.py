"""Hive's types of columns, as Athena, Redshift Spectrum and Hive read Parquet files."""

from __future__ import annotations

import re

import pyarrow as pa

_SCALARS = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.date32(): "date",
}
_NAME = re.compile(r"[\w.$ ]+")
"""Names of members that Hive's parser of types accepts."""


def hive_columns(columns: pa.Schema) -> tuple[list[tuple[str, str]], list[str]]:
    """Return names and types of the columns, and the names of those that Hive has no type for: times of day and odd names of members."""
    types = {field.name: _hive_type(field.type) for field in columns}
    return [(name, kind) for name, kind in types.items() if kind is not None], [name for name, kind in types.items() if kind is None]


def _hive_type(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        item = _hive_type(kind.value_type)
        return None if item is None else f"array<{item}>"
    if pa.types.is_struct(kind):
        members = [(kind.field(index).name, _hive_type(kind.field(index).type)) for index in range(kind.num_fields)]
        if any(member is None or not _NAME.fullmatch(name) for name, member in members):
            return None
        return f"struct<{','.join(f'{name}:{member}' for name, member in members)}>"
    return _SCALARS.get(kind)
