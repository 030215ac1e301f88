"""Numbers, times and types as a person reads them."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from destination_s3_spark.counted import duration_text, size_text

__all__ = ["arrow_text", "duration_text", "moment", "number_text", "share_text", "size_text"]


def number_text(number: int | None) -> str:
    """Return a number with separators, or a question mark if it is unknown."""
    return "?" if number is None else f"{number:,}"


def moment(time: datetime | None) -> str:
    """Return a time to the second, or a question mark if it is unknown."""
    return "?" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def share_text(share: float) -> str:
    """Return a share in percent. A share above zero is never shown as zero."""
    return "< 0.01 %" if 0 < share < 0.0001 else f"{share:.2%}".replace("%", " %")


def arrow_text(data_type: pa.DataType) -> str:
    """Return an Arrow type in the common short form: `struct<a: int64>`, `list<string>`."""
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {arrow_text(field.type)}" for field in data_type) + ">"
    if pa.types.is_list(data_type):
        return f"list<{arrow_text(data_type.value_type)}>"
    return str(data_type)
