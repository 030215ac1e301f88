"""The rules of typing, one value at a time: conversion of a JSON value's text to the value that is stored in its column.

A union is stored as `{type: <option>, <option>: value}` with every other member null, as Airbyte's migration guide describes. The JSON kind
of a value decides which option accepts it. No option accepts a value of another kind:

    boolean, object, array    the option of that kind
    string                    the first string-like option in schema order that can parse it; a plain string accepts every text
    integer literal           the integer option if the value fits int64, else the number option
    other number              the number option (a double or a decimal), else the integer option if the fraction is zero
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa

from destination_s3_spark.decoding import coercions
from destination_s3_spark.decoding.changes import Changes, Place, Reason
from destination_s3_spark.decoding.temporal import BEYOND_DATE, BEYOND_MICROSECONDS, TEMPORAL, temporal
from destination_s3_spark.exact_json.values import (
    ARRAY,
    NULL,
    OBJECT,
    QUOTE,
    compact,
    non_numbers,
    split_array,
    split_object,
    string,
    with_nulls,
    without_lone_surrogates,
)
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

Converter = Callable[[bytes, Place, Changes], Any]
"""Conversion of the text of a value that is not null. It records what cannot be kept. The result is what `pa.array` takes for the type."""

_LOSSES = (Reason, coercions.Rounded)

Coercion = Callable[[bytes], Any]
"""Conversion of a text to a value, to the Reason why it becomes null, or to a `coercions.Rounded`."""


def converter_of(of: AirbyteType, *, of_key: bool = False) -> Converter:
    """Return the converter for a type. In a field of the key, what a number or a date cannot hold of a text is recorded.

    Otherwise two different keys could be taken for one.
    """
    match of:
        case Scalar.STRING:
            return _string
        case Scalar() | Decimal():
            return _scalar(of, of_key)
        case SchemalessObject():
            return _container(OBJECT, _json_text)
        case SchemalessArray():
            return _container(ARRAY, _json_text)
        case Object(fields):
            return _object(fields)
        case Array(items):
            return _array(converter_of(items))
        case Union(options):
            return _union(options)


def typed_array(
    texts: Iterable[bytes | None], places: Iterable[tuple[int, Place]], convert: Converter, arrow_type: pa.DataType, changes: Changes
) -> pa.Array[Any]:
    """Convert the texts of a column's values, given the row and the place of each."""
    values = []
    for text, (changes.row, place) in zip(texts, places, strict=True):
        values.append(converted(text, convert, place, changes))
    return arrow_array(values, arrow_type)


def arrow_array(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """Build the array of converted values. Unlike those of `pa.array`, the members of a null object are null."""
    if pa.types.is_list(arrow_type):
        offsets = list(accumulate((len(value or ()) for value in values), initial=0))
        items = arrow_array([item for value in values for item in value or ()], arrow_type.value_type)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=arrow_type, mask=mask)
    if pa.types.is_struct(arrow_type) and len(arrow_type):
        members = [arrow_array([value and value.get(field.name) for value in values], field.type) for field in arrow_type]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(members, fields=list(arrow_type), mask=mask)
    return pa.array(values, arrow_type)


def converted(text: bytes | None, convert: Converter, place: Place, changes: Changes) -> Any:
    return None if text is None or text == NULL else convert(text, place, changes)


def cell(text: bytes, place: Place, changes: Changes) -> str | None:
    """Convert any value to JSON text that every reader accepts.

    Lone surrogates of a string become U+FFFD, and NaN and Infinity inside a value become null.
    """
    if text[0] != QUOTE:
        return _valid_text(text, place, changes)
    given = string(text)
    whole = without_lone_surrogates(given)
    if whole is given:
        return text.decode()
    changes.truncated(place, Reason.SERIALIZATION)
    return msgspec.json.encode(whole).decode()


def whole_record(text: bytes, _: Place, changes: Changes) -> str | None:
    """Convert the `data` of a record to compact JSON text. NaN and Infinity inside become null."""
    return _valid_text(text, None, changes)


def _valid_text(text: bytes, place: Place | None, changes: Changes) -> str | None:
    found = list(non_numbers(text))
    for each in found:
        inner = place
        for ordinal, key in each.steps:
            inner = (inner, ordinal, key)
        if inner is not None:
            changes.nulled(inner, Reason.SERIALIZATION)
    valid = compact(with_nulls(found, text))
    return None if valid == NULL else valid.decode()


def _string(text: bytes, place: Place, changes: Changes) -> str:
    """Return the string, or the compact JSON text of any other value. Lone surrogates become U+FFFD."""
    if text[0] == QUOTE:
        given = string(text)
        whole = without_lone_surrogates(given)
        if whole is not given:
            changes.truncated(place, Reason.SERIALIZATION)
        return whole
    return (compact(text) if text[0] in (OBJECT, ARRAY) else text).decode()


def _scalar(of: Scalar | Decimal, of_key: bool) -> Converter:
    coerce = _key_coercion(of) if of_key else _coercion(of)

    def convert(text: bytes, place: Place, changes: Changes) -> Any:
        value = coerce(text)
        return _recorded(value, place, changes) if isinstance(value, _LOSSES) else value

    return convert


def _recorded(value: Any, place: Place, changes: Changes) -> Any:
    """Return the outcome of a coercion as it is stored, and record what was lost."""
    if isinstance(value, Reason):
        changes.nulled(place, value)
        return None
    if isinstance(value, coercions.Rounded):
        changes.truncated(place, Reason.SIZE)
        return value.value
    return value


def _coercion(of: Scalar | Decimal) -> Coercion:
    match of:
        case Scalar.BOOLEAN:
            return coercions.boolean
        case Scalar.INTEGER:
            return coercions.integer
        case Scalar.NUMBER:
            return coercions.number
        case Decimal(precision, scale):
            return lambda text: coercions.decimal(text, precision, scale)
        case _:
            return lambda text: temporal(of, without_lone_surrogates(string(text))) if text[0] == QUOTE else Reason.SERIALIZATION


def _key_coercion(of: Scalar | Decimal) -> Coercion:
    coerce = _coercion(of)
    beyond = re.compile(BEYOND_DATE if of is Scalar.DATE else BEYOND_MICROSECONDS)

    def convert(text: bytes) -> Any:
        value = coerce(text)
        if isinstance(value, Reason):
            return value
        lost = beyond.search(string(text)) if of in TEMPORAL else of is Scalar.NUMBER and coercions.is_rounded(text, value)
        return coercions.Rounded(value) if lost else value

    return convert


def _container(opening: int, convert: Converter) -> Converter:
    """Return the converter for one kind of container. A value of another kind becomes null."""

    def checked(text: bytes, place: Place, changes: Changes) -> Any:
        if text[0] == opening:
            return convert(text, place, changes)
        changes.nulled(place, Reason.SERIALIZATION)
        return None

    return checked


def _json_text(text: bytes, _: Place, __: Changes) -> str:
    """Return the text of a container without declared members, as it is stored."""
    return compact(text).decode()


def _object(fields: Sequence[Field]) -> Converter:
    members = [(ordinal, field.source, field.name, converter_of(field.type)) for ordinal, field in enumerate(fields)]

    def convert(text: bytes, place: Place, changes: Changes) -> dict[str, Any]:
        values = split_object(text)
        return {name: converted(values.get(source), of, (place, ordinal, source), changes) for ordinal, source, name, of in members}

    return _container(OBJECT, convert)


def _array(items: Converter) -> Converter:
    def convert(text: bytes, place: Place, changes: Changes) -> list[Any]:
        return [converted(item, items, (place, index, None), changes) for index, item in enumerate(split_array(text))]

    return _container(ARRAY, convert)


def _union(options: Sequence[AirbyteType]) -> Converter:
    accepting = [(option_name(option), _accepting(option)) for option in options]

    def convert(text: bytes, place: Place, changes: Changes) -> dict[str, Any] | None:
        reason = Reason.SERIALIZATION
        for at in _candidates(text, options):
            name, accept = accepting[at]
            value = accept(text, place, changes)
            if not isinstance(value, Reason):
                return {"type": name, name: _recorded(value, place, changes)}
            reason = Reason.SIZE if Reason.SIZE in (reason, value) else reason
        changes.nulled(place, reason)
        return None

    return convert


def _accepting(option: AirbyteType) -> Converter:
    """Return a converter that returns a Reason, and records nothing, if another option may take the value."""
    if isinstance(option, Scalar | Decimal) and option is not Scalar.STRING:
        coerce = _coercion(option)
        return lambda text, _, __: coerce(text)
    return converter_of(option)


def _candidates(text: bytes, options: Sequence[AirbyteType]) -> list[int]:
    """Return the ordinals of the options for a value of this JSON kind, the preferred one first."""
    first = text[0]
    if first == QUOTE:
        return [at for at, option in enumerate(options) if option is Scalar.STRING or option in TEMPORAL]
    if first == OBJECT:
        return [at for at, option in enumerate(options) if isinstance(option, Object | SchemalessObject)]
    if first == ARRAY:
        return [at for at, option in enumerate(options) if isinstance(option, Array | SchemalessArray)]
    if text in (b"true", b"false"):
        return [at for at, option in enumerate(options) if option is Scalar.BOOLEAN]
    integers = [at for at, option in enumerate(options) if option is Scalar.INTEGER]
    numbers = [at for at, option in enumerate(options) if option is Scalar.NUMBER or isinstance(option, Decimal)]
    return integers + numbers if text.lstrip(b"-").isdigit() else numbers + integers
