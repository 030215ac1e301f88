"""What a configuration says and may not mean. A sync works all the same, so it is told of and not refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.unknown_options import unknown_options
from destination_s3_spark.storage.configured import path_template
from destination_s3_spark.tables.configured import final_options


def doubts(config: Config, options: Mapping[str, Any]) -> list[str]:
    """A sentence for each doubt, naming the option; `options` is what the configuration was read from. Raises ConfigError."""
    template = path_template(config, datetime.now(UTC), sync_id=0)
    found = [*map(str, unknown_options(config, options)), *template.doubts(final_options(config).extension)]
    return [f"{doubt}." for doubt in found]
