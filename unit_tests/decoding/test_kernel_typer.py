"""Which typer a plan gets, and what becomes of a block that the kernel does not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.decoding.kernel_typer import KernelTyper, record_typer
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.decoding.record_typer import RecordTyper
from destination_s3_spark.kernel import KERNEL
from destination_s3_spark.schema.airbyte_type import Field, Object, Scalar
from unit_tests.cases import each
from unit_tests.decoding import fuzz

needs_kernel = pytest.mark.skipif(KERNEL is None, reason="without the native kernel")
ID = Field("id", "id", Scalar.INTEGER)


@needs_kernel
def test_plain_plans_are_the_kernels(make_plan: Any) -> None:
    assert type(record_typer(make_plan([ID]))) is KernelTyper


@needs_kernel
@each("source", ["\ud800", "a\udfff"])
def test_keys_that_no_utf8_has_are_pythons(source: str, make_plan: Any) -> None:
    for field in (Field(source, "x", Scalar.DATE), Field("x", "x", Object((Field(source, "x", Scalar.DATE),)))):
        assert type(record_typer(make_plan([field]))) is RecordTyper
        assert record_typer(make_plan([field])).type_block(b"").records == 0


@needs_kernel
def test_a_column_that_is_stored_otherwise_is_pythons(make_plan: Any) -> None:
    plan = make_plan([ID])
    at = plan.table_schema.get_field_index("id")
    other = make_plan([]).__class__(plan.stream, 7, 3, plan.fields, plan.table_schema.set(at, pa.field("id", pa.decimal128(38, 0))))
    assert type(record_typer(other)) is RecordTyper


@needs_kernel
@each("fault", [RuntimeError("the typing kernel failed"), ValueError("the lines are longer than 2 GiB")])
def test_a_block_the_kernel_does_not_read_is_pythons(
    fault: Exception, make_plan: Any, make_line: Any, make_block: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(_: bytes) -> None:
        raise fault

    capsys.readouterr()
    typer = fuzz.kernel_typer(make_plan([ID]))
    typer._kernel = SimpleNamespace(read=read)
    assert typer.type_block(make_block([make_line('{"id":1}'), make_line('{"id":2}')])).final["id"].to_pylist() == [1, 2]
    assert ("native kernel failed" in capsys.readouterr().err) == isinstance(fault, RuntimeError)
    with pytest.raises(UnreadableRecord):
        typer.type_block(b"{}\n")


@needs_kernel
def test_the_kernel_gives_its_columns_once(make_plan: Any, make_line: Any, make_block: Any) -> None:
    block = fuzz.kernel_typer(make_plan([ID]))._kernel.read(make_block([make_line('{"id":1}')]))
    block.columns()
    with pytest.raises(RuntimeError, match="taken before"):
        block.columns()
    with pytest.raises(ValueError, match="not the lines"):
        block.texts(b"other")
