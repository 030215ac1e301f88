"""What the tests of typing share: plans, record lines, and the comparison of the kernel with the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import RecordTyper, TypedBlock
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.stream_id import StreamId
from unit_tests.decoding.fuzz import outcome, stored

STREAM = StreamId("shop", "users")


def plan_of(fields: Sequence[Field], stream: StreamId = STREAM, extra_columns: Iterable[pa.Field] = ()) -> RowPlan:
    return RowPlan(stream, 7, 3, tuple(fields), pa.schema([*META_FIELDS, *map(arrow_field, fields), *extra_columns]))


def line(data: str, *, emitted_at: str = "1700000000000", rest: str = "") -> str:
    return f'{{"type":"RECORD","record":{{"stream":"users","namespace":"shop","emitted_at":{emitted_at},"data":{data}{rest}}}}}'


def block(lines: Iterable[str]) -> bytes:
    return "".join(text + "\n" for text in lines).encode()


@pytest.fixture(scope="session", params=["python", "native"])
def make_typer(request: pytest.FixtureRequest) -> Callable[[RowPlan], RecordTyper]:
    """Both typers, one test each."""
    if request.param == "python":
        return RecordTyper
    if KERNEL is None:
        pytest.skip("without the native kernel")
    return record_typer


@pytest.fixture(scope="session")
def assert_typed_alike() -> Callable[[Sequence[Field], Sequence[str]], TypedBlock]:
    """Types lines of data texts by the reference and by the kernel, and by the reference again from texts that are split otherwise."""

    def check(fields: Sequence[Field], data: Sequence[str]) -> TypedBlock:
        plan = plan_of(fields)
        lines = block(map(line, data))
        reference, typer = RecordTyper(plan), record_typer(plan)
        for _ in range(2):  # what the kernel learnt from the block must not change the result
            assert outcome(typer, lines) == outcome(reference, lines)
        typed = reference.type_block(lines)
        again = reference.type_block(block(line(refused_by_msgspec(text)) for text in data))
        for name in typed.final.schema.names[1:]:
            assert list(map(repr, stored(typed.final[name]))) == list(map(repr, stored(again.final[name]))), name
        return typed

    return check


def refused_by_msgspec(data: str) -> str:
    """The same object with an undeclared member that no strict parser takes, so that its text is split otherwise."""
    inner = data.strip()[1:]
    separator = "" if inner.strip() == "}" else ","
    return '{"\\ud800 nowhere declared":NaN' + separator + inner


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., RowPlan]:
    return plan_of


@pytest.fixture(scope="session")
def make_line() -> Callable[..., str]:
    return line


@pytest.fixture(scope="session")
def make_block() -> Callable[[Iterable[str]], bytes]:
    return block


@pytest.fixture(scope="session")
def stored_values() -> Callable[[pa.Array], list[Any]]:
    return stored


@pytest.fixture(scope="session")
def one_value(make_typer: Callable[..., RecordTyper]) -> Callable[..., tuple[Any, list[dict[str, Any]]]]:
    """The stored value and the changes of one JSON text in a column of a type."""

    def of(airbyte_type: Any, text: str) -> tuple[Any, list[dict[str, Any]]]:
        plan = plan_of([Field("x", "x", airbyte_type)])
        typed = make_typer(plan).type_block(block([line(f'{{"x":{text}}}')]))
        return stored(typed.final["x"])[0], typed.final["_airbyte_meta"].to_pylist()[0]["changes"]

    return of


@pytest.fixture(scope="session")
def json_text() -> Callable[[Any], str]:
    return json.dumps
