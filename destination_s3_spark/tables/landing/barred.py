"""Barred keys: records with these values are left out where they land, because their rows were forgotten for good.

Only digests of the values are kept, with a salt of the table. A value counts as its text: numbers exactly, whatever the type of the column,
so that a column may change its type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_intdigest

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.line_rules import value_text
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import TypedBlock
from destination_s3_spark.decoding.value_text import Texts, value_texts
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import contiguous
from destination_s3_spark.tables.runs.winners import Flags

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Barred:
    """The barred keys of a table: digests by the JSON keys of the fields that have the values.

    `plan`: types these fields, if the plan of the table's rows does not type all of them. None if it does.
    """

    salt: bytes
    keys: Mapping[tuple[str, ...], frozenset[bytes]]
    plan: RowPlan | None = None

    @property
    def fields(self) -> frozenset[str]:
        """The JSON keys of all fields."""
        return frozenset(field for fields in self.keys for field in fields)


class Digests:
    """Digests of the texts of keys' values. Who has the salt can test a guess, and nothing else."""

    def __init__(self, salt: bytes) -> None:
        self._salted = hashlib.sha256(salt)

    def of(self, key: Iterable[bytes | None]) -> bytes | None:
        """Return the digest of a key, None if one of its values is null."""
        state = self._salted.copy()
        for value in key:
            if value is None:
                return None
            state.update(b"%d:%b" % (len(value), value))
        return state.digest()[:DIGEST_BYTES]


def key_texts(rows: pa.RecordBatch, fields: Sequence[Field]) -> Iterable[tuple[bytes | None, ...]]:
    """Return the texts of the fields in each row. None is null, or a value that does not fit its type."""
    return zip(*(_texts(contiguous(rows[field.name]), field) for field in fields), strict=True)


def _texts(values: pa.Array[Any], field: Field) -> Texts:
    """Return the texts by which values are compared: that of 42 and "42" is the same."""
    if field.type in (Scalar.STRING, Scalar.INTEGER):
        texts: Texts = values.cast(pa.string()).cast(pa.binary()).to_pylist()
        return texts
    return [None if text is None else value_text(text) for text in value_texts(values, field.type)]


class Bar:
    """Finds the records of a stream that have barred keys."""

    def __init__(self, barred: Barred, plan: RowPlan) -> None:
        self._digests = Digests(barred.salt)
        self._typer = None if barred.plan is None else record_typer(barred.plan)
        known = {field.source: field for field in (barred.plan or plan).fields}
        self._keys = [([known[source] for source in sources], digests) for sources, digests in barred.keys.items()]

    def kept(self, lines: bytes, typed: TypedBlock) -> Flags | None:
        """Flag the records of a block that land. Return None if all do."""
        rows = typed.final if self._typer is None else self._typer.type_block(lines).final
        flags = np.ones(typed.records, np.bool_)
        for fields, digests in self._keys:
            found = map(self._digests.of, key_texts(rows, fields))
            flags &= np.fromiter((one is None or one not in digests for one in found), np.bool_, typed.records)
        return None if flags.all() else flags


def without(typed: TypedBlock, kept: Flags) -> TypedBlock:
    """Return the block of the records that land."""
    mask = pa.array(kept)
    raw = typed.raw.filter(mask)
    multiset = sum(map(xxh3_128_intdigest, raw["_airbyte_data"].cast(pa.binary()).to_pylist())) % 2**128
    return TypedBlock(len(raw), typed.final.filter(mask), multiset, typed.unfit, lambda: raw)
