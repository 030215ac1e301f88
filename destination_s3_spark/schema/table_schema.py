"""Columns of a table, and their evolution with the schemas that its source declares.

The order is Snowplow's ("Redshift automatic table migrations"): required columns first, then by name. Columns that a later schema adds are
sorted the same way among themselves and appended. No column is ever moved, renamed or dropped. All functions here are pure functions of the
previous schema, the declared columns and a policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from destination_s3_spark.errors import Bug, ConfigError
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
    option_name,
    readable,
    type_to_text,
)
from destination_s3_spark.schema.arrow import META_FIELDS, UNION_TAG, arrow_columns, arrow_type
from destination_s3_spark.schema.encodings import DESTINATION_S3, EXTRACTED_AT, Encodings, TimeEncoding, has_time
from destination_s3_spark.schema.field_ids import FieldIds, first_ids, later_ids, with_ids
from destination_s3_spark.schema.json_schema import StreamFields
from destination_s3_spark.schema.names import assign_names
from destination_s3_spark.schema.partitioning import Partitioning, PartitionSpec
from destination_s3_spark.schema.placement import Placement, SchemaPolicy, TableField, place
from destination_s3_spark.schema.type_merge import (
    FIRST_VERSION,
    Change,
    ChangeKind,
    SchemaVer,
    TypeConflictError,
    arranged,
    merge_types,
    takes,
)
from destination_s3_spark.stream_id import StreamId

__all__ = ["Evolution", "TableField", "TableSchema", "column_of", "evolve", "plan_fields", "replayed_fields", "restored"]
_CHANGE = Object(tuple(Field(name, name, Scalar.STRING) for name in ("field", "change", "reason")))
_META = Object((Field("sync_id", "sync_id", Scalar.INTEGER), Field("changes", "changes", Array(_CHANGE))))
_OWN_TYPES: tuple[AirbyteType, ...] = (Scalar.STRING, Scalar.TIMESTAMP_WITH_TIMEZONE, _META, Scalar.INTEGER)

OWN_FIELDS = tuple(Field(column.name, column.name, of) for column, of in zip(META_FIELDS, _OWN_TYPES, strict=True))
"""The connector's own columns."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's data columns in order. Schema ids count from 0 in the table's chain. `version` is only a label.

    `retyped`: keys of the columns that this schema changed to another type in place. Files of earlier schemas hold them in an older type.
    `encodings`: those of the table's Parquet files. None if no Parquet file was written yet, or only by versions that did not record them.
    `partition`: the division of the table's files, or None if the table has no partitions.
    `field_ids`: those of `columns` (see `schema.field_ids`). Empty for a schema of a version that did not record them: the first ids hold.
    `last_field_id`: the greatest id that the table ever had.
    `column_rules`: what is recorded of the rules that lines are treated by (see `schema.column_rules`), None if they land as sent.
    """

    schema_id: int
    fields: tuple[TableField, ...]
    version: SchemaVer = FIRST_VERSION
    retyped: tuple[str, ...] = ()
    encodings: Encodings | None = None
    partition: PartitionSpec | None = None
    field_ids: FieldIds = ()
    last_field_id: int = 0
    column_rules: Mapping[str, Any] | None = None

    @property
    def columns(self) -> pa.Schema:
        """Arrow schema in memory of the connector's own columns, followed by the data columns."""
        return arrow_columns(column.field for column in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        """The columns with their field ids, which Arrow writes into Parquet files."""
        return with_ids(self.columns, self.ids)

    @property
    def ids(self) -> FieldIds:
        """The field ids of `columns`, by default the first ones."""
        return self.field_ids or first_ids(self.columns)

    @property
    def partitioning(self) -> Partitioning | None:
        """`partition` with its column. None if the table does not have that either."""
        column = None if self.partition is None else self.column(self.partition.source)
        return None if self.partition is None or column is None else Partitioning(self.partition, column.field)

    def after(self, previous: TableSchema | None) -> TableSchema:
        """Return this schema with field ids, as it follows another one."""
        columns = self.columns
        if previous is None:
            ids = first_ids(columns)
        else:
            ids = later_ids(previous.columns, previous.ids, max(previous.last_field_id, *previous.ids), columns)
        return replace(self, field_ids=ids, last_field_id=max(*ids, 0 if previous is None else previous.last_field_id))

    def column(self, source: str) -> TableField | None:
        """Return the column for the values of a JSON key, or None for an unknown key.

        While the source does not declare the key, this is the key's base column.
        """
        of_key = [field for field in self.fields if field.source == source]
        return next((field for field in of_key if field.present), of_key[0] if of_key else None)


@dataclass(frozen=True, slots=True)
class Evolution:
    """The schema after an evolution. If nothing changed, it is the previous object and `changes` is empty.

    `reencoded`: keys of the columns that earlier files store in another encoding, or by which they are divided in another way.
    """

    schema: TableSchema
    changes: tuple[Change, ...]
    reencoded: tuple[str, ...] = ()

    @property
    def retyped(self) -> tuple[str, ...]:
        """Keys of the columns with stored values that this evolution requires to be rewritten."""
        return (*(self.schema.retyped if self.changes else ()), *self.reencoded)

    def encoded(self, before: Encodings, after: Encodings) -> Evolution:
        """Return the evolution of a table that changes its encodings at the same time. `before` are those of its existing files."""
        keys = (EXTRACTED_AT,) if before.extracted_at is not after.extracted_at else ()
        times = [field.source for field in self.schema.fields if has_time(arrow_type(field.type))]
        reencoded = (*keys, *(times if before.time is not after.time else ()))
        return replace(self, schema=replace(self.schema, encodings=after), reencoded=(*self.reencoded, *reencoded))

    def then(self, incoming: StreamFields, stream: StreamId, policy: SchemaPolicy) -> Evolution:
        """Return this evolution and that to the declared columns as one. Raises as `evolve`."""
        following = evolve(self.schema, incoming, stream, policy)
        if not following.changes:
            return self
        retyped = tuple(dict.fromkeys((*self.retyped, *following.retyped)))
        return Evolution(replace(following.schema, retyped=retyped), (*self.changes, *following.changes))

    def treated(self, rules: Mapping[str, Any] | None) -> Evolution:
        """Return the evolution of a table whose lines are treated by these rules from now on."""
        return replace(self, schema=replace(self.schema, column_rules=rules))

    def partitioned(self, before: PartitionSpec | None, after: PartitionSpec | None) -> Evolution:
        """Return the evolution of a table that is divided in another way from now on. `before` is the division of its existing files."""
        moved = () if before == after else tuple(spec.source for spec in (after, before) if spec is not None)[:1]
        return replace(self, schema=replace(self.schema, partition=after), reencoded=(*self.reencoded, *moved))


def evolve(previous: TableSchema | None, incoming: StreamFields, stream: StreamId, policy: SchemaPolicy) -> Evolution:
    """Evolve the table's schema to include the declared columns. Raises ConfigError for a type conflict if the policy is FAIL."""
    if previous is None:
        return Evolution(TableSchema(0, _new_columns(incoming, (), [], 0)).after(None), ())
    placements = _placements(previous, incoming, stream, policy)
    changes = [change for placement in placements.values() for change in placement.changes]
    schema_id = previous.schema_id + 1
    recoveries = _recoveries(placements.values(), previous.version.after(tuple(changes)))
    additions = _new_columns(incoming, previous.fields, recoveries, schema_id)
    changes.extend(Change(ChangeKind.KEY_ADDITION, (new.source,), None, new.type) for new in additions if new.recovered_from is None)
    if not changes:
        return Evolution(previous, ())
    carried = {column.id: column for placement in placements.values() for column in placement.columns}
    columns = (*(carried[column.id] for column in previous.fields), *additions)
    retyped = tuple(source for source, placement in placements.items() if placement.retyped)
    version = previous.version.after(tuple(changes))
    schema = replace(previous, schema_id=schema_id, fields=columns, version=version, retyped=retyped)
    return Evolution(schema.after(previous), tuple(changes))


def plan_fields(schema: TableSchema, incoming: Iterable[Field]) -> tuple[Field, ...]:
    """Return the declared columns with the table's names and merged types, in the declared order."""
    columns = {column.source: column for column in schema.fields if column.present}
    fields = [columns.get(field.source) for field in incoming]
    if any(column is None for column in fields):
        raise Bug("A declared column is missing from the schema its table evolved to.")
    return tuple(column.field for column in fields if column is not None)


def replayed_fields(then: TableSchema, now: TableSchema, *, and_before: bool = False) -> tuple[Field, ...]:
    """Return the fields for typing records again that landed under the earlier schema `then`, or, with `and_before`, also under others.

    Each value goes to its `column_of` today. Values of fields that `then` no longer declares go to their base column.
    """
    declared = {column.source for column in then.fields if column.present}
    gone = {column.id for column in then.fields if column.source not in declared and column.recovered_from is None}
    columns = (column for column in then.fields if column.present or (and_before and column.id in gone))
    targets = (column_of(column, now) for column in columns)
    return tuple(column.field for column in targets)


def column_of(origin: TableField, now: TableSchema) -> TableField:
    """Return the column that has the values of an earlier schema's column today.

    It is the same column, or the base column if a rewrite moved the values there. If the column does not hold values of the earlier type,
    because only rows of a given-up generation had that one, it is a recovered column that does, if there is one.
    """
    today = {column.id: column for column in now.fields}
    column = today[origin.id]
    if column.emptied and column.recovered_from is not None:
        return today[column.recovered_from]
    try:
        merge_types(column.type, origin.type, ())
    except TypeConflictError:
        others = (other for other in now.fields if other.recovered_from is not None and other.source == origin.source)
        return next((other for other in others if not other.emptied and takes(other.type, origin.type)), column)
    return column


def restored(last: TableSchema, earlier: TableSchema) -> Evolution:
    """Return the evolution of a table whose rows are of an earlier schema, because those of the last one never replaced them.

    Columns that the last schema changed in place have their types of before. Columns that it added stay.
    """
    before = {column.id: column for column in earlier.fields}
    turned = {column.source for column in last.fields if column.id in before and not _only_grew(before[column.id], column)}
    fields = tuple(before.get(column.id, column) if column.source in turned else column for column in last.fields)
    changes = tuple(
        Change(ChangeKind.RETYPE, (new.source,), old.type, new.type)
        for old, new in zip(last.fields, fields, strict=True)
        if not _only_grew(new, old)
    )
    if not changes:
        return Evolution(last, ())
    version, retyped = last.version.after(changes), tuple(dict.fromkeys(change.path[0] for change in changes))
    schema = replace(last, schema_id=last.schema_id + 1, fields=fields, version=version, retyped=retyped)
    return Evolution(schema.after(last), changes)


def _only_grew(before: TableField, after: TableField) -> bool:
    return before.emptied == after.emptied and takes(after.type, before.type)


def _placements(previous: TableSchema, incoming: StreamFields, stream: StreamId, policy: SchemaPolicy) -> dict[str, Placement]:
    """Place the declared types in the columns of each key, in the order of the base columns. Raises ConfigError for type conflicts."""
    declared = {field.source: field.type for field in incoming.fields}
    of_key: dict[str, list[TableField]] = {}
    for column in previous.fields:
        of_key.setdefault(column.source, []).append(column)
    placements: dict[str, Placement] = {}
    conflicts: list[TypeConflictError] = []
    for source, columns in of_key.items():
        try:
            placements[source] = place(columns, declared.get(source), policy)
        except TypeConflictError as conflict:
            conflicts.append(conflict)
    _refuse(conflicts, stream)
    return placements


class _Recovery(NamedTuple):
    """A recovered column to add: the base column of its key, its type and its desired name."""

    base: TableField
    type: AirbyteType
    name: str


def _recoveries(placements: Iterable[Placement], version: SchemaVer) -> list[_Recovery]:
    label = "_".join(map(str, version))
    found = [(placement.columns[0], placement.recovered) for placement in placements if placement.recovered is not None]
    return [_Recovery(base, of, f"{base.name}_recovered_{label}_{_type_hash(of)}") for base, of in found]


def _type_hash(of: AirbyteType) -> str:
    return hashlib.sha256(type_to_text(of).encode()).hexdigest()[:8]


def _new_columns(
    incoming: StreamFields, existing: Sequence[TableField], recoveries: Sequence[_Recovery], schema_id: int
) -> tuple[TableField, ...]:
    known = {column.source for column in existing}
    taken = [column.name for column in existing]
    new = {field.source: field.type for field in incoming.fields if field.source not in known}
    beside = assign_names((recovery.name for recovery in recoveries), taken, of_columns=True)
    names = assign_names(new, [*taken, *beside.values()], of_columns=True)
    columns = [TableField(0, names[source], source, arranged(of), schema_id) for source, of in new.items()]
    for base, of, name in recoveries:
        columns.append(TableField(0, beside[name], base.source, of, schema_id, recovered_from=base.id))
    columns = [replace(column, required=column.source in incoming.required) for column in columns]
    first_id = 1 + max((column.id for column in existing), default=0)
    order = sorted(columns, key=lambda column: (not column.required, column.name))
    return tuple(replace(column, id=number) for number, column in enumerate(order, first_id))


def _refuse(conflicts: Sequence[TypeConflictError], stream: StreamId) -> None:
    if not conflicts:
        return
    what = "; ".join(f'"{".".join(c.path)}" was {readable(c.old)} and is now {readable(c.new)}' for c in conflicts)
    raise ConfigError(
        f'Stream "{stream}": the source declares another type for columns its table already has: {what}. Undo the change in the source, '
        "set tables.schema_change to recover (values of the new type get a separate column) or to rewrite (all rows are typed again), "
        "or run a refresh that removes the stream's records.",
        stream=stream,
    )


def stored_fields(schema: TableSchema, default: Encodings = DESTINATION_S3) -> tuple[Field, ...]:
    """Return the columns of a file with this schema. Times of day that are stored as integers have the type of integers.

    `default`: the encodings if the schema has none.
    """
    data = tuple(column.field for column in schema.fields)
    return (*OWN_FIELDS, *(_with_integers(data) if (schema.encodings or default).time is TimeEncoding.INT64 else data))


def _with_integers(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, type=_without_time(field.type)) for field in fields)


def _without_time(of: AirbyteType) -> AirbyteType:
    match of:
        case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
            return Scalar.INTEGER
        case Scalar() | Decimal() | SchemalessObject() | SchemalessArray():
            return of
        case Object(fields):
            return Object(_with_integers(fields))
        case Array(items):
            return Array(_without_time(items))
        case Union():
            return Object(_with_integers(union_members(of)))


def union_members(union: Union) -> tuple[Field, ...]:
    """Return the members of the typed disjoint record that a union is stored as."""
    members = ((UNION_TAG, Scalar.STRING), *((option_name(option), option) for option in union.options))
    return tuple(Field(name, name, of) for name, of in members)
