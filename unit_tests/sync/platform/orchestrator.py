"""What Airbyte's orchestrator makes of a source's output before a destination sees it. Pure rules without I/O.

It forwards RECORD and STATE. After a source's exit code 0, and only then, it adds an empty STATE for each full refresh that sent none, and
a COMPLETE for each stream if the destination's definition supports refreshes. Then, and after any death of the source as well, it closes
the destination's stdin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from unit_tests.lake.messages import JsonObject, descriptor, line
from unit_tests.lake.shop import status

StreamName: TypeAlias = tuple[str | None, str]


class Orchestrator:
    """The messages of one attempt on their way."""

    def __init__(self, catalog: Mapping[str, Any], supports_refreshes: bool) -> None:
        self._streams = list(map(name_of, catalog["streams"]))
        self._supports_refreshes = supports_refreshes
        self._missing = MissingStates(catalog)

    def take(self, message_line: bytes) -> bytes | None:
        """Return what goes on to the destination of one line of the source. Statuses, estimates, logs and controls do not."""
        try:
            message = json.loads(message_line)
        except ValueError:
            return None  # text that is no message, which a source may print
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "STATE":
            self._missing.track(message["state"])
        return message_line if kind in ("RECORD", "STATE") else None

    def end(self, exit_code: int) -> list[bytes]:
        """Return what the platform adds at the end of the source's output, before it closes the destination's stdin."""
        if exit_code != 0:
            return []
        statuses = [status("COMPLETE", name, namespace) for namespace, name in self._streams] if self._supports_refreshes else []
        return [*self._missing.to_inject(), *statuses]


class MissingStates:
    """The full refreshes that are not resumable and sent no STATE yet. One GLOBAL or LEGACY state, and none is missing any more."""

    def __init__(self, catalog: Mapping[str, Any]) -> None:
        considered = [stream for stream in catalog["streams"] if is_full_refresh(stream) and not is_resumable(stream)]
        self._without = list(map(name_of, considered))
        self._only_streams = True

    def track(self, state: Mapping[str, Any]) -> None:
        if state.get("type") != "STREAM":
            self._only_streams = False
            return
        described = state["stream"]["stream_descriptor"]
        self._without = [stream for stream in self._without if stream != (described.get("namespace"), described["name"])]

    def to_inject(self) -> list[bytes]:
        return [stream_state(stream, {}) for stream in self._without] if self._only_streams else []


def stream_state(stream: StreamName, blob: JsonObject | None) -> bytes:
    """A STREAM state of the platform's own."""
    namespace, name = stream
    body = {"stream_descriptor": descriptor(name, namespace), "stream_state": blob}
    return line({"type": "STATE", "state": {"type": "STREAM", "stream": body}})


def name_of(configured: Mapping[str, Any]) -> StreamName:
    """The namespace and the name of a configured stream."""
    return configured["stream"].get("namespace"), configured["stream"]["name"]


def is_full_refresh(configured: Mapping[str, Any]) -> bool:
    return bool(configured["sync_mode"] == "full_refresh")


def is_resumable(configured: Mapping[str, Any]) -> bool:
    return bool(configured["stream"].get("is_resumable"))
