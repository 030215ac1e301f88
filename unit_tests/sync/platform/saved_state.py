"""The state that Airbyte's server keeps of a connection between attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from unit_tests.lake.messages import JsonObject, descriptor
from unit_tests.sync.platform.orchestrator import StreamName


class SavedState:
    """Blobs by stream, beside the shared one of a GLOBAL state, or the one blob of a LEGACY state."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._streams: dict[StreamName, Any] = {}
        self._shared: Any = None

    def take(self, state: Mapping[str, Any]) -> None:
        """Keep a state that the destination acknowledged. A null blob removes the stream's row; a change of the kind is refused."""
        kind = state.get("type") or "LEGACY"
        if self._kind not in (None, kind):
            raise ValueError(f"the connection has a {self._kind} state, and a {kind} one came")
        self._kind = kind
        if kind == "LEGACY":
            self._shared = state["data"]
        elif kind == "GLOBAL":
            self._shared = state["global"].get("shared_state")
            for entry in state["global"]["stream_states"]:
                self._put(entry)
        else:
            self._put(state["stream"])
        if not self._streams and self._shared is None:
            self._kind = None

    def delete(self, streams: Collection[StreamName], connected: Collection[StreamName]) -> None:
        """Remove the streams' blobs. If these are all that have one, or all of the connection, the shared part goes as well."""
        if self._kind == "LEGACY" and streams:
            raise ValueError("Airbyte's server fails here: a LEGACY state has no parts, so no stream of its connection may be read in full")
        if set(streams) in (set(self._streams), set(connected)):
            self._kind, self._shared = None, None
        self._streams = {stream: blob for stream, blob in self._streams.items() if stream not in streams}
        if self._kind == "STREAM" and not self._streams:
            self._kind = None

    def blob(self, stream: StreamName) -> Any:
        return self._streams.get(stream)

    @property
    def messages(self) -> list[JsonObject]:
        """What a source gets as `--state`; nothing when there is no state."""
        entries = [
            {"stream_descriptor": descriptor(name, namespace), "stream_state": blob} for (namespace, name), blob in self._streams.items()
        ]
        match self._kind:
            case "STREAM":
                return [{"type": "STREAM", "stream": entry} for entry in entries]
            case "GLOBAL":
                return [{"type": "GLOBAL", "global": {"shared_state": self._shared, "stream_states": entries}}]
            case "LEGACY":
                return [{"type": "LEGACY", "data": self._shared}]
        return []

    def _put(self, entry: Mapping[str, Any]) -> None:
        described = entry["stream_descriptor"]
        stream = described.get("namespace"), described["name"]
        if entry.get("stream_state") is None:
            self._streams.pop(stream, None)
        else:
            self._streams[stream] = entry["stream_state"]
