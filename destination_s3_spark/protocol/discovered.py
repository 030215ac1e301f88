"""Configured catalog made from a discovered one: what Airbyte's platform does with the choices of a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import DestinationSyncMode
from destination_s3_spark.stream_id import StreamId, matches
from destination_s3_spark.wording import nearest_name

FULL_REFRESH, INCREMENTAL = "full_refresh", "incremental"
"""The sync modes of a source."""


def discovered_streams(text: bytes) -> list[dict[str, Any]]:
    """Return the streams in the output of a source's `discover`, or in a file with the catalog alone. Raises ConfigError for other text."""
    for document in _documents(text):
        catalog = document.get("catalog") if document.get("type") == "CATALOG" else document
        streams = catalog.get("streams") if isinstance(catalog, Mapping) else None
        if isinstance(streams, list) and streams and all(isinstance(stream, dict) and "name" in stream for stream in streams):
            return streams
    raise ConfigError(
        "There is no catalog with streams in the input. It takes what `discover` of a source prints: some-source discover --config … | "
        "destination-s3-spark catalog"
    )


def configured_catalog(
    streams: Sequence[dict[str, Any]], select: Sequence[str] = (), sync_mode: str | None = None, mode: DestinationSyncMode | None = None
) -> dict[str, Any]:
    """Return the configured catalog with the source's keys and cursors.

    `select`: names or patterns of streams, with or without the namespace; all streams if empty. `sync_mode` is the protocol's name, `mode`
    the destination's. One that is None is chosen for each stream: incremental where the source can, deduplicated where it also has a key.

    Raises ConfigError when a chosen stream does not exist, or cannot be synced in a mode that was asked for.
    """
    return {"streams": [_configured(stream, sync_mode, mode) for stream in _selected(streams, select)]}


def _documents(text: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of the text: the whole text, or else each line that is one."""
    for part in (text, *text.splitlines()):
        try:
            document = orjson.loads(part)
        except orjson.JSONDecodeError:
            continue
        if isinstance(document, dict):
            yield document


def _selected(streams: Sequence[dict[str, Any]], select: Sequence[str]) -> list[dict[str, Any]]:
    names = [{str(_id(stream)), _id(stream).name} for stream in streams]
    for pattern in select:
        if not any(matches(name, pattern) for both in names for name in both):
            near = nearest_name(pattern, sorted(set().union(*names)))
            known = f"Did you mean {near}?" if near else f"It has {', '.join(sorted(str(_id(stream)) for stream in streams))}."
            raise ConfigError(f"The source has no stream {pattern}. {known}")
    chosen = [any(matches(name, pattern) for name in both for pattern in select) for both in names]
    return [stream for stream, is_chosen in zip(streams, chosen, strict=True) if is_chosen or not select]


def _configured(stream: dict[str, Any], sync_mode: str | None, mode: DestinationSyncMode | None) -> dict[str, Any]:
    cursor, key = list(stream.get("default_cursor_field") or []), _top_level_key(stream)
    refusal = _refusal_of_incremental(stream)
    sync_mode = sync_mode or (FULL_REFRESH if refusal else INCREMENTAL)
    if sync_mode == INCREMENTAL and refusal:
        raise ConfigError(
            f"Stream {_id(stream)} cannot be read incrementally: {refusal}. Leave it out with --select, or leave out --sync-mode."
        )
    mode = mode or _destination_mode(sync_mode, key)
    if mode is DestinationSyncMode.APPEND_DEDUP and not key:
        raise ConfigError(
            f"Stream {_id(stream)} cannot be deduplicated: the source defines no primary key of top-level fields for it. Leave it out with "
            "--select, or leave out --destination-sync-mode."
        )
    return {
        "stream": stream,
        "sync_mode": sync_mode,
        "destination_sync_mode": mode.value,
        "primary_key": key,
        "cursor_field": cursor,
    }


def _destination_mode(sync_mode: str, key: Sequence[Any]) -> DestinationSyncMode:
    if sync_mode == FULL_REFRESH:
        return DestinationSyncMode.OVERWRITE
    return DestinationSyncMode.APPEND_DEDUP if key else DestinationSyncMode.APPEND


def _refusal_of_incremental(stream: Mapping[str, Any]) -> str | None:
    """Return why the stream cannot be read incrementally, or None if it can."""
    if INCREMENTAL not in (stream.get("supported_sync_modes") or []):
        return "its source only reads it as a whole"
    if not stream.get("source_defined_cursor") and not stream.get("default_cursor_field"):
        return "its source leaves the cursor to the user and proposes none"
    return None


def _top_level_key(stream: Mapping[str, Any]) -> list[list[str]]:
    """Return the source's primary key, or none if a part of it is nested, which this destination cannot deduplicate by."""
    key = stream.get("source_defined_primary_key") or []
    return [list(path) for path in key] if all(isinstance(path, list) and len(path) == 1 for path in key) else []


def _id(stream: Mapping[str, Any]) -> StreamId:
    return StreamId.of(stream.get("namespace"), str(stream["name"]))
