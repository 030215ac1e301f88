"""What an ideal destination holds after each attempt, from what reached it and what the platform heard of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from unit_tests.sync.platform.orchestrator import StreamName, is_resumable, name_of
from unit_tests.sync.platform.scripted import COMPLETE_MARK, NO_CURSOR_MARK, Feed, Row, blobs_of

Rows: TypeAlias = Counter[Row]
LEAST_PERCENT = 80
"""Share of a table's rows that a replacement without proof must have."""
END_MARKS = (COMPLETE_MARK, NO_CURSOR_MARK)


class End(Enum):
    """How a stream's part in an attempt without stream statuses ended."""

    UNFINISHED = "no state after its last record"
    UNPROVEN = "a state that may also come in the middle"
    PROVEN = "a state that only comes at the end"


def ends(catalog: Mapping[str, Any], delivered: Iterable[bytes]) -> dict[StreamName, End]:
    """How the streams ended, as far as the messages tell that reached the destination."""
    found = dict.fromkeys(map(name_of, catalog["streams"]), End.UNFINISHED)
    resumable = {name_of(stream) for stream in catalog["streams"] if is_resumable(stream)}
    with_records: set[StreamName] = set()
    for message in map(json.loads, delivered):
        if message["type"] == "RECORD":
            stream = message["record"].get("namespace"), message["record"]["stream"]
            found[stream] = End.UNFINISHED
            with_records.add(stream)
        elif message["type"] == "STATE":
            state = message["state"]
            if state["type"] != "STREAM":
                found = dict.fromkeys(found, End.UNPROVEN)
            for stream, blob in blobs_of([state]).items() if state["type"] != "LEGACY" else ():
                is_cleared = blob is None and stream not in with_records
                is_injected = not blob and stream not in resumable and state["type"] == "STREAM"
                found[stream] = End.PROVEN if blob in END_MARKS or is_cleared or is_injected else End.UNPROVEN
    return found


def is_held_back(end: End, new_rows: int, old_rows: int) -> bool:
    """Whether a replacement waits for an operator: it has no proof, and would leave too few rows."""
    return end is End.UNPROVEN and old_rows > 0 and (new_rows == 0 or 100 * new_rows < LEAST_PERCENT * old_rows)


@dataclass(frozen=True, slots=True)
class Part:
    """A stream's part in an attempt. `sent`: rows of its content that reached the destination, counted from the start of the content.

    `covered`: those before a state that the platform has back. `complete`: the destination could know that the stream was whole.
    `held_back`: it was, and its rows wait beside the table. `killed`: the destination was.
    """

    sent: int
    covered: int
    complete: bool
    held_back: bool
    killed: bool


@dataclass
class IdealTable:
    """The table of one stream. `shown` is what readers saw last, `content` what the source reads, from its start, since the last reset.

    `base_must` and `base_may` are the rows of earlier reads of an appended table: those that have to be there, and those that may be.
    `whole`: the table has been the whole of something, which must not give way to less. `unsettled`: rows of a refresh that was given up
    are part of the table from the next sync on. `late`: what a destination that died had committed and not completed, which the next one
    does. `closed`: the destination ended the session, and recognises nothing of it that comes again. `again`: what came so in this job.
    """

    feed: Feed
    deduplicated: bool
    exact_replays: bool
    shown: Rows = field(default_factory=Counter)
    base_must: Rows = field(default_factory=Counter)
    base_may: Rows = field(default_factory=Counter)
    sent: int = 0
    covered: int = 0
    whole: bool = False
    unsettled: bool = False
    replaces: bool = False
    content: Sequence[Row] = ()
    late: tuple[Rows, Rows] | None = None
    closed: bool = False
    again: Rows = field(default_factory=Counter)

    def start_job(self, *, replaces: bool, from_start: bool, content: Sequence[Row]) -> None:
        """A job begins. `from_start`: its read does not go on where the last one ended."""
        if from_start:
            self._fold()
        self.replaces, self.content, self.again = replaces, content, Counter()
        self.whole = self.whole or (replaces and not self.feed.is_full_refresh and bool(self.shown))

    def resume(self, start: int, *, anew: bool) -> None:
        """An attempt reads on from there. What it sends again is recognised, if the session is open and the states are the same again.

        `anew`: it reads from the start, and what was sent before is no part of it.
        """
        if self.closed or not self.exact_replays:
            self.again += Counter(() if anew else self.content[start : self.sent])
            self.base_may += Counter(self.content[start : self.sent])

    def take(self, part: Part, table: Rows) -> str | None:
        """Compare the table after an attempt, and return what is wrong with it."""
        self.sent, self.covered = max(self.sent, part.sent), max(self.covered, part.covered)
        wrong = self._replacement(part, table) if self.replaces else self._addition(part, table)
        if part.killed:
            earlier = self.late[1] if self.late else Counter()
            self.late = self.visible(self.content[: part.sent]), earlier | self.base_may + Counter(self.content[: self.sent])
        else:
            self.late = None
        self.shown = table
        return wrong

    def succeed(self, table: Rows) -> str | None:
        """The job is done: nothing is open any more."""
        self.sent = self.covered = len(self.content)
        self.unsettled = False
        if self.replaces:
            self.whole = bool(self.content)
            self.base_must, self.base_may = Counter(), Counter()
            if self.feed.is_full_refresh:
                self._fold()
            wanted = self.visible(self.content)
            return None if self._is_made_of(table, wanted) else f"is not what the job read: {differences(table, wanted, wanted)}"
        return self._addition(Part(self.sent, self.covered, complete=True, held_back=False, killed=False), table)

    def give_up(self) -> None:
        """The job ends without success."""
        self.unsettled = self.unsettled or (self.replaces and not self.feed.is_full_refresh)
        if self.replaces and self.feed.is_full_refresh:
            self.base_may += Counter(self.content[: self.sent])
            self.sent = self.covered = 0

    def visible(self, rows: Sequence[Row]) -> Rows:
        """The rows that a reader sees of these."""
        return Counter({row.id: row for row in sorted(rows, key=lambda row: row.version)}.values() if self.deduplicated else rows)

    def _fold(self) -> None:
        rows = self.content
        self.base_must += Counter(rows[: self.covered])
        self.base_may += Counter(rows[: self.sent])
        self.sent = self.covered = 0

    def _is_made_of(self, table: Rows, wanted: Rows) -> bool:
        """Whether a table has these rows, and at most those beside them that came again and could not be recognised."""
        return wanted <= table <= (wanted if self.deduplicated else wanted + self.again)

    def _replacement(self, part: Part, table: Rows) -> str | None:
        new = self.visible(self.content[: part.sent])
        if part.complete and not part.held_back and (self._is_made_of(table, new) or not part.killed):
            self.whole = bool(new)
            if self._is_made_of(table, new) and (
                table != self.shown or not part.killed
            ):  # earlier rows are gone, even if the job fails for other streams
                self.base_must, self.base_may = Counter(), Counter()
            return None if self._is_made_of(table, new) else f"was not replaced: {differences(table, new, new)}"
        if table == self.shown or (not self.whole and table <= self.shown | Counter(self.content[: self.sent])):
            return None
        if self.late is not None and (table == self.late[0] or self.shown <= table <= self.late[1]):
            return None
        return f"changed, though nothing was there to replace it: {differences(table, self.shown, self.shown)}"

    def _addition(self, part: Part, table: Rows) -> str | None:
        must = self.base_must + Counter(self.content[: self.covered])
        may = self.base_may + Counter(self.content[: self.sent])
        if self.unsettled:
            must = Counter()
        if not self.deduplicated:
            return None if must <= table <= may else f"has other rows than were sent: {differences(table, must, may)}"
        least = self.shown if part.killed else self.shown | must
        versions = {row.id: row.version for row in table}
        stale = {row for row in least if versions.get(row.id, -1) < row.version}
        doubled = len(versions) != sum(table.values())
        foreign = set(table) - set(may)
        return f"stale {sorted(stale)}, doubled: {doubled}, foreign {sorted(foreign)}" if stale or doubled or foreign else None


def differences(table: Rows, must: Rows, may: Rows) -> str:
    return f"{sum(table.values())} rows, missing {sorted((must - table).elements())}, too many {sorted((table - may).elements())}"
