"""Airbyte destination that writes any source to typed, self-describing tables on plain S3, with Spark as the engine."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Return the connector class, which Airbyte's tools look up here, or `tables`, for programs that read tables.

    Import them on demand so that Spark workers never load the CDK.
    """
    if name == "tables":
        return import_module("destination_s3_spark.tables")
    if name == "DestinationS3Spark":
        from destination_s3_spark.destination import DestinationS3Spark  # noqa: PLC0415

        return DestinationS3Spark
    raise AttributeError(f"module {__name__} has no attribute {name}")
