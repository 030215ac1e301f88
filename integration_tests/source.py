"""A made-up source: catalogs and message lines, as Airbyte's platform hands them to a destination."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

EMITTED_AT_MS = 1_700_000_000_000

JsonObject = dict[str, Any]
USERS_SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}


def stream(
    name: str = "users",
    namespace: str | None = "shop",
    *,
    schema: Mapping[str, Any] = USERS_SCHEMA,
    mode: str = "append",
    generation: int | None = 1,
    minimum_generation: int | None = 0,
    sync_id: int | None = 7,
    **more: Any,
) -> JsonObject:
    """One configured stream. A None of the ids leaves the field out, as a platform does that does not know it."""
    described: JsonObject = {"name": name, "json_schema": dict(schema), "supported_sync_modes": ["full_refresh", "incremental"]}
    if namespace is not None:
        described["namespace"] = namespace
    ids = {"generation_id": generation, "minimum_generation_id": minimum_generation, "sync_id": sync_id}
    known = {field: value for field, value in ids.items() if value is not None}
    return {"stream": described, "sync_mode": "incremental", "destination_sync_mode": mode, **known, **more}


def catalog(*streams: JsonObject) -> JsonObject:
    return {"streams": list(streams)}


def line(message: Mapping[str, Any]) -> bytes:
    """A message as one line of stdin."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def record(data: Mapping[str, Any], name: str = "users", namespace: str | None = "shop", **more: Any) -> bytes:
    body = {"stream": name, "data": data, "emitted_at": EMITTED_AT_MS, **more}
    return line({"type": "RECORD", "record": body if namespace is None else {"namespace": namespace, **body}})


def users(ids: Iterable[int], name: str = "users", namespace: str | None = "shop") -> list[bytes]:
    """One record for each id."""
    return [record({"id": number, "name": f"user {number}"}, name, namespace) for number in ids]


def descriptor(name: str, namespace: str | None) -> JsonObject:
    return {"name": name} if namespace is None else {"name": name, "namespace": namespace}


def state(cursor: Any, name: str = "users", namespace: str | None = "shop", **more: Any) -> bytes:
    """A STREAM state whose blob is `{"cursor": cursor}`."""
    blob = {"stream_descriptor": descriptor(name, namespace), "stream_state": {"cursor": cursor}}
    return line({"type": "STATE", "state": {"type": "STREAM", "stream": blob, **more}})


def cursor_of(state_line: bytes) -> Any:
    """The cursor in a STREAM state that came back."""
    return json.loads(state_line)["state"]["stream"]["stream_state"]["cursor"]


def status(value: str, name: str = "users", namespace: str | None = "shop") -> bytes:
    trace = {"type": "STREAM_STATUS", "emitted_at": EMITTED_AT_MS}
    return line({"type": "TRACE", "trace": {**trace, "stream_status": {"stream_descriptor": descriptor(name, namespace), "status": value}}})


def complete(name: str = "users", namespace: str | None = "shop") -> bytes:
    return status("COMPLETE", name, namespace)
