"""A random history of one connection: a scripted source, a destination in this process, jobs and their attempts, deaths at any message."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from destination_s3_spark.errors import FailureType
from unit_tests.lake.lake import Lake
from unit_tests.sync.platform.connection import OVERWRITES, Connection, Definition, Job, JobKind
from unit_tests.sync.platform.destination import Death, Destination, Ended
from unit_tests.sync.platform.ideal import End, IdealTable, Part, Rows, ends, is_held_back
from unit_tests.sync.platform.orchestrator import Orchestrator, StreamName, name_of
from unit_tests.sync.platform.scripted import Feed, Row, ScriptedSource, Speaks, blobs_of
from unit_tests.sync.process_ends import FATES

MODES = (
    ("full_refresh", "append"),
    ("full_refresh", "overwrite"),
    ("full_refresh", "overwrite"),
    ("full_refresh", "overwrite_dedup"),
    ("incremental", "append"),
    ("incremental", "append_dedup"),
)
JOBS = 4
ATTEMPTS = 3
"""Attempts of a job; nobody dies in the last one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided about an attempt before it: the message after which the source dies, how many the platform still held back then, when
    the destination dies, and how many of the last answers are lost with the platform.

    The platform reads a destination's answers until its stdout ends, so those of a good end are never lost.
    """

    source_dies_after: int | None = None
    undelivered: int = 0
    unheard: int = 0
    death: Death | None = None
    in_small_batches: bool = False


@dataclass
class History:
    """One connection's life. `told` is what happened, for whoever has to understand a failure."""

    chance: random.Random
    lake: Lake
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.chance
        self.destination = Destination(self.lake)
        self.definition = chance.choice(list(Definition))
        self.speaks = chance.choices(list(Speaks), (6, 3, 1))[0]
        modes = [mode for mode in MODES if self.speaks is not Speaks.LEGACY or mode[0] == "incremental"]
        self.feeds = [self._feed(f"s{number}", *chance.choice(modes)) for number in range(chance.choice((1, 2, 3)))]
        self.connection = Connection(self.definition, [feed.configured() for feed in self.feeds])
        self.tables = {feed.id: self._ideal(feed) for feed in self.feeds}
        self.versions = 0
        described = [f"{f.name} {f.sync_mode}/{f.mode} resumable={f.resumable} marked={f.marked} page={f.page}" for f in self.feeds]
        self.told.append(f"{self.definition.value}, {self.speaks.value}: " + "; ".join(described))

    def run(self) -> Iterator[str]:
        """Live through all jobs. Yields what is wrong with a table, or with an answer, as soon as it is seen."""
        for _ in range(JOBS):
            yield from self._job()
            self.lake.verify()

    def _feed(self, name: str, sync_mode: str, mode: str) -> Feed:
        chance = self.chance
        return Feed(name, sync_mode, mode, chance.random() < 0.5, chance.choice((2, 3, 5)), chance.random() < 0.6)

    def _ideal(self, feed: Feed) -> IdealTable:
        mode = feed.mode
        deduplicated = mode == "append_dedup" or (mode == "overwrite_dedup" and self.definition is Definition.REGISTRY)
        # The blob of a GLOBAL state is another one at every reading.
        return IdealTable(feed, deduplicated, exact_replays=self.speaks is Speaks.STREAM)

    def _job(self) -> Iterator[str]:
        job = self.connection.start_job(*self._kind())
        self._change_data()
        self.told.append(f"job {job.number}: {job.kind.value} of {sorted(name for _, name in job.named)}")
        job.start_attempt()
        for stream, table in self._concerned(job):
            full = table.feed.is_full_refresh
            named = stream in job.named and job.kind is not JobKind.SYNC
            replaces = (full and table.feed.mode in OVERWRITES) or (named and job.kind in (JobKind.TRUNCATE_REFRESH, JobKind.CLEAR))
            content = () if job.kind is JobKind.CLEAR else tuple(table.feed.rows)
            table.start_job(replaces=replaces, from_start=full or named, content=content)
        for number in range(1, ATTEMPTS + 1):
            if number > 1:
                job.start_attempt()
            self._resume(job)
            ended = yield from self._attempt(job, last=number == ATTEMPTS)
            if ended:
                return
        self._give_up(job)

    def _resume(self, job: Job) -> None:
        anew = job.read_again()
        closed = {stream: chain.closed for stream, chain in self.lake.chains().items()}
        for stream, table in self._concerned(job):
            table.closed = closed.get(stream, False)
            table.resume(position(self.connection.state.messages, stream, table.content) or 0, anew=stream in anew)

    def _kind(self) -> tuple[JobKind, set[StreamName]]:
        everything = set(self.tables)
        kinds = [JobKind.SYNC]
        if self.speaks is Speaks.STREAM or all(feed.resumable for feed in self.feeds):
            kinds.append(JobKind.CLEAR)  # else the STREAM states that the platform injects would keep GLOBAL ones out
        if self.definition is Definition.REGISTRY:
            kinds += [JobKind.REFRESH, JobKind.TRUNCATE_REFRESH]
        kind = self.chance.choice([JobKind.SYNC] * 6 + kinds)
        some = set(self.chance.sample(sorted(everything, key=str), self.chance.randint(1, len(everything))))
        if self.speaks is Speaks.LEGACY:
            return JobKind.SYNC, everything  # the server cannot delete a part of such a state
        return kind, everything if kind is JobKind.SYNC else some

    def _change_data(self) -> None:
        """What the source has to send by now. A log only grows; what a full refresh finds is another set of rows each time."""
        for feed in self.feeds:
            self.versions += 100
            if feed.is_full_refresh:
                feed.rows = [Row(number, self.versions) for number in range(self.chance.choice((0, 3, 8, 9, 10, 11)))]
            else:
                ids = range(6) if feed.mode == "append_dedup" else range(1000)
                feed.rows += [Row(self.chance.choice(ids), self.versions + number) for number in range(self.chance.choice((0, 2, 5, 8)))]

    def _concerned(self, job: Job) -> list[tuple[StreamName, IdealTable]]:
        return [(stream, table) for stream, table in self.tables.items() if job.kind is not JobKind.CLEAR or stream in job.named]

    def _attempt(self, job: Job, *, last: bool) -> Generator[str, None, bool]:
        """One attempt. Returns whether the job is over."""
        catalog = job.catalog()
        states = self.connection.state.messages
        sent = job.empty_source() if job.kind is JobKind.CLEAR else list(ScriptedSource(self.feeds, self.speaks).read(catalog, states))
        plan = Plan(in_small_batches=self.chance.random() < 0.3) if last else self._plan(job, len(sent))
        orchestrator = Orchestrator(catalog, self.definition.supports_refreshes)
        forwarded = [line for line in map(orchestrator.take, sent[: plan.source_dies_after]) if line]
        alive = plan.source_dies_after is None
        delivered = [*forwarded, *orchestrator.end(0)] if alive else forwarded[: max(0, len(forwarded) - plan.undelivered)]
        outcome = self.destination.write(catalog, delivered, plan.death, in_small_batches=plan.in_small_batches)
        ended_well = outcome.error is None and not outcome.killed
        heard = outcome.states if ended_well or not plan.unheard else outcome.states[: -plan.unheard]
        for state in heard:
            self.connection.state.take(state)
        self.told.append(f"  {plan}: {len(delivered)} delivered, {len(heard)} of {len(outcome.states)} states heard, {outcome.error}")
        found = self._found()
        parts = self._parts(catalog, states, delivered, alive, outcome, found)
        yield from self._wrong_answers(catalog, delivered, parts, alive, outcome)
        for stream, table in self._concerned(job):
            if wrong := table.take(parts[stream], found[stream]):
                yield f"table {stream[1]} {wrong}"
        if alive and ended_well:
            for stream, table in self._concerned(job):
                if wrong := table.succeed(found[stream]):
                    yield f"after success, table {stream[1]} {wrong}"
            return True
        if last or any(part.held_back for part in parts.values()):
            self._give_up(job)
            return True
        return False

    def _give_up(self, job: Job) -> None:
        for _, table in self._concerned(job):
            table.give_up()

    def _plan(self, job: Job, messages: int) -> Plan:
        chance = self.chance
        dies_after, death = None, None
        if chance.random() < 0.6 and job.kind is not JobKind.CLEAR:
            dies_after = chance.randint(0, messages)
        if chance.random() < 0.3:
            death = Death(chance.choice((chance.randint(1, 21), chance.randint(21, 91))), chance.choice(FATES))
        return Plan(dies_after, chance.choice((0, 0, 1, 3)), chance.choice((0, 0, 1, 5)), death, chance.random() < 0.3)

    def _parts(
        self,
        catalog: Mapping[str, Any],
        states: Sequence[Mapping[str, Any]],
        delivered: Sequence[bytes],
        alive: bool,
        outcome: Ended,
        found: Mapping[StreamName, Rows],
    ) -> dict[StreamName, Part]:
        """What the attempt means for each stream. `found`: the tables after it."""
        how = ends(catalog, delivered)
        says_held_back = End.UNFINISHED not in how.values() or outcome.killed  # else the error speaks of what is unfinished
        parts: dict[StreamName, Part] = {}
        for entry in catalog["streams"]:
            stream = name_of(entry)
            table = self.tables[stream]
            start, came = position(states, stream, table.content) or 0, records_of(delivered, stream)
            complete, held_back = alive, False
            if self.definition is Definition.CUSTOM:
                complete = how[stream] is not End.UNFINISHED
                replaces = entry["destination_sync_mode"] == "overwrite"
                held_back = complete and replaces and is_held_back(how[stream], came, sum(table.shown.values()))
                if table.late is not None and replaces and complete:  # how many rows it had is not known
                    named = outcome.error is not None and f"{stream[0]}.{stream[1]} (" in outcome.error.message
                    held_back = named if says_held_back else is_held_back(how[stream], came, sum(found[stream].values()))
            covered = position(outcome.states, stream, table.content, empty_is_end=True)
            parts[stream] = Part(start + came, start if covered is None else covered, complete, held_back, outcome.killed)
        return parts

    def _wrong_answers(
        self, catalog: Mapping[str, Any], delivered: Sequence[bytes], parts: Mapping[StreamName, Part], alive: bool, outcome: Ended
    ) -> Iterator[str]:
        """What is wrong with the states that came back, and with the destination's ending."""
        if outcome.killed:
            return
        came = [message["state"] for message in map(json.loads, delivered) if message["type"] == "STATE"]
        if by_stream(came) != by_stream(outcome.states):
            yield f"states came back as {list(outcome.states)}, not {came}"
        whole = alive if self.definition is Definition.REGISTRY else all(part.complete and not part.held_back for part in parts.values())
        if whole != (outcome.error is None):
            yield f"the sync ended with {outcome.error!r}, and its streams were {'complete' if whole else 'not complete'}: {parts}"
        if (
            outcome.error is not None
            and all(part.complete for part in parts.values())
            and outcome.error.failure_type is not FailureType.CONFIG
        ):
            yield f"nothing but a replacement without proof was wrong, and the error is {outcome.error!r}"

    def _found(self) -> dict[StreamName, Rows]:
        tables = self.lake.tables(set(self.tables))
        return {stream: Counter(Row(row["id"], row["version"]) for row in tables.get(stream, ())) for stream in self.tables}


def position(states: Sequence[Mapping[str, Any]], stream: StreamName, content: Sequence[Row], *, empty_is_end: bool = False) -> int | None:
    """How many rows the last of these states covers of the stream; None without any. An empty one is that of the start, or of the end."""
    blobs = [blobs_of([state])[stream] for state in states if stream in blobs_of([state])]
    if not blobs:
        return None
    return int((blobs[-1] or {}).get("next", len(content) if blobs[-1] or empty_is_end else 0))


def records_of(delivered: Iterable[bytes], stream: StreamName) -> int:
    """How many of the lines are records of the stream."""
    records = (message["record"] for message in map(json.loads, delivered) if message["type"] == "RECORD")
    return sum((record.get("namespace"), record["stream"]) == stream for record in records)


def by_stream(states: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The blobs by stream, in order; those of GLOBAL and LEGACY states under their kind."""
    found: dict[str, list[Any]] = {}
    for state in states:
        if state["type"] == "STREAM":
            found.setdefault(str(state["stream"]["stream_descriptor"]), []).append(state["stream"]["stream_state"])
        elif state["type"] == "GLOBAL":
            entries = [(entry["stream_descriptor"], entry["stream_state"]) for entry in state["global"]["stream_states"]]
            found.setdefault("GLOBAL", []).append((state["global"]["shared_state"], entries))
        else:
            found.setdefault("LEGACY", []).append(state["data"])
    return found
