"""A made-up source: catalogs and message lines, as Airbyte's platform hands them to a destination.

The functions of this module are a source without a namespace. `unit_tests.lake.shop` has those of a source in namespace `shop`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EMITTED_AT_MS = 1_700_000_000_000

JsonObject = dict[str, Any]
USERS_SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}


def line(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of stdin."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"


def catalog(*streams: JsonObject) -> JsonObject:
    return {"streams": list(streams)}


def schema_of(properties: Mapping[str, Any]) -> JsonObject:
    return {"type": "object", "properties": dict(properties)}


def cursor_of(state_line: bytes) -> Any:
    """Return the cursor in a STREAM state that came back."""
    return json.loads(state_line)["state"]["stream"]["stream_state"]["cursor"]


def descriptor(name: str, namespace: str | None) -> JsonObject:
    return {"name": name} if namespace is None else {"name": name, "namespace": namespace}


def global_state(cursor: Any, **more: Any) -> bytes:
    """Return a GLOBAL state without streams whose shared blob is `{"cursor": cursor}`."""
    return line({"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"cursor": cursor}, "stream_states": []}, **more}})


@dataclass(frozen=True, slots=True)
class Source:
    """A source. Its streams are in this namespace where a call names no other."""

    namespace: str | None

    def stream(
        self,
        name: str = "users",
        namespace: str | None = "",
        *,
        schema: Mapping[str, Any] = USERS_SCHEMA,
        mode: str = "append",
        key: str | Sequence[str] | Sequence[Sequence[str]] = (),
        cursor: str | Sequence[str] = (),
        generation: int | None = 1,
        minimum_generation: int | None = 0,
        sync_id: int | None = 7,
        **more: Any,
    ) -> JsonObject:
        """Return one configured stream, without those of the three ids that are None, as a platform sends it that does not know them.

        `key`: a column, columns, or paths of columns. `cursor`: a column or the path of one. Both are left out if they are empty.
        """
        described: JsonObject = {"name": name, "json_schema": dict(schema), "supported_sync_modes": ["full_refresh", "incremental"]}
        described |= descriptor(name, self._namespace(namespace))
        columns: Sequence[Any] = [key] if isinstance(key, str) else key
        paths = [[column] if isinstance(column, str) else [*column] for column in columns]
        path = [cursor] if isinstance(cursor, str) else [*cursor]
        named = {"primary_key": paths if key else [], "cursor_field": path if cursor else []}
        ids = {"generation_id": generation, "minimum_generation_id": minimum_generation, "sync_id": sync_id}
        chosen = {field: value for field, value in named.items() if value}
        known = {field: value for field, value in ids.items() if value is not None}
        return {"stream": described, "sync_mode": "incremental", "destination_sync_mode": mode, **chosen, **known, **more}

    def record(self, data: Mapping[str, Any], name: str = "users", namespace: str | None = "", **more: Any) -> bytes:
        body = {"stream": name, "data": data, "emitted_at": EMITTED_AT_MS, **more}
        known = self._namespace(namespace)
        return line({"type": "RECORD", "record": body if known is None else {"namespace": known, **body}})

    def records(self, rows: Iterable[Mapping[str, Any]], name: str = "users", namespace: str | None = "", **more: Any) -> bytes:
        """Return one record for each row, as one block of lines."""
        return b"".join(self.record(row, name, namespace, **more) for row in rows)

    def users(self, ids: Iterable[int], name: str = "users", namespace: str | None = "") -> list[bytes]:
        """Return one record for each id."""
        return [self.record({"id": number, "name": f"user {number}"}, name, namespace) for number in ids]

    def state(self, cursor: Any, name: str = "users", namespace: str | None = "", **more: Any) -> bytes:
        """Return a STREAM state whose blob is `{"cursor": cursor}`."""
        blob = {"stream_descriptor": descriptor(name, self._namespace(namespace)), "stream_state": {"cursor": cursor}}
        return line({"type": "STATE", "state": {"type": "STREAM", "stream": blob, **more}})

    def status(self, value: str, name: str = "users", namespace: str | None = "") -> bytes:
        described = descriptor(name, self._namespace(namespace))
        trace = {"type": "STREAM_STATUS", "emitted_at": EMITTED_AT_MS, "stream_status": {"stream_descriptor": described, "status": value}}
        return line({"type": "TRACE", "trace": trace})

    def complete(self, name: str = "users", namespace: str | None = "") -> bytes:
        return self.status("COMPLETE", name, namespace)

    def _namespace(self, given: str | None) -> str | None:
        """Return the namespace of a call: the source's, unless it names one or None."""
        return self.namespace if given == "" else given


_SOURCE = Source(None)
stream, record, records, users = _SOURCE.stream, _SOURCE.record, _SOURCE.records, _SOURCE.users
state, status, complete = _SOURCE.state, _SOURCE.status, _SOURCE.complete
