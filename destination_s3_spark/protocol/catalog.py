"""Configured catalog: the streams of a sync, their sync modes and their generations.

Parsing turns the bytes of the catalog file into frozen values and ignores unknown fields. Unsupported features are refused before any
record is read, with an error that names the stream and the field.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.exact_json.values import split_array, split_object
from destination_s3_spark.stream_id import StreamId

PLATFORM_NEEDED = "0.63.7"
"""First Airbyte platform version that sends generation ids."""
JOB_VARIABLES = ("WORKER_JOB_ID", "WORKER_JOB_ATTEMPT", "WORKER_CONNECTOR_IMAGE")
"""Environment variables that every version of Airbyte's platform sets for the connectors of a job. PyAirbyte and the image set none."""
_IDS = ("generation_id", "minimum_generation_id", "sync_id")


class DestinationSyncMode(Enum):
    """Handling of the records. The value is the protocol's name."""

    APPEND = "append"
    APPEND_DEDUP = "append_dedup"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of the catalog. `minimum_generation_id` is 0 or equal to `generation_id`."""

    id: StreamId
    json_schema: Mapping[str, Any]
    sync_mode: str
    destination_sync_mode: DestinationSyncMode
    primary_key: tuple[tuple[str, ...], ...]
    cursor_field: tuple[str, ...]
    generation_id: int
    minimum_generation_id: int
    sync_id: int
    is_resumable: bool = False
    """Whether the source sends STATEs within a full refresh, to resume it."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Streams of a sync in the catalog's order. Events identify a stream by its index here.

    `has_generations` is false for a catalog from a caller without generations: Airbyte's platform for a custom connector, PyAirbyte, a file
    on stdin. Such a caller sends no stream status of its own either.
    """

    streams: tuple[Stream, ...]
    has_generations: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """A configured stream under validation, with its id for error messages."""

    configured: Mapping[str, Any]
    described: Mapping[str, Any]
    id: StreamId

    def error(self, field: str, problem: str) -> ConfigError:
        return ConfigError(f"Catalog, stream '{self.id}', {field}: {problem}", stream=self.id)

    def integer(self, field: str) -> int | None:
        value = self.configured.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(field, "must be a whole number, 0 or larger.")
        return value

    def path(self, field: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(field, "must be a list of field names.")
        return tuple(value)


def parse_catalog(text: bytes, environ: Mapping[str, str] = os.environ) -> Catalog:
    """Parse a ConfiguredAirbyteCatalog (JSON). Raises ConfigError naming the stream and the field.

    `environ` tells whether the caller is Airbyte's platform.
    """
    entries = [_entry(number, configured) for number, configured in enumerate(_configured_streams(text), start=1)]
    seen: set[StreamId] = set()
    for entry in entries:
        if entry.id in seen:
            raise entry.error("name", "is in the catalog twice; remove one of the two from the connection.")
        seen.add(entry.id)
    ids = (0, 0, 0) if _all_ids_are(None, entries) else (1, 0, 0) if _is_of_pyairbyte(entries, environ) else None
    return Catalog(tuple(_stream(entry, ids) for entry in entries), has_generations=ids is None)


def _all_ids_are(expected: int | None, entries: Sequence[_Entry]) -> bool:
    return all(entry.configured.get(field) == expected for entry in entries for field in _IDS)


def _is_of_pyairbyte(entries: Sequence[_Entry], environ: Mapping[str, str]) -> bool:
    """Tell whether the ids are those that PyAirbyte sends in every sync, so that they tell no generation from another.

    The first job of an installation of Airbyte has the same ones. There they count, because a retry has to keep the rows of the attempt
    before.
    """
    return _all_ids_are(1, entries) and not any(name in environ for name in JOB_VARIABLES)


def _configured_streams(text: bytes) -> list[Any]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise _nested_too_deep(text) from None
    except ValueError as error:
        raise ConfigError("The catalog is not JSON; pass the configured catalog of the connection with --catalog.") from error
    streams = document.get("streams") if isinstance(document, dict) else None
    if not isinstance(streams, list):
        raise ConfigError("The catalog has no list 'streams'; pass the configured catalog of the connection with --catalog.")
    if not streams:
        raise ConfigError("The catalog has no streams; select at least one stream in the connection.")
    return streams


def _nested_too_deep(text: bytes) -> ConfigError:
    """Return the error for a catalog that is nested too deep to be read as JSON. It names the first stream of which that is true."""
    with suppress(ValueError, KeyError):  # not a catalog after all
        for configured in split_array(split_object(text)["streams"]):
            try:
                json.loads(configured)
            except RecursionError:
                described = split_object(split_object(configured)["stream"])
                name, namespace = (json.loads(described.get(field, b"null")) for field in ("name", "namespace"))
                stream = StreamId.of(namespace, name)
                advice = "Correct the schema in the source, or deselect the stream in the connection."
                return ConfigError(f"Catalog, stream '{stream}', json_schema: is nested too deep to be read. {advice}", stream=stream)
    return ConfigError("The catalog is nested too deep to be read; pass the configured catalog of the connection with --catalog.")


def _entry(number: int, configured: object) -> _Entry:
    described = configured.get("stream") if isinstance(configured, dict) else None
    if not isinstance(configured, dict) or not isinstance(described, dict):
        raise ConfigError(f"Catalog, stream number {number}, stream: is missing or not an object.")
    name, namespace = described.get("name"), described.get("namespace")
    if not isinstance(name, str):
        raise ConfigError(f"Catalog, stream number {number}, name: is missing or not a string.")
    if namespace is not None and not isinstance(namespace, str):
        raise ConfigError(f"Catalog, stream '{name}', namespace: is not a string.")
    return _Entry(configured, described, StreamId.of(namespace, name))


def _stream(entry: _Entry, ids: tuple[int, int, int] | None) -> Stream:
    """Parse a stream. `ids` are those of a catalog without generations: generation_id, minimum_generation_id and sync_id."""
    if entry.configured.get("include_files"):  # without its files, a file-based stream sends records like any other
        raise entry.error("include_files", "this destination writes records, not files; turn file transfer off for this stream.")
    mode = _destination_sync_mode(entry)
    schema = entry.described.get("json_schema")
    if not isinstance(schema, dict):
        raise entry.error("json_schema", "is missing or not an object.")
    generation, minimum, sync_id = ids or _generation(entry)
    primary_key, cursor_field = _keys(entry, mode)
    return Stream(
        id=entry.id,
        json_schema=schema,
        sync_mode=str(entry.configured.get("sync_mode") or "full_refresh"),
        destination_sync_mode=mode,
        primary_key=primary_key,
        cursor_field=cursor_field,
        generation_id=generation,
        minimum_generation_id=minimum,
        sync_id=sync_id,
        is_resumable=entry.described.get("is_resumable") is True,
    )


def _destination_sync_mode(entry: _Entry) -> DestinationSyncMode:
    value = entry.configured.get("destination_sync_mode")
    try:
        return DestinationSyncMode(value)
    except ValueError as error:
        names = ", ".join(mode.value for mode in DestinationSyncMode)
        shown = f"'{value}'" if isinstance(value, str) else "missing"
        raise entry.error("destination_sync_mode", f"is {shown}; this destination supports {names}.") from error


def _generation(entry: _Entry) -> tuple[int, int, int]:
    """Return (generation_id, minimum_generation_id, sync_id)."""
    ids = {field: entry.integer(field) for field in _IDS}
    for field, value in ids.items():
        if value is None:
            raise entry.error(field, f"is null; this destination needs platform {PLATFORM_NEEDED}+, upgrade the Airbyte platform.")
    generation, minimum, sync_id = (value or 0 for value in ids.values())
    if minimum not in (0, generation):
        raise entry.error(
            "minimum_generation_id",
            f"is {minimum} with generation_id {generation}; hybrid refreshes are not supported, it must be 0 or the generation_id.",
        )
    return generation, minimum, sync_id


def _keys(entry: _Entry, mode: DestinationSyncMode) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return (primary_key, cursor_field). Only dedup uses them, so they are restricted for dedup only."""
    paths = entry.configured.get("primary_key") or []
    if not isinstance(paths, list):
        raise entry.error("primary_key", "must be a list of field paths.")
    primary_key = tuple(dict.fromkeys(entry.path("primary_key", path) for path in paths))  # a field that comes twice is one
    cursor_field = entry.path("cursor_field", entry.configured.get("cursor_field") or [])
    if mode is DestinationSyncMode.APPEND_DEDUP:
        if not primary_key:
            raise entry.error("primary_key", "is empty; append_dedup needs one, choose it in the connection or use append.")
        for field, path in [("primary_key", path) for path in primary_key] + [("cursor_field", cursor_field)]:
            if len(path) > 1 or (field == "primary_key" and not path):
                raise entry.error(field, f"'{'.'.join(path)}' is not a top-level field; only top-level fields are supported.")
    return primary_key, cursor_field
