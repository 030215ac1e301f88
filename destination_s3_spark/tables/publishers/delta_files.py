"""Data files of a table as a Delta log describes them: sizes, partitions, and statistics by which readers skip files.

A partition is a column beyond those of the files, with one value in each file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from msgspec import structs

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.delta_log.actions import Add, DeltaColumns
from destination_s3_spark.formats.bounded import DAMAGE
from destination_s3_spark.formats.file_statistics import NO_BOUND, UNBOUNDED, FileStatistics, unbounded_columns
from destination_s3_spark.formats.parquet_statistics import completed, footer_statistics
from destination_s3_spark.schema.airbyte_type import Scalar
from destination_s3_spark.schema.partitioning import NULL_PARTITION, Partitioning, Transform
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.tables.publishers.publication import NotPublished
from destination_s3_spark.tables.runs.footers import read_footer, statistics_of

FOOTERS_AT_ONCE = 16


STATS_COLUMNS = "delta.dataSkippingStatsColumns"
"""Table property: the columns whose statistics count."""
META = "_airbyte_meta"
"""A struct with a list and without nulls. Its statistics are left out; see `configuration`."""


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_DATE = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""Dates of the years 1 to 9999, which every reader knows."""


class _Stats(msgspec.Struct, rename="camel", omit_defaults=True):
    num_records: int
    min_values: dict[str, object] = {}
    max_values: dict[str, object] = {}
    null_count: dict[str, object] = {}


def configuration(columns: DeltaColumns, files: Iterable[FileEntry]) -> dict[str, str]:
    """Return the table property that keeps readers from statistics which they misread.

    Polars 2.1 fails on a filter on a struct if its statistics lack a member, as they lack lists. Without statistics of the struct,
    delta-rs 1.6 loses the rows in which it is null, and it loses rows of every file that has no bounds of a column with values. With this
    property, both are right. Structs without nulls need no property.
    """
    unbounded = {name for file in files for name in file.unbounded or ()}
    if not {*columns.partly_bounded, *unbounded} - {META}:
        return {}
    return {STATS_COLUMNS: ",".join(_quoted(name) for name in columns.names if name not in {*columns.partly_bounded, *unbounded})}


def _quoted(name: str) -> str:
    """Return the name as the property has it. delta-rs ignores a property with another name that has no quotes."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def is_described(file: FileEntry) -> bool:
    """Return whether the session or the hint knows all that an action needs. Otherwise the file's footer has it."""
    return file.statistics is not None and file.kind is not FileKind.ADOPTED


def describes(add: Add, file: FileEntry) -> bool:
    """Return whether the action may be of this file. An earlier table in the same folder may have had another file of that name."""
    return file.kind is FileKind.ADOPTED or add.size == file.bytes


def add_actions(
    store: ObjectStore, files: Mapping[str, FileEntry], columns: pa.Schema, time: int, partitioning: Partitioning | None
) -> dict[str, Add]:
    """Return the actions that add files, by path. Footers of files that are not described are read.

    Raises NotPublished for a file of destination-s3 that is gone, cannot be read or has a column of another type.
    """
    unknown = {path: file for path, file in files.items() if not is_described(file)}
    with ThreadPoolExecutor(FOOTERS_AT_ONCE, "footers") as pool:
        footers = dict(zip(unknown, pool.map(partial(_read, store, columns), unknown.values()), strict=True))
    return {
        path: _add(path, partition_values(partitioning, file), footers.get(path, file), columns, time)
        for path, file in sorted(files.items())
    }


def with_columns(adds: Iterable[Add], columns: pa.Schema) -> dict[str, Add]:
    """Return those of the actions whose statistics lack a column of a later schema, with the column's null count."""
    widened = {}
    for add in adds:
        try:
            stats = msgspec.json.decode(add.stats or '{"numRecords":0}', type=_Stats)
        except (msgspec.DecodeError, RecursionError):  # of another program
            continue
        known = FileStatistics(stats.min_values, stats.max_values, stats.null_count)
        text = _text(stats.num_records, completed(known, columns, stats.num_records))
        if add.stats is not None and text != add.stats:
            widened[add.path] = structs.replace(add, stats=text, data_change=False)
    return widened


def _read(store: ObjectStore, columns: pa.Schema, file: FileEntry) -> FileEntry:
    """Return the file with the statistics in its footer."""
    if file.kind is FileKind.ADOPTED:
        return _read_adopted(store, columns, file)
    try:
        found = statistics_of(store, file)
    except (ObjectNotFound, *DAMAGE):
        return file  # nothing is lost but the statistics
    # Blocks do not say which columns of this file are unbounded if none were gathered, so `configuration` cannot count on them.
    return file if file.unbounded is None and unbounded_columns([found]) else structs.replace(file, statistics=found)


def _read_adopted(store: ObjectStore, columns: pa.Schema, file: FileEntry) -> FileEntry:
    """Read a file of destination-s3. Its size is not in a block, and nothing has ensured its types."""
    try:
        info = store.head(file.key)
        if info is None:
            raise ObjectNotFound(file.key)
        footer = read_footer(store, structs.replace(file, bytes=info.size))
    except (ObjectNotFound, *DAMAGE):
        raise NotPublished(
            f"its file '{file.key}' is gone or is not Parquet. Restore it from a backup or a bucket version, or refresh the stream."
        ) from None
    types = {name: columns.field(name).type for name in columns.names}
    for field in footer.schema.to_arrow_schema():
        if field.name in types and not _alike(field.type, types[field.name]):
            raise NotPublished(
                f"the column '{field.name}' is {types[field.name]} in the table and {field.type} in '{file.key}', which an earlier "
                "connector wrote, and no reader takes both. Refresh the stream."
            )
    statistics = footer_statistics(footer)
    known = UNBOUNDED if unbounded_columns([statistics]) else statistics
    return structs.replace(file, rows=footer.num_rows, bytes=info.size, statistics=known)


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether a reader takes values of both types for one column. It may lack members, and have another unit of time."""
    if one.id != other.id:
        return False
    if pa.types.is_struct(one):
        members = {member.name: member.type for member in other}
        return all(_alike(member.type, members.get(member.name, member.type)) for member in one)
    return _alike(one.value_type, other.value_type) if pa.types.is_list(one) else True


def _add(path: str, values: dict[str, str | None], file: FileEntry, columns: pa.Schema, time: int) -> Add:
    return Add(path, values, file.bytes, time, True, _text(file.rows, completed(file.statistics or UNBOUNDED, columns, file.rows)))


def _text(rows: int, statistics: FileStatistics) -> str:
    low, high, nulls = (
        {name: of for name, of in _bounded(tree).items() if name != META} for tree in (statistics.min, statistics.max, statistics.nulls)
    )
    return msgspec.json.encode(_Stats(rows, low, high, nulls)).decode()


def _bounded(tree: Mapping[str, object]) -> dict[str, object]:
    return {name: _bounded(of) if isinstance(of, dict) else of for name, of in tree.items() if of is not NO_BOUND}


def partition_column(partitioning: Partitioning) -> tuple[str, str]:
    """Return the name and the type of the column. The type is the one that readers of the folders would infer."""
    return partitioning.spec.name, _type(partitioning)


def partition_values(partitioning: Partitioning | None, file: FileEntry) -> dict[str, str | None]:
    """Return the value of the column in a file. A date beyond the year 9999 is null there; the files have it in their own column."""
    if partitioning is None or file.partition is None:
        return {}
    return {partitioning.spec.name: _value(partitioning, file.partition)}


def _type(partitioning: Partitioning) -> str:
    match partitioning.spec.transform:
        case Transform.YEAR:
            return "integer"
        case Transform.DAY:
            return "date"
        case Transform.MONTH | Transform.HOUR:
            return "string"
    names = {Scalar.DATE: "date", Scalar.BOOLEAN: "boolean", Scalar.INTEGER: "long"}
    kind = partitioning.field.type
    return names.get(kind, "string") if isinstance(kind, Scalar) else "string"


def _value(partitioning: Partitioning, text: str) -> str | None:
    kind = _type(partitioning)
    if text == NULL_PARTITION or (kind == "date" and not _DATE.fullmatch(text)):
        return None
    return str(int(text)) if kind == "integer" else unquote(text)
