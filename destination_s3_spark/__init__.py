"""Airbyte destination that writes any source to typed, self-describing tables on plain S3, with Spark as the engine."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the connector class, which Airbyte's tools look up here. Import it on demand so that Spark workers never load the CDK."""
    if name == "DestinationS3Spark":
        from destination_s3_spark.destination import DestinationS3Spark  # noqa: PLC0415

        return DestinationS3Spark
    raise AttributeError(f"module {__name__} has no attribute {name}")
