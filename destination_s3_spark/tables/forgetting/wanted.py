"""Rows to forget: those whose columns equal given values, or those with given keys.

Values come as JSON objects and are typed as records are, so that `42` and `"42"` find the same rows of an integer column. In a table whose
columns are hashed or cut by rules, a value also stands for what the rules make of it. Keys to forget for good are recorded as digests, by
which later records are left out.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from destination_s3_spark.chain.events import BarKeys, BarredKeys
from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.line_rules import replacement
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.exact_json.members import members
from destination_s3_spark.exact_json.values import ARRAY, NULL, OBJECT, object_text
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.airbyte_type import Decimal, Field, Scalar, Union
from destination_s3_spark.schema.arrow import arrow_columns, contiguous
from destination_s3_spark.schema.column_rules import Action, Treatment
from destination_s3_spark.tables.landing.barred import Digests, key_texts
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.keys import META, KeySpec, encode_fields, key_column
from destination_s3_spark.tables.stored.foreign import record_line

SALT_BYTES = 32

FieldTexts: TypeAlias = dict[tuple[str, ...], set[tuple[bytes, ...]]]
"""The JSON texts of values of rows, by the JSON keys of the fields that have them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One JSON object of a request: the JSON text of each value, by the JSON key of its column, in the order of the keys."""

    values: tuple[tuple[str, bytes], ...]

    @classmethod
    def parse(cls, text: bytes, place: str) -> Subject:
        """Parse a JSON object. Raises ConfigError, which names its place and does not quote it."""
        try:
            found = members(text)
        except ValueError:
            found = []
        values = tuple(sorted((member.key, text[member.start : member.end]) for member in found))
        if not values or len({name for name, _ in values}) < len(values) or any(value[0] in (OBJECT, ARRAY) for _, value in values):
            raise ConfigError(
                'What is to be forgotten has to be JSON objects with a single value for each column, such as {"id": 42}; '
                f"{place} is none."
            )
        return cls(values)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)


def digest(subjects: Sequence[Subject]) -> str:
    """Return a SHA-256 of a request, whatever its order and its blanks outside of values."""
    texts = sorted(b"\0".join(part for name, text in subject.values for part in (name.encode(), text)) for subject in subjects)
    return hashlib.sha256(b"\n".join(texts)).hexdigest()


@dataclass(frozen=True, slots=True)
class ByValues:
    """Rows that have, in some columns together, one of several values, which are encoded as keys are."""

    conditions: tuple[tuple[tuple[Field, ...], frozenset[bytes]], ...]

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        for fields, values in self.conditions:
            found = pc.or_(found, is_one_of(encode_fields(rows, fields), values))
        return found


@dataclass(frozen=True, slots=True)
class ByKeys:
    """Rows with one of these keys, encoded as those of a table, or with other values."""

    spec: KeySpec
    keys: frozenset[bytes]
    other: ByValues | None = None

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        found = is_one_of(key_column(rows, self.spec), self.keys)
        return found if self.other is None else pc.or_(found, self.other.mask(rows))


Wanted: TypeAlias = ByValues | ByKeys


def is_one_of(encoded: pa.Array[pa.BinaryScalar] | pa.ChunkedArray[pa.BinaryScalar], values: frozenset[bytes]) -> pa.BooleanArray:
    return pc.is_in(encoded, value_set=pa.array(sorted(values), pa.binary()))


def wanted_rows(table: OpenTable, subjects: Sequence[Subject], treatment: Treatment) -> Wanted:
    """Return the rows of a table that a request means: those with these keys, if it names just the key of a deduplicated table.

    Raises ConfigError, which quotes no value, for a column that the table does not have or whose values cannot be compared.
    """
    typed = typed_subjects(table, subjects, treatment)
    if table.spec is not None and [fields for fields, _ in typed] == [tuple(sorted(table.spec.key, key=lambda field: field.source))]:
        return ByKeys(table.spec, frozenset(key_column(typed[0][1], table.spec).to_pylist()))
    return ByValues(tuple((fields, frozenset(encode_fields(rows, fields).to_pylist())) for fields, rows in typed))


def typed_subjects(table: OpenTable, subjects: Sequence[Subject], treatment: Treatment) -> list[tuple[tuple[Field, ...], pa.RecordBatch]]:
    """Return the values of a request as rows of the table, by the columns that are named together. Raises as `wanted_rows`.

    A field whose type has changed has several columns, and its values are those of each that they fit.
    """
    columns = {name: columns_of(table, name) for name in dict.fromkeys(name for subject in subjects for name in subject.columns)}
    tried = [
        (number, fields, form)
        for number, subject in enumerate(subjects)
        for form in _forms(table, subject, treatment)
        for fields in product(*(columns[name] for name in form.columns))
    ]
    rows, fits = _typed(table, [(fields, form) for _, fields, form in tried])
    unfit = set(range(len(subjects))).difference(number for (number, _, _), fit in zip(tried, fits, strict=True) if fit)
    if unfit:
        names = sorted({name for number in unfit for name in subjects[number].columns})
        raise table.refuse(
            f"a value of {', '.join(names)} does not fit the type of its column, so no row can be found by it. Name another field."
        )
    places: dict[tuple[Field, ...], list[int]] = {}
    for place, ((_, fields, _), fit) in enumerate(zip(tried, fits, strict=True)):
        if fit:
            places.setdefault(fields, []).append(place)
    return [(fields, rows.take(pa.array(found))) for fields, found in places.items()]


def columns_of(table: OpenTable, source: str) -> tuple[Field, ...]:
    """Return the columns of a JSON key that hold single values, of which a field of the key has one."""
    found = [column for column in table.schema.fields if column.source == source]
    if not found:
        raise table.refuse(f"its table has no column of the field '{source}', so no row can be found by it.")
    if table.spec is not None and source in {field.source for field in table.spec.key}:
        found = [column for column in found if column.recovered_from is None]
    single = tuple(column.field for column in found if isinstance(column.type, Scalar | Decimal))
    if not single or any(isinstance(column.type, Union) for column in found):
        raise table.refuse(f"the field '{source}' does not hold single values of one type each, so no row can be found by it.")
    return single


def _forms(table: OpenTable, subject: Subject, treatment: Treatment) -> Iterator[Subject]:
    """Yield the forms in which the values of a subject may lie in the table: as sent, and as the rules make them."""
    forms: list[list[tuple[str, bytes]]] = []
    for name, text in subject.values:
        rule = treatment.rule_of((name,))
        if text == NULL:
            raise table.refuse(f"a null of '{name}' names nobody. Say which value the rows have.")
        made = None if rule is None or rule.action in {Action.DROP, Action.NULL} else replacement(text, rule, treatment.secret)
        forms.append([(name, text), *([] if made in {None, text} else [(name, made or b"")])])
    yield from (Subject(values) for values in product(*forms))


def _typed(table: OpenTable, tried: Sequence[tuple[tuple[Field, ...], Subject]]) -> tuple[pa.RecordBatch, list[bool]]:
    """Return values as rows of the columns in which they are looked for, and whether all values of each row fit them."""
    key = () if table.spec is None else tuple(field.name for field in table.spec.key)
    plan = plan_by_name(table.stream, {field.name: field for fields, _ in tried for field in fields}.values(), key)
    named = ({field.name: text for field, (_, text) in zip(fields, form.values, strict=True)} for fields, form in tried)
    rows = record_typer(plan).type_block(b"".join(record_line(plan.stream, object_text(values)) for values in named)).final
    return rows, pc.equal(pc.list_value_length(contiguous(rows[META]).field("changes")), 0).to_pylist()


def plan_by_name(stream: Stream, fields: Iterable[Field], key: tuple[str, ...] = ()) -> RowPlan:
    """Return the plan that types these columns of records which have them by name."""
    by_name = tuple(Field(field.name, field.name, field.type) for field in fields)
    return RowPlan(stream.id, stream.sync_id, stream.generation_id, by_name, arrow_columns(by_name), key=key)


def keys_of(table: OpenTable, subjects: Sequence[Subject], treatment: Treatment) -> FieldTexts:
    """Return the values of a request as records of the table have them when they land. Raises ConfigError as `wanted_rows`."""
    for name in dict.fromkeys(name for subject in subjects for name in subject.columns):
        rule = treatment.rule_of((name,))
        if rule is not None and rule.action is Action.TRUNCATE:
            raise table.refuse(f"'{name}' is cut by tables.columns, so records of others have the same rest. Name another field.")
    keys: FieldTexts = {}
    for fields, rows in typed_subjects(table, subjects, treatment):
        texts = keys.setdefault(tuple(field.source for field in fields), set())
        texts.update(tuple(text or b"" for text in key) for key in key_texts(rows, fields))
    return keys


def barring(before: BarKeys | None, keys: FieldTexts) -> BarKeys | None:
    """Return the event that bars these keys beside those of before, or None if they are barred already."""
    salt = secrets.token_hex(SALT_BYTES) if before is None else before.salt
    known = {} if before is None else {one.fields: set(one.digests) for one in before.keys}
    digests = Digests(bytes.fromhex(salt))
    for fields, values in keys.items():
        known.setdefault(fields, set()).update(found.hex() for value in values if (found := digests.of(value)) is not None)
    event = BarKeys(salt, tuple(BarredKeys(fields, tuple(sorted(found))) for fields, found in sorted(known.items()) if found))
    return event if event.count > (0 if before is None else before.count) else None
