"""Diagnosis of the options: those that cannot be used, and those that are probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.sync.doubts import doubts

PART = "configuration"


def look_at_options(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about the options, or that all are good."""
    try:
        config = Config.parse(options)
        doubtful = doubts(config, options)
    except ConfigError as error:
        yield Finding(PART, "options", Verdict.BAD, error.message)
        for option in Config.unknown_beside_refused(options):
            if not option.ours:  # those of this connector are in the error
                yield Finding(PART, "options", Verdict.DOUBTFUL, str(option))
        return
    for doubt in doubtful:
        yield Finding(PART, "options", Verdict.DOUBTFUL, doubt)
    if not doubtful:
        yield Finding(PART, "options", Verdict.GOOD, "all are known and valid")
