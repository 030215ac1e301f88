from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from demo.tour import first_rows, value_text
from unit_tests.cases import each


@each(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        ({"a": [1, None], "b": Decimal("1.5")}, '{"a": [1, null], "b": "1.…'),
        ("two\nlines", "two lines"),
        ("x" * 100, "x" * 25 + "…"),
    ],
)
def test_values_take_one_short_line(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_first_rows_show_the_data_columns_that_fit() -> None:
    wide = {f"column{number}": ["v" * 40, None] for number in range(9)}
    rows = pa.table({"_airbyte_raw_id": ["r1", "r2"], "id": [1, 2], **wide})

    shown = first_rows(rows, 1)

    assert [cell.title for cell in shown.cells] == ["id", "column0", "column1", "column2", "and 6 more columns"]
    assert [[cell.text(row) for cell in shown.cells[:2]] for row in shown.rows] == [["1", "v" * 25 + "…"]]
