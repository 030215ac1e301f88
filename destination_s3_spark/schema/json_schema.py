"""Conversion of a stream's JSON schema to Airbyte types, by the rules of destination-s3 and its migration guide to 1.0.0.

The input is the catalog's `json_schema` in every form that sources are known to send; the output is the declared columns. A schema that no
Avro or Parquet type fits fails here, at the start of the sync.

Number columns become decimals where the user names them or the schema declares them. A declaration has no precision, so such a decimal has
as many digits as there can be. The guide does not cover schemas without a type or with only null types. They become strings, which take
every value.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import (
    MAX_PRECISION,
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
from destination_s3_spark.schema.draft import Draft, DraftArray, DraftObject, DraftUnion, MisfitError, UnionConflicts, merge_options
from destination_s3_spark.schema.names import assign_names
from destination_s3_spark.stream_id import StreamId, matches

_BIG: Mapping[str, Decimal] = MappingProxyType({"big_number": Decimal(MAX_PRECISION, 9), "big_integer": Decimal(MAX_PRECISION, 0)})
"""Types by `airbyte_type`. Airbyte's warehouse destinations store a number as NUMERIC(38, 9)."""


@dataclass(frozen=True, slots=True)
class NamedDecimal:
    """Number columns that the user wants as decimals of a type.

    `stream` is a pattern for a stream's name, with or without its namespace and a dot before it. `column` is a pattern for the JSON keys
    down to the number, joined by dots. The items of an array have the keys of the array.
    """

    stream: str
    column: str
    type: Decimal

    def names(self, stream: StreamId, path: tuple[str, ...]) -> bool:
        """Tell whether the number at this path of the stream is meant."""
        return stream.matches(self.stream) and matches(".".join(path), self.column)


@dataclass(frozen=True, slots=True)
class Decimals:
    """The user's choice. `declared`: whether to follow declarations. `named` comes first, and of several matches the first one applies."""

    declared: bool = False
    named: tuple[NamedDecimal, ...] = ()

    def of_number(self, schema: Mapping[str, Any], stream: StreamId, path: tuple[str, ...]) -> Decimal | None:
        """Return the type of a number with this JSON schema, or None if it is no decimal."""
        named = next((named.type for named in self.named if named.names(stream, path)), None)
        return _declared(schema) if named is None and self.declared else named

    def of_big(self, schema: Mapping[str, Any], stream: StreamId, path: tuple[str, ...]) -> Decimal | None:
        """Return the type of a string or integer with this JSON schema, or None unless it is declared to be a big number."""
        return self.of_number(schema, stream, path) if str(schema.get("airbyte_type")) in _BIG else None


NO_DECIMALS = Decimals()

_EXACT = decimal.Context(prec=400)
"""A context in which no double is rounded."""


def _declared(schema: Mapping[str, Any]) -> Decimal | None:
    return _multiple_of(schema.get("multipleOf")) or _BIG.get(str(schema.get("airbyte_type")))


def _multiple_of(step: object) -> Decimal | None:
    """Return the decimal that holds all multiples of the step: two digits after the point for 0.01 or 0.25. None for any other value."""
    if isinstance(step, bool) or not isinstance(step, int | float) or step <= 0:
        return None
    # The shortest text of a double is the number as it was written.
    exponent = decimal.Decimal(repr(step)).normalize(_EXACT).as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > MAX_PRECISION:
        return None
    return Decimal(MAX_PRECISION, max(0, -exponent))


_WELL_KNOWN_TYPES: Mapping[str, Scalar] = {
    "String": Scalar.STRING,
    "BinaryData": Scalar.STRING,  # base64 text, stored as received
    "Boolean": Scalar.BOOLEAN,
    "Integer": Scalar.INTEGER,
    "Number": Scalar.NUMBER,
    "Date": Scalar.DATE,
    "TimeWithTimezone": Scalar.TIME_WITH_TIMEZONE,
    "TimeWithoutTimezone": Scalar.TIME_WITHOUT_TIMEZONE,
    "TimestampWithTimezone": Scalar.TIMESTAMP_WITH_TIMEZONE,
    "TimestampWithoutTimezone": Scalar.TIMESTAMP_WITHOUT_TIMEZONE,
}
_WELL_KNOWN_PREFIX = "WellKnownTypes.json#/definitions/"
_UNION_KEYWORDS = ("oneOf", "anyOf", "allOf")
MOST_LEVELS = 50
"""Most levels of nested types in a column. Arrow hands over at most 64, and other formats and readers end below 100."""


class StreamFields(NamedTuple):
    """The columns that a stream declares, in schema order. `required`: JSON keys that the schema requires and never allows to be null."""

    fields: tuple[Field, ...]
    required: frozenset[str]


class _Rules(NamedTuple):
    """The stream, and the user's decisions about its types."""

    stream: StreamId
    conflicts: UnionConflicts
    decimals: Decimals


def stream_fields(
    json_schema: Mapping[str, Any],
    stream: StreamId,
    conflicts: UnionConflicts = UnionConflicts.FAIL,
    decimals: Decimals = NO_DECIMALS,
    *,
    unfit_as_text: bool = False,
) -> StreamFields:
    """Return the declared columns of a stream. No `properties` means no columns.

    Raises ConfigError, which names the stream and the field, when no type fits. `unfit_as_text` makes a string column of such a schema, for
    JSON Lines and CSV, where destination-s3 accepts it.
    """
    rules = _Rules(stream, conflicts, decimals)
    try:
        properties = _stream_properties(json_schema)
        drafts = {source: _column(schema, source, rules, unfit_as_text=unfit_as_text) for source, schema in properties.items()}
        fields = _fields(drafts, of_columns=True)
    except MisfitError as misfit:
        raise ConfigError(_advice(f'Stream "{stream}"', misfit), stream=stream) from None
    listed = json_schema.get("required")
    required = frozenset(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else frozenset()
    return StreamFields(fields, frozenset(name for name in required & properties.keys() if not _admits_null(properties[name])))


def _advice(where: str, misfit: MisfitError) -> str:
    field = f', field "{".".join(misfit.path)}"' if misfit.path else ""
    option = ", set tables.union_conflicts to union or text" if misfit.conflict else ""
    return f"{where}{field}: {misfit.reason}. Correct the schema in the source{option}, or deselect the field in the connection."


def _stream_properties(json_schema: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = json_schema.get("type", "object")
    if declared != "object" and not (isinstance(declared, list) and "object" in declared):
        raise MisfitError((), f"the JSON schema of a stream must be an object, this one has the type {_show(declared)}")
    properties = json_schema.get("properties")
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise MisfitError((), "`properties` of its JSON schema is not an object")
    _require_text(properties, ())
    return properties


def _require_text(names: Iterable[str], path: tuple[str, ...]) -> None:
    for name in names:
        if name.encode(errors="ignore").decode() != name:
            raise MisfitError(path, f"the name {name!a} of a property has half of a surrogate pair")


def _column(schema: object, source: str, rules: _Rules, *, unfit_as_text: bool) -> Draft:
    try:
        _require_shallow(schema, source)
        return _draft(schema, (source,), rules)
    except MisfitError:
        if unfit_as_text:
            return Scalar.STRING
        raise


def _require_shallow(schema: object, source: str) -> None:
    """Raise MisfitError for a type with too many levels. What runs over a schema later is recursive; this is not."""
    waiting = [(schema, 1)]
    while waiting:
        schema, level = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        if level > MOST_LEVELS:
            raise MisfitError((source,), f"its type is nested deeper than the {MOST_LEVELS} levels that can be stored")
        declared = schema.get("type")
        options = _once(declared) if isinstance(declared, list) else []
        # A union by a list of types has a level of its own, although the schemas of its options are this one.
        below = level + (2 if sum(option != "null" for option in options) > 1 else 1)
        properties, items = schema.get("properties"), schema.get("items")
        nested = list(properties.values()) if isinstance(properties, Mapping) else []
        for part in (items, *(schema.get(keyword) for keyword in _UNION_KEYWORDS), declared):
            nested += part if isinstance(part, list) else [part]
        waiting += [(part, below) for part in nested]


def _draft(schema: object, path: tuple[str, ...], rules: _Rules) -> Draft:
    """Return the draft of one JSON schema; None is the null type. Raises MisfitError when no type fits."""
    if isinstance(schema, str):
        schema = {"type": schema}
    if not isinstance(schema, Mapping):
        raise MisfitError(path, f"a JSON schema must be an object, this one is {_show(schema)}")
    if "type" in schema:
        declared = schema["type"]
        if isinstance(declared, list):
            # The schema holds the keywords of all listed types: {"type": ["object", "array"], "properties": …, "items": …}.
            options = ({**schema, "type": option} if isinstance(option, str) else option for option in _once(declared))
            return merge_options([_draft(option, path, rules) for option in options], path, rules.conflicts)
        return _typed(schema, declared, path, rules)
    if "$ref" in schema:
        known = _reference(schema["$ref"], path)
        return (rules.decimals.of_number(schema, rules.stream, path) or known) if known is Scalar.NUMBER else known
    for keyword in _UNION_KEYWORDS:
        if keyword in schema:
            listed = schema[keyword] if isinstance(schema[keyword], list) else [schema[keyword]]
            return merge_options([_draft(option, path, rules) for option in listed], path, rules.conflicts)
    if "properties" in schema:
        return _object(schema, path, rules)
    return _array(schema, path, rules) if "items" in schema else Scalar.STRING


def _once(declared: Sequence[object]) -> list[object]:
    """Return the listed types without repetitions: reading a schema twice at each of many levels would never end."""
    return list({option if isinstance(option, str) else id(option): option for option in declared}.values())


def _typed(schema: Mapping[str, Any], declared: object, path: tuple[str, ...], rules: _Rules) -> Draft:
    match declared:
        case "string":
            return rules.decimals.of_big(schema, rules.stream, path) or _string(schema)
        case "boolean":
            return Scalar.BOOLEAN
        case "integer" | "int":
            return rules.decimals.of_big(schema, rules.stream, path) or Scalar.INTEGER
        case "number" if schema.get("airbyte_type") == "integer":
            return Scalar.INTEGER
        case "number":
            return rules.decimals.of_number(schema, rules.stream, path) or Scalar.NUMBER
        case "object":
            return _object(schema, path, rules)
        case "array":
            return _array(schema, path, rules)
        case "null":
            return None
    raise MisfitError(path, f"its JSON schema has the unknown type {_show(declared)}")


def _string(schema: Mapping[str, Any]) -> Scalar:
    airbyte = schema.get("airbyte_type")
    match schema.get("format"):
        case "date":
            return Scalar.DATE
        case "time":
            return Scalar.TIME_WITHOUT_TIMEZONE if airbyte == "time_without_timezone" else Scalar.TIME_WITH_TIMEZONE
        case "date-time":
            return Scalar.TIMESTAMP_WITHOUT_TIMEZONE if airbyte == "timestamp_without_timezone" else Scalar.TIMESTAMP_WITH_TIMEZONE
    return Scalar.STRING


def _reference(reference: object, path: tuple[str, ...]) -> Scalar:
    if isinstance(reference, str) and reference.startswith(_WELL_KNOWN_PREFIX):
        known = _WELL_KNOWN_TYPES.get(reference.removeprefix(_WELL_KNOWN_PREFIX))
        if known is not None:
            return known
    raise MisfitError(path, f"its JSON schema has the unknown reference {_show(reference)}")


def _object(schema: Mapping[str, Any], path: tuple[str, ...], rules: _Rules) -> Draft:
    properties = schema.get("properties")
    if not properties:
        return SchemalessObject()
    if not isinstance(properties, Mapping):
        raise MisfitError(path, "`properties` of its JSON schema is not an object")
    _require_text(properties, path)
    return DraftObject({source: _draft(property_, (*path, source), rules) for source, property_ in properties.items()})


def _array(schema: Mapping[str, Any], path: tuple[str, ...], rules: _Rules) -> Draft:
    items = schema.get("items")
    if items is None or items == []:
        return SchemalessArray()
    if isinstance(items, list):
        return DraftArray(merge_options([_draft(item, path, rules) for item in items], path, rules.conflicts))
    return DraftArray(_draft(items, path, rules))


def _finish(draft: Draft) -> AirbyteType:
    """Convert a draft to a type: assign names and replace null types by strings."""
    match draft:
        case None:
            return Scalar.STRING
        case DraftObject(properties):
            return Object(_fields(properties, of_columns=False))
        case DraftArray(items):
            return Array(_finish(items))
        case DraftUnion(options):
            return Union(tuple(_finish(option) for option in options))
    return draft


def _fields(properties: Mapping[str, Draft], *, of_columns: bool) -> tuple[Field, ...]:
    names = assign_names(properties, (), of_columns=of_columns)
    return tuple(Field(source, names[source], _finish(draft)) for source, draft in properties.items())


def _admits_null(schema: object) -> bool:
    """Return whether the JSON schema allows null: by type, by enum or by an option of a union."""
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            if schema == "null":
                return True
            continue
        declared, enum = schema.get("type"), schema.get("enum")
        types: Sequence[object] = declared if isinstance(declared, list) else [declared]
        if "null" in types or (isinstance(enum, list) and None in enum):
            return True
        waiting += [option for keyword in _UNION_KEYWORDS if isinstance(schema.get(keyword), list) for option in schema[keyword]]
    return False


def _show(value: object) -> str:
    """Return a short form of part of a schema for a message."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
