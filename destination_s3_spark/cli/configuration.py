"""Configuration and other files of an operator command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from destination_s3_spark.cli import MASKS
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.secrets import configuration_secrets

STANDARD_INPUT = "-"


def read_config(path: str | Path) -> Config:
    """Read the configuration from a JSON file. Raises ConfigError, which never quotes the file, because it holds secrets."""
    return Config.parse(read_options(path))


def read_options(path: str | Path) -> dict[str, Any]:
    """Read the options of a configuration file as they are, and mask its secrets in what is printed from now on.

    Raises ConfigError, which never quotes the file.
    """
    options = json_object(read_file(path, "configuration"))
    if options is None:
        raise ConfigError(f"The configuration {Path(path)} is not a JSON object.")
    MASKS.add(configuration_secrets(options))
    return options


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return None for another text. No error quotes it, because it may hold secrets."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def read_file(path: str | Path, what: str) -> bytes:
    """Read a file of the command line. Raises ConfigError if it cannot be read."""
    path = Path(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror}.") from error


def write_file(path: Path, content: bytes, what: str) -> None:
    """Write a file of the command line. Raises ConfigError if it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"The {what} cannot be written to {path}: {error.strerror}.") from error


def read_input(path: str, what: str) -> bytes:
    """Read a file of the command line, or standard input for `-`. Raises ConfigError if the file cannot be read."""
    return sys.stdin.buffer.read() if path == STANDARD_INPUT else read_file(path, what)
