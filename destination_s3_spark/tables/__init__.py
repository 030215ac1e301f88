"""Tables on S3: landing rows, committing them, reading them. `read` is for Python programs of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from destination_s3_spark.tables.dataset import read

__all__ = ["read"]


def __getattr__(name: str) -> Any:
    """`read` is imported when asked for: Spark workers never need what it needs."""
    if name == "read":
        from destination_s3_spark.tables.dataset import read  # noqa: PLC0415

        return read
    raise AttributeError(f"module {__name__} has no attribute {name}")
