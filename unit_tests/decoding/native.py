"""The typers of tests, each chosen by hand."""

from __future__ import annotations

from destination_s3_spark.decoding.native_record_typer import NativeRecordTyper
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import UNIT_BYTES, RecordTyper
from destination_s3_spark.decoding.verbatim import TYPERS
from destination_s3_spark.kernel import KERNEL


def native_typer(plan: RowPlan, unit_bytes: int = UNIT_BYTES, *, most_odd_lines: float = 1) -> NativeRecordTyper:
    """A native typer that keeps a block whatever share of its lines is odd. Only where there is a kernel."""
    assert KERNEL is not None
    return TYPERS[plan.values][1](plan, KERNEL, unit_bytes, most_odd_lines)


def python_typer(plan: RowPlan, unit_bytes: int = UNIT_BYTES) -> RecordTyper:
    """The typer that uses no kernel."""
    return TYPERS[plan.values][0](plan, unit_bytes)
