"""A connection as Airbyte's server knows it: its streams, their generations and its state, and what each attempt of a job changes of them.

A definition that supports refreshes (an entry of the connector registry) has generations in its catalogs; one that does not (a custom
connector) has nulls, and reads every full refresh from its start at each attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from unit_tests.lake.messages import JsonObject, descriptor, line
from unit_tests.sync.platform.orchestrator import StreamName, is_full_refresh, is_resumable, name_of, stream_state
from unit_tests.sync.platform.saved_state import SavedState


class Definition(Enum):
    """How the connector was installed."""

    CUSTOM = "custom"
    REGISTRY = "registry"

    @property
    def supports_refreshes(self) -> bool:
        return self is Definition.REGISTRY


class JobKind(Enum):
    SYNC = "sync"
    REFRESH = "refresh"
    TRUNCATE_REFRESH = "truncate refresh"
    CLEAR = "clear"


OVERWRITES = ("overwrite", "overwrite_dedup")
SERIALIZED = {
    Definition.CUSTOM: {"overwrite_dedup": "overwrite"},
    Definition.REGISTRY: {"overwrite": "append", "overwrite_dedup": "append_dedup"},
}
"""The modes that a destination is told in other words."""


@dataclass
class Connection:
    """`streams` are configured as the user chose them: a destination mode may be `overwrite_dedup`."""

    definition: Definition
    streams: Sequence[JsonObject]
    state: SavedState = field(default_factory=SavedState)
    generations: dict[StreamName, int] = field(default_factory=dict)
    jobs: int = 0

    def start_job(self, kind: JobKind = JobKind.SYNC, streams: Collection[StreamName] | None = None) -> Job:
        """A job; `streams` are those to clear or to refresh, by default all."""
        if kind in (JobKind.REFRESH, JobKind.TRUNCATE_REFRESH) and not self.definition.supports_refreshes:
            raise ValueError("the destination's definition does not support refreshes")
        self.jobs += 1
        return Job(self, kind, self.jobs, set(map(name_of, self.streams)) if streams is None else set(streams))

    def begin_anew(self, streams: Collection[StreamName]) -> None:
        """A new generation of these streams, whose state goes."""
        for stream in streams:
            self.generations[stream] = self.generations.get(stream, 0) + 1
        if streams:
            self.state.delete(streams, set(map(name_of, self.streams)))


@dataclass
class Job:
    """Attempts of one job. `named` are the streams to clear or to refresh."""

    connection: Connection
    kind: JobKind
    number: int
    named: set[StreamName]
    attempts: int = 0

    def start_attempt(self) -> None:
        """Do what the server does before an attempt."""
        self.attempts += 1
        self.connection.begin_anew(self._begun_anew() if self.attempts == 1 else self.read_again())

    def catalog(self) -> JsonObject:
        """The configured catalog of this attempt, for source and destination alike."""
        return {"streams": [self._entry(stream) for stream in self._streams()]}

    def empty_source(self) -> list[bytes]:
        """What stands in for the source of a Clear: null states, and nothing at all once the connection has no state any more."""
        messages = self.connection.state.messages
        if not messages:
            return []
        if messages[0]["type"] == "STREAM":
            return [stream_state(stream, None) for stream in sorted(self.named, key=str)]
        if messages[0]["type"] == "GLOBAL":
            return [line({"type": "STATE", "state": cleared(messages[0], self.named)})]
        return [line({"type": "STATE", "state": {"type": "LEGACY", "data": {}}})]

    def _streams(self) -> Iterable[JsonObject]:
        """The connection's streams, of a Clear only those to clear."""
        if self.kind is not JobKind.CLEAR:
            return self.connection.streams
        changed = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
        return [{**stream, **changed} for stream in self.connection.streams if name_of(stream) in self.named]

    def _begun_anew(self) -> set[StreamName]:
        """The streams that the job's first attempt gives a new generation."""
        if self.kind is JobKind.CLEAR:
            return self.named
        return self._full_refreshes() | (set() if self.kind is JobKind.SYNC else self.named)

    def read_again(self) -> set[StreamName]:
        """The streams whose state goes before any further attempt."""
        streams = [stream for stream in self._streams() if is_full_refresh(stream)]
        if self.connection.definition.supports_refreshes:
            streams = [stream for stream in streams if not is_resumable(stream)]
        return set(map(name_of, streams))

    def _full_refreshes(self) -> set[StreamName]:
        return {name_of(stream) for stream in self._streams() if is_full_refresh(stream)}

    def _entry(self, stream: Mapping[str, Any]) -> JsonObject:
        mode = str(stream["destination_sync_mode"])
        entry = {**stream, "destination_sync_mode": SERIALIZED[self.connection.definition].get(mode, mode)}
        ids: dict[str, int | None] = dict.fromkeys(("generation_id", "minimum_generation_id", "sync_id"))
        if self.connection.definition.supports_refreshes:
            generation = self.connection.generations.get(name_of(stream), 0)
            ids = {
                "generation_id": generation,
                "minimum_generation_id": generation if self._truncates(stream) else 0,
                "sync_id": self.number,
            }
        return {**entry, **ids}

    def _truncates(self, stream: Mapping[str, Any]) -> bool:
        """Whether the generation replaces the one before."""
        if self.kind is JobKind.TRUNCATE_REFRESH and name_of(stream) in self.named:
            return True
        return is_full_refresh(stream) and stream["destination_sync_mode"] in OVERWRITES


def cleared(state: Mapping[str, Any], streams: Collection[StreamName]) -> JsonObject:
    """A GLOBAL state with null for these streams, those included that it did not have; the shared part goes with the last blob."""
    blobs: dict[StreamName, Any] = {}
    for entry in state["global"]["stream_states"]:
        described = entry["stream_descriptor"]
        blobs[described.get("namespace"), described["name"]] = entry["stream_state"]
    left = {stream: None if stream in streams else blob for stream, blob in blobs.items()}
    shared = state["global"]["shared_state"] if any(blob is not None for blob in left.values()) else None
    entries = [
        {"stream_descriptor": descriptor(name, namespace), "stream_state": blob}
        for (namespace, name), blob in {**left, **dict.fromkeys(sorted(streams, key=str))}.items()
    ]
    return {"type": "GLOBAL", "global": {"shared_state": shared, "stream_states": entries}}
