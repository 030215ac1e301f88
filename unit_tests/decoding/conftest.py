"""What the tests of typing share: plans, record lines, and the comparison of a typed block with the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import UNIT_BYTES, RecordTyper, TypedBlock
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import Field
from destination_s3_spark.schema.arrow import META_FIELDS, arrow_field
from destination_s3_spark.stream_id import StreamId
from unit_tests.decoding import oracle
from unit_tests.decoding.native import native_typer, python_typer

STREAM = StreamId("shop", "users")


def plan_of(fields: Sequence[Field], stream: StreamId = STREAM, extra_columns: Iterable[pa.Field] = ()) -> RowPlan:
    return RowPlan(stream, 7, 3, tuple(fields), pa.schema([*META_FIELDS, *map(arrow_field, fields), *extra_columns]))


def line(data: str, *, emitted_at: str = "1700000000000", rest: str = "") -> str:
    return f'{{"type":"RECORD","record":{{"stream":"users","namespace":"shop","emitted_at":{emitted_at},"data":{data}{rest}}}}}'


def block(lines: Iterable[str]) -> bytes:
    return "".join(text + "\n" for text in lines).encode()


def stored(array: pa.Array) -> list[Any]:
    """The values of a column, temporals as the integers that are stored."""
    return array.cast(_as_integers(array.type)).to_pylist()


def _as_integers(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(arrow_type):
        return pa.int32()
    if pa.types.is_temporal(arrow_type):
        return pa.int64()
    if pa.types.is_list(arrow_type):
        return pa.list_(_as_integers(arrow_type.value_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _as_integers(field.type)) for field in arrow_type])
    return arrow_type


def assert_agrees(typed: TypedBlock, lines: Sequence[str], plan: RowPlan, *, same_data: bool = True) -> None:
    """The block is what the oracle says, row by row."""
    expected = [oracle.expected_row(text.encode(), plan.fields) for text in lines]
    typed.final.validate(full=True)
    typed.raw.validate(full=True)
    assert typed.final.schema == plan.table_schema
    assert [row.emitted_at for row in expected] == stored(typed.final["_airbyte_extracted_at"])
    assert [{"sync_id": 7, "changes": row.changes} for row in expected] == typed.final["_airbyte_meta"].to_pylist()
    if same_data:
        assert [row.data for row in expected] == typed.raw["_airbyte_data"].to_pylist()
    for field in plan.fields:
        actual = stored(typed.final[field.name])
        assert [repr(row.values[field.name]) for row in expected] == [repr(value) for value in actual], field


@pytest.fixture(scope="session", params=["python", "native"])
def make_typer(request: pytest.FixtureRequest) -> Callable[..., RecordTyper]:
    """Both typers, one test each."""
    if request.param == "python":
        return python_typer
    if KERNEL is None:
        pytest.skip("without the native kernel")
    return native_if_known


def native_if_known(plan: RowPlan, unit_bytes: int = UNIT_BYTES) -> RecordTyper:
    """The native typer; the Python one for a plan that the kernel does not know."""
    try:
        return native_typer(plan, unit_bytes)
    except ValueError:
        return python_typer(plan, unit_bytes)


@pytest.fixture(scope="session")
def assert_typed_as_oracle(make_typer: Callable[[RowPlan], RecordTyper]) -> Callable[[Sequence[Field], Sequence[str]], TypedBlock]:
    """Types lines of data texts the fast way and the exact way, and compares both with the oracle."""

    def check(fields: Sequence[Field], data: Sequence[str]) -> TypedBlock:
        plan = plan_of(fields)
        lines = [line(text) for text in data]
        typer = make_typer(plan)
        typed = typer.type_block(block(lines))
        assert_agrees(typed, lines, plan)
        for _ in range(2):  # what the typer learnt from the block must not change the result
            assert_agrees(typer.type_block(block(lines)), lines, plan)
        exactly = [line(refused_by_msgspec(text)) for text in data]
        assert_agrees(make_typer(plan).type_block(block(exactly)), lines, plan, same_data=False)
        return typed

    return check


def refused_by_msgspec(data: str) -> str:
    """The same object with an undeclared member no strict parser takes, so that the whole record goes the exact way."""
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
