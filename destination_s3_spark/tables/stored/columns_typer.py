"""Typing of records by several plans, each to other columns of one table: a field whose type has changed has more than one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from destination_s3_spark.decoding.kernel_typer import record_typer
from destination_s3_spark.decoding.plan import RowPlan


class ColumnsTyper:
    """Typer of the columns of all plans. Everything else of its rows is that of the first plan."""

    def __init__(self, plans: Sequence[RowPlan]) -> None:
        self._plans = plans
        self._typers = [record_typer(plan) for plan in plans]

    def type_block(self, lines: bytes) -> pa.RecordBatch:
        """Type record lines, as `RecordTyper.type_block` does."""
        return self._joined([typer.type_block(lines).final for typer in self._typers])

    def retype(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Type rows of a raw table again, as `RecordTyper.retype` does."""
        return self._joined([typer.retype(raw).final for typer in self._typers])

    def _joined(self, typed: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        rows = typed[0]
        for plan, others in zip(self._plans[1:], typed[1:], strict=True):
            for field in plan.fields:
                at = rows.schema.get_field_index(field.name)
                rows = rows.set_column(at, rows.schema.field(at), others[field.name])
        return rows
