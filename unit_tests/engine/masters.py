"""Configurations that name a Spark master."""

from __future__ import annotations

from typing import Any

from destination_s3_spark.config.config import Config


def on(master: str, **spark: Any) -> Config:
    options = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**options, "spark": {"master": master, **spark}})
