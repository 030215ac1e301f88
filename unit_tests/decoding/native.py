"""The native typer of tests."""

from __future__ import annotations

from destination_s3_spark.decoding.native_record_typer import NativeRecordTyper
from destination_s3_spark.decoding.plan import RowPlan
from destination_s3_spark.decoding.record_typer import UNIT_BYTES
from destination_s3_spark.kernel import KERNEL


def native_typer(plan: RowPlan, unit_bytes: int = UNIT_BYTES, *, most_odd_lines: float = 1) -> NativeRecordTyper:
    """A native typer that keeps a block whatever share of its lines is odd. Only where there is a kernel."""
    assert KERNEL is not None
    return NativeRecordTyper(plan, KERNEL, unit_bytes, most_odd_lines)
