"""What this version cannot do yet, said before the first record is read."""

from __future__ import annotations

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, DestinationSyncMode, Stream


def require_supported_sync(catalog: Catalog) -> None:
    """Raise ConfigError naming the first stream, and its setting, that comes with a later version."""
    for stream in catalog.streams:
        _require_supported_stream(stream)


def _require_supported_stream(stream: Stream) -> None:
    where = f"Catalog, stream '{stream.id}'"
    if stream.destination_sync_mode is not DestinationSyncMode.APPEND:
        mode = stream.destination_sync_mode.value
        raise ConfigError(
            f"{where}, destination_sync_mode: {mode} comes with a later version; choose an append mode for this stream.", stream=stream.id
        )
    if stream.minimum_generation_id != 0:
        raise ConfigError(
            f"{where}, minimum_generation_id: {stream.minimum_generation_id} asks to remove the records of older generations, which comes "
            "with a later version; run a refresh that keeps them.",
            stream=stream.id,
        )
