"""Barred keys: what counts as their value, and which records of a block land beside theirs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.schema.airbyte_type import AirbyteType, Decimal, Field, Scalar
from destination_s3_spark.tables.landing.barred import Bar, Barred, Digests, without
from destination_s3_spark.tables.landing.land import blocks, leaves, shares
from unit_tests.cases import each
from unit_tests.decoding.conftest import line, plan_of
from unit_tests.tables.landing.spooled import slice_of

SALT = b"salt of a table"
ID = Field("id", "id_column", Scalar.INTEGER)
NAME = Field("name", "name", Scalar.STRING)


def lines_of(texts: Sequence[str]) -> list[bytes]:
    return [line(text).encode() + b"\n" for text in texts]


def bar(*keys: Sequence[bytes], fields: tuple[str, ...] = ("id",)) -> Barred:
    return Barred(SALT, {fields: frozenset(found for key in keys if (found := Digests(SALT).of(key)))})


@each(
    ("of", "value"),
    [
        (Scalar.INTEGER, "42"),
        (Scalar.INTEGER, '"42"'),
        (Scalar.NUMBER, "42"),
        (Scalar.NUMBER, "42.0"),
        (Scalar.STRING, '"42"'),
        (Scalar.STRING, "42"),
        (Decimal(10, 3), "42.000"),
    ],
)
def test_a_value_is_the_same_in_columns_of_all_types(of: AirbyteType, value: str) -> None:
    plan = plan_of([Field("id", "id", of)])
    lines = b"".join(lines_of([f'{{"id": {value}}}', '{"id": 4}', '{"id": null}', "{}"]))
    kept = Bar(bar([b"42"]), plan).kept(lines, record_typer(plan).type_block(lines))
    assert kept is not None
    assert kept.tolist() == [False, True, True, True]


def test_all_values_of_a_key_count_together() -> None:
    plan = plan_of([ID, NAME])
    barred = bar([b"1", b"23"], [b"12", b"3"], fields=("id", "name"))
    lines = b"".join(lines_of(['{"id":1,"name":"23"}', '{"id":12,"name":"3"}', '{"id":12,"name":"23"}', '{"id":1}', '{"name":"3"}']))
    kept = Bar(barred, plan).kept(lines, record_typer(plan).type_block(lines))
    assert kept is not None
    assert kept.tolist() == [False, False, True, True, True]


@each("values", [Values.TYPED, Values.CELLS, Values.RECORD])
@each("every", [1, 7, 500])
def test_shares_are_those_of_the_records_that_land(tmp_path: Path, every: int, values: Values) -> None:
    chosen = random.Random(every)
    sent = lines_of([f'{{"id":{chosen.choice([1, 2, 3])},"name":"row {row}"}}' for row in range(2_000)])
    plan = plan_of([] if values is Values.RECORD else [ID, NAME])
    typed_plan = None if values is Values.TYPED else plan_of([ID])
    of_bar = Bar(Barred(SALT, bar([b"1"], [b"3"]).keys, typed_plan), plan)
    piece = slice_of(tmp_path, sent, every)
    typer, found = record_typer(plan), []
    for block in blocks(piece, leaves(plan.table_schema)):
        whole = typer.type_block(block.lines)
        kept = of_bar.kept(block.lines, whole)
        assert kept is not None
        typed = without(whole, kept)
        assert typed.records == len(typed.raw) == len(typed.final) < whole.records
        found += list(shares(block, typed, piece.boundaries, kept))
    totals: dict[int, list[int]] = {}
    stops = sorted({*piece.boundaries, piece.end})
    for share in found:
        total = totals.setdefault(next(stop for stop in stops if share.end <= stop), [0, 0])
        total[0] += share.records
        total[1] = (total[1] + share.multiset) % 2**128
    for number, stop in enumerate(stops):
        left = [one for one in sent[number * every : (number + 1) * every] if b'"id":2' in one]
        alone = typer.type_block(b"".join(left))
        assert totals[stop] == [alone.records, alone.multiset]
