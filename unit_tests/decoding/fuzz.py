"""The kernel and the reference over spoilt record lines: what one makes of a block, the other makes of it, too.

Lines are the demo shop's and such as hold every kind of value there is a rule for. They are spoilt by their bytes, by their tokens or as
JSON, so that some are no records, some are odd and most are plain. Run as a program it goes on for a while (`make fuzz`); a test takes a
few rounds.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pyarrow as pa

from demo import shop
from demo.shop import Shop
from destination_s3_spark.decoding.kernel_typer import KernelTyper
from destination_s3_spark.decoding.plan import RowPlan, Values
from destination_s3_spark.decoding.raw_ids import carried_digest
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.decoding.record_typer import RecordTyper, TypedBlock
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.schema.airbyte_type import Array, Decimal, Field, Object, Scalar, SchemalessArray, SchemalessObject, Union
from destination_s3_spark.schema.arrow import META_FIELDS, RAW_SCHEMA, arrow_field
from destination_s3_spark.schema.column_rules import Action, ColumnRule, ColumnRules
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.stream_id import StreamId
from unit_tests.decoding.spoilt_lines import random_value, spoilt, with_other_envelope

STREAM = StreamId("shop", "users")
_POINT = Object((Field("lat", "lat", Scalar.NUMBER), Field("é", "e", Scalar.TIMESTAMP_WITH_TIMEZONE), Field('q"\\', "q", Scalar.STRING)))
_FIELDS = (
    *(Field(scalar.value, scalar.value, scalar) for scalar in Scalar),
    Field("Integer", "Integer_1", Scalar.NUMBER),
    Field("price", "price", Decimal(12, 2)),
    Field("whole", "whole", Decimal(38, 0)),
    Field("rates", "rates", Array(Decimal(38, 18))),
    Field("o", "o", SchemalessObject()),
    Field("a", "a", SchemalessArray()),
    Field("point", "point", _POINT),
    Field("points", "points", Array(_POINT)),
    Field("grid", "grid", Array(Array(Scalar.INTEGER))),
    Field("days", "days", Array(Scalar.DATE)),
    Field("u", "u", Union((Scalar.INTEGER, Scalar.STRING, _POINT, Array(Scalar.BOOLEAN)))),
    Field("us", "us", Array(Union((Scalar.NUMBER, Scalar.DATE)))),
    Field("ud", "ud", Union((Scalar.INTEGER, Decimal(10, 2)))),
    Field("texts", "texts", Array(SchemalessObject())),
)
_CELLS = RowPlan(STREAM, 7, 3, _FIELDS, pa.schema([*META_FIELDS, *(pa.field(field.name, pa.string()) for field in _FIELDS)]), Values.CELLS)
_RECORDS = RowPlan(STREAM, 7, 3, (), RAW_SCHEMA, Values.RECORD)
_KEY = (*(scalar.value for scalar in Scalar), "o", "point", "u", "price")


_SECRET = b"0123456789abcdef" * 2
_RULES = (
    (("string", Action.HASH), ("integer", Action.HASH), ("price", Action.HASH), ("point", Action.DROP), ("date", Action.NULL)),
    (("point.lat", Action.HASH), ("points.q*", Action.TRUNCATE), ("point*.*", Action.DROP), ("o.a", Action.HASH), ("us", Action.DROP)),
    (("u", Action.HASH), ("o", Action.TRUNCATE), ("more", Action.DROP), ("number", Action.TRUNCATE), ("a", Action.DROP)),
    (("u", Action.TRUNCATE), ("*lat", Action.TRUNCATE), ("*t*", Action.HASH), ("a", Action.HASH), ("o", Action.TRUNCATE)),
)
"""Rules for the columns of every type, by pattern. Of patterns with a star, all members at any depth are tried."""


class Disagreement(Exception):
    """The typers made different things of a block."""


class Source:
    """Good lines of one stream, to be spoilt, and the plan of its table."""

    def __init__(self, plan: RowPlan, lines: Sequence[bytes]) -> None:
        self.plan = plan
        self.lines = lines


def kernel_typer(plan: RowPlan) -> KernelTyper:
    """The kernel's typer, where there is a kernel."""
    assert KERNEL is not None
    return KernelTyper(plan, KERNEL)


def sources(chance: random.Random) -> list[Source]:
    """The demo shop's streams, and one with a column of every type."""
    streams = parse_catalog(json.dumps(Shop(7, 0.0).catalog(dict.fromkeys(shop.MIX, "append"))).encode()).streams
    lines = [line for chunk in Shop(chance.randrange(1000), 0.02, None).read(400) for line in chunk.lines.splitlines()]
    lines_of_all = [_any_line(chance) for _ in range(100)]
    found = [Source(plan, lines_of_all) for plan in (_plan(STREAM, _FIELDS, ()), _plan(STREAM, _FIELDS, _KEY), _CELLS, _RECORDS)]
    found += [Source(plan, lines_of_all) for rules in _RULES for plan in _treated(rules)]
    for stream in streams:
        prefix = f'{{"type":"RECORD","record":{{"namespace":"{stream.id.namespace}","stream":"{stream.id.name}"'.encode()
        fields = tuple(stream_fields(stream.json_schema, stream.id).fields)
        key = tuple(field.source for field in fields[:2])
        found.append(Source(_plan(stream.id, fields, key), [line for line in lines if line.startswith(prefix)]))
    return found


def _plan(stream: StreamId, fields: tuple[Field, ...], key: tuple[str, ...]) -> RowPlan:
    return RowPlan(stream, 7, 3, fields, pa.schema([*META_FIELDS, *map(arrow_field, fields)]), key=key)


def _treated(rules: Sequence[tuple[str, Action]]) -> Iterator[RowPlan]:
    """The plans of the stream with a column of every type whose lines are treated."""
    sent = StreamFields(_FIELDS, frozenset())
    chosen = tuple(ColumnRule("users", column, action, 2) for column, action in rules)
    for declared_only in (False, True):
        treatment = ColumnRules(chosen, declared_only, _SECRET).of_stream(STREAM, sent)
        yield replace(_plan(STREAM, treatment.fields(sent).fields, ("integer",)), treatment=treatment)
    yield replace(_RECORDS, treatment=treatment)
    yield replace(_CELLS, treatment=ColumnRules(chosen, False, _SECRET).of_stream(STREAM, sent))


def _any_line(chance: random.Random) -> bytes:
    members = [
        f"{json.dumps(field.source, ensure_ascii=chance.random() < 0.5)}:{random_value(chance, field.type)}"
        for field in _FIELDS
        if chance.random() < 0.8
    ]
    data = "{" + ",".join(members) + "}"
    time = chance.randrange(10**13)
    return f'{{"type":"RECORD","record":{{"stream":"users","namespace":"shop","emitted_at":{time},"data":{data}}}}}'.encode()


def block(source: Source, chance: random.Random) -> bytes:
    """Some lines of a source: some as they are, some spoilt."""
    lines = []
    share = chance.choice((0.0, 0.05, 0.3, 1.0))
    for _ in range(chance.randrange(1, 30)):
        line = chance.choice(source.lines)
        if chance.random() < share:
            line = spoilt(line, chance) if chance.random() < 0.97 else with_other_envelope(line, chance)
        lines.append(line)
    return b"\n".join(lines) + chance.choice((b"\n", b"\n", b"\n", b""))


Outcome = tuple[str, Any]


def outcome(typer: RecordTyper, lines: bytes) -> Outcome:
    """All that a typer says of a block, but for the rows' ids."""
    try:
        typed = typer.type_block(lines)
    except UnreadableRecord as error:
        return type(error).__name__, error.index
    return "typed", (_said(typed), _said(typer.retype(typed.raw)))


def _said(typed: TypedBlock) -> Any:
    typed.final.validate(full=True)
    typed.raw.validate(full=True)
    final, raw = (batch.drop_columns(["_airbyte_raw_id"]) for batch in (typed.final, typed.raw))
    # As texts, because 0.0 and -0.0 are equal.
    values = {name: [repr(value) for value in stored(batch[name])] for batch in (final, raw) for name in batch.schema.names}
    ids = typed.final["_airbyte_raw_id"].equals(typed.raw["_airbyte_raw_id"]) and typed.final["_airbyte_raw_id"].null_count == 0
    keys = list(map(carried_digest, typed.final["_airbyte_raw_id"].to_pylist()))
    return typed.records, final.schema, raw.schema, values, typed.multiset, dict(typed.unfit), ids, keys


def stored(array: pa.Array) -> list[Any]:
    """The values, those of time as the integers that are stored: Python knows no years beyond 9999."""
    values: list[Any] = array.cast(_as_integers(array.type)).to_pylist()
    return values


def _as_integers(of: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(of):
        return pa.int32() if pa.types.is_date32(of) else pa.int64()
    if pa.types.is_list(of):
        return pa.list_(_as_integers(of.value_type))
    return pa.struct([(field.name, _as_integers(field.type)) for field in of]) if pa.types.is_struct(of) else of


def readable(lines: bytes, typer: RecordTyper) -> bytes:
    """The lines that are records; without those that are none, the others are typed, too."""
    return b"".join(line + b"\n" for line in lines.split(b"\n") if _is_read(typer, line + b"\n"))


def _is_read(typer: RecordTyper, line: bytes) -> bool:
    try:
        return typer.type_block(line).records == 1
    except UnreadableRecord:
        return False


def run(seed: int, rounds: int, *, seconds: float | None = None) -> int:
    """Compare both typers over so many blocks, or for so long; the number of blocks. Raises Disagreement."""
    if KERNEL is None:
        raise SystemExit("There is no native kernel here.")
    chance = random.Random(seed)
    ends_at = None if seconds is None else monotonic() + seconds
    done = 0
    kept: list[tuple[Source, RecordTyper, RecordTyper]] = []
    while done < rounds if ends_at is None else monotonic() < ends_at:
        if done % 200 == 0:  # what the kernel learnt is forgotten now and then
            kept = [(source, RecordTyper(source.plan), kernel_typer(source.plan)) for source in sources(chance)]
        source, python, native = chance.choice(kept)
        lines = block(source, chance)
        for text in {lines, readable(lines, python)}:
            if text and outcome(python, text) != outcome(native, text):
                raise Disagreement(f"seed {seed}, block {done}: {text!r}")
        done += 1
    return done


def main() -> None:
    """Go on for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    print(f"{run(options.seed, 0, seconds=options.seconds)} blocks, no disagreement")


if __name__ == "__main__":
    main()
