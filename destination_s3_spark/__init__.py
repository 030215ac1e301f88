"""Airbyte destination: any source as typed, self-describing tables on plain S3, with Spark as the engine."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Airbyte's tools look for the connector class here. It is imported when asked for, so that a Spark worker never loads the CDK."""
    if name == "DestinationS3Spark":
        from destination_s3_spark.destination import DestinationS3Spark  # noqa: PLC0415

        return DestinationS3Spark
    raise AttributeError(f"module {__name__} has no attribute {name}")
