"""Tables on S3: landing rows, committing them, merging them and reading them. `read` is the public entry for Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from destination_s3_spark.tables.dataset import read

__all__ = ["read"]


def __getattr__(name: str) -> Any:
    """Import `read` on first access, because Spark workers never need its imports."""
    if name == "read":
        from destination_s3_spark.tables.dataset import read  # noqa: PLC0415

        return read
    raise AttributeError(f"module {__name__} has no attribute {name}")
