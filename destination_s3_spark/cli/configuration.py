"""The configuration file an operator command is given."""

from __future__ import annotations

from pathlib import Path

import orjson

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError


def read_config(path: Path) -> Config:
    """The configuration in a JSON file. Raises ConfigError, which never quotes the file: it holds secrets."""
    try:
        options = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        # Without its cause: that one would quote the file, which holds secrets.
        raise ConfigError(f"The configuration {path} is not a JSON object.")
    return Config.parse(options)
