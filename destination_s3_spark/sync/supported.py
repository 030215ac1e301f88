"""What this version cannot do yet, said before the first record is read."""

from __future__ import annotations

from destination_s3_spark.config import Config, require_supported
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, DestinationSyncMode, Stream


def require_supported_sync(catalog: Catalog, config: Config) -> None:
    """Raise ConfigError naming the option, or the stream and its setting, of the first thing that comes with a later version."""
    require_supported(config)
    for stream in catalog.streams:
        _require_supported_stream(stream)


def _require_supported_stream(stream: Stream) -> None:
    if stream.destination_sync_mode is not DestinationSyncMode.APPEND:
        raise ConfigError(
            f"Stream {stream.id}: destination_sync_mode {stream.destination_sync_mode.value} comes with a later version. "
            "Choose an append mode for this stream.",
            stream=stream.id,
        )
    if stream.minimum_generation_id != 0:
        raise ConfigError(
            f"Stream {stream.id}: minimum_generation_id {stream.minimum_generation_id} asks for a refresh that removes older records, "
            "which comes with a later version. Choose a refresh that keeps them.",
            stream=stream.id,
        )
