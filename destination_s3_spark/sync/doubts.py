"""Warnings about configurations that may not be what the user intended. A sync still works, so they are reported, not rejected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.unknown_options import unknown_options
from destination_s3_spark.storage.configured import path_template
from destination_s3_spark.tables.configured import final_options


def doubts(config: Config, options: Mapping[str, Any]) -> list[str]:
    """Return one sentence per doubt, which names the option. `options` is the raw form of the configuration. Raises ConfigError."""
    template = path_template(config, datetime.now(UTC), sync_id=0)
    found = [*map(str, unknown_options(config, options)), *template.doubts(final_options(config).extension)]
    return [f"{doubt}." for doubt in found]
