"""Configuration file of an operator command."""

from __future__ import annotations

from pathlib import Path

import orjson

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError


def read_config(path: Path) -> Config:
    """Read the configuration from a JSON file. Raises ConfigError, which never quotes the file, because it holds secrets."""
    try:
        options = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        # Raised without the decoding error as its cause, which would quote the file and its secrets.
        raise ConfigError(f"The configuration {path} is not a JSON object.")
    return Config.parse(options)
