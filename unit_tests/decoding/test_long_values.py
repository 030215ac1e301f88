"""Long values that are almost of their column's type: what they cost grows with their length, not with its square."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from destination_s3_spark.decoding.record_typer import RecordTyper
from destination_s3_spark.schema.airbyte_type import AirbyteType, Decimal, Field, Object, Scalar, SchemalessObject, Union
from unit_tests.cases import each
from unit_tests.cpu_limit import cpu_limit

LENGTH = 1_000_000
"""Characters. What is quadratic in them takes hours, what is linear a second."""
TYPES: list[AirbyteType] = [*(scalar for scalar in Scalar if scalar is not Scalar.STRING), Decimal(38, 9)]
TEXTS = {
    "digits and a letter": "0" * LENGTH + "x",
    "a fraction and a letter": "1." + "0" * LENGTH + "x",
    "two fractions": f"{'1' * (LENGTH // 2)}.{'1' * (LENGTH // 2)}.",
    "a fraction alone and a letter": "-." + "1" * LENGTH + "x",
    "an exponent and a letter": "1e" + "1" * LENGTH + "x",
    "a day without an end": "2020-" * (LENGTH // 5),
    "a second without an end": "2020-01-01T00:00:00." + "1" * LENGTH + "x",
    "blanks": " " * LENGTH,
}


@each("name", TEXTS)
@each("inside", [False, True])
def test_a_value_that_is_almost_of_its_type_becomes_null(
    name: str, inside: bool, make_typer: Callable[..., RecordTyper], make_plan: Any, make_line: Any, make_block: Any
) -> None:
    text = TEXTS[name]
    fields = [Field(f"c{at}", f"c{at}", Union((of, SchemalessObject())) if inside else of) for at, of in enumerate(TYPES)]
    lines = make_block([make_line("{" + ",".join(f'"{field.source}":"{text}"' for field in fields) + "}")])
    with cpu_limit(30):
        block = make_typer(make_plan(fields)).type_block(lines)
    assert [block.final[field.name].null_count for field in fields] == [1] * len(fields)
    assert len(block.final["_airbyte_meta"][0].as_py()["changes"]) == len(fields)


def test_a_type_of_many_levels_is_typed(make_typer: Callable[..., RecordTyper], make_plan: Any, make_line: Any, make_block: Any) -> None:
    of: AirbyteType = Scalar.INTEGER
    text = "7"
    for _ in range(24):
        of = Union((Object((Field("in", "in", of),)), Scalar.BOOLEAN))
        text = f'{{"in":{text}}}'
    block = make_typer(make_plan([Field("deep", "deep", of)])).type_block(make_block([make_line(f'{{"deep":{text}}}')]))
    value: Any = block.final["deep"].to_pylist()[0]
    for _ in range(24):
        value = value["object"]["in"]
    assert value == 7
