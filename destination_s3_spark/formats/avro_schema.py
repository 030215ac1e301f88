"""The Avro record type of a stream's rows, with destination-s3's types, names and namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.avro_types import ArrayOf, AvroType, Boolean, DecimalBytes, Double, Integer, Nullable, OneOf, Record, Text
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
)
from destination_s3_spark.schema.names import RecordNames, safe_name, safe_namespace
from destination_s3_spark.stream_id import StreamId

_ITEMS = "items"
"""The path element of an array's items."""
_META = "_airbyte_meta"


def row_type(stream: StreamId, fields: Sequence[Field]) -> Record:
    """Return the record type of a stream's rows: the four `_airbyte_*` columns, then the fields.

    Raises ConfigError for a union that Avro cannot hold.
    """
    return _Schema(stream).row(fields)


class _Schema:
    """Builder of one stream's schema. A path is the sequence of safe names from the stream's namespace down to a field."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self._names = RecordNames()

    def row(self, fields: Sequence[Field]) -> Record:
        path = (safe_namespace(self._stream.namespace), safe_name(self._stream.name))
        name, namespace = self._names.give(path)
        own: list[tuple[str, AvroType]] = [
            ("_airbyte_raw_id", Text("uuid")),
            ("_airbyte_extracted_at", Integer(logical="timestamp-millis")),
            (_META, self._meta((*path, _META))),
            ("_airbyte_generation_id", Integer()),
        ]
        return Record(name, namespace, (*own, *self._members(fields, path)))

    def _meta(self, path: tuple[str, ...]) -> Record:
        changes = (*path, "changes")
        # A change that the source reports may lack a part, so the parts are nullable.
        parts = tuple((part, Nullable(Text())) for part in ("field", "change", "reason"))
        change = Record(*self._names.give((*changes, _ITEMS)), parts)
        return Record(*self._names.give(path), (("sync_id", Integer()), ("changes", ArrayOf(change))))

    def _members(self, fields: Sequence[Field], path: tuple[str, ...]) -> tuple[tuple[str, AvroType], ...]:
        return tuple((field.name, self._nullable(field.type, (*path, field.name))) for field in fields)

    def _nullable(self, of: AirbyteType, path: tuple[str, ...]) -> AvroType:
        return self._union(of, path) if isinstance(of, Union) else Nullable(self._type(of, path))

    def _type(self, of: AirbyteType, path: tuple[str, ...]) -> AvroType:  # noqa: C901 (one case for each type)
        match of:
            case Scalar.STRING | SchemalessObject() | SchemalessArray():
                return Text()
            case Scalar.BOOLEAN:
                return Boolean()
            case Scalar.INTEGER:
                return Integer()
            case Scalar.NUMBER:
                return Double()
            case Decimal(precision, scale):
                return DecimalBytes(precision, scale)
            case Scalar.DATE:
                return Integer("int", "date")
            case Scalar.TIME_WITH_TIMEZONE | Scalar.TIME_WITHOUT_TIMEZONE:
                return Integer(logical="time-micros")
            case Scalar.TIMESTAMP_WITH_TIMEZONE | Scalar.TIMESTAMP_WITHOUT_TIMEZONE:
                return Integer(logical="timestamp-micros")
            case Object(fields):
                return Record(*self._names.give(path), self._members(fields, path))
            case Array(items):
                return ArrayOf(self._nullable(items, (*path, _ITEMS)))
            case Union():
                raise ValueError("a union is never an option of a union")

    def _union(self, union: Union, path: tuple[str, ...]) -> OneOf:
        types: list[AvroType] = []
        branches = []
        for option in union.options:
            type_ = self._type(option, path)
            if type_ not in types:
                types.append(type_)
            branches.append(types.index(type_) + 1)
        kinds = [type_.name for type_ in types if isinstance(type_, Integer)]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(self._advice(union, path), stream=self._stream)
        return OneOf(tuple(types), tuple(branches))

    def _advice(self, union: Union, path: tuple[str, ...]) -> str:
        names = ", ".join(option_name(option) for option in union.options)
        return (
            f'Stream "{self._stream}", field "{".".join(path[2:])}": a union of {names} cannot be written to Avro, where two of them are '
            "of the type long. Correct the schema in the source, deselect the field in the connection, or choose another format."
        )
