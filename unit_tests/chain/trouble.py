"""Scenarios of merges and refreshes, the trouble they meet, and the sum of what was wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.errors import SyncError
from unit_tests.chain.bucket import CRASHES, LOSSES
from unit_tests.chain.merging import Attempt, Plan, Platform, WatchedBucket, run_once, run_until_done
from unit_tests.lake.memory_bucket import Fate, Hook, Refusal, S3Call
from unit_tests.sampling import chance, rounds

EVERY = 3
"""Of so many cases that are alike, a run for a commit takes one."""
OLD = Plan(1, 0, WriteDisposition.APPEND, ((0, 1, 2), (3, 4)))
MORE = Plan(2, 0, WriteDisposition.APPEND, ((5, 6), (7,)))
REFRESH = Plan(2, 5, WriteDisposition.TRUNCATE, ((10, 11, 12), (13,), (14, 15)))
SAME = replace(MORE, generation=5)
LATER = replace(REFRESH, sync_id=3)
OVERWRITE = Plan(2, 0, WriteDisposition.OVERWRITE, ((10, 11, 12), (13, 14)))


def appending(plan: Plan) -> Plan:
    return replace(plan, deduplicated=False)


def compacting(plan: Plan) -> Plan:
    return replace(plan, deduplicated=False, compacts=True)


def divided(plan: Plan) -> Plan:
    return replace(plan, partitions=3)


@dataclass(frozen=True)
class Scenario:
    """Syncs that went well, and the one that has trouble. `kept`: those of them whose rows stay."""

    before: tuple[Plan, ...]
    troubled: Plan
    kept: tuple[Plan, ...] = ()

    @property
    def expected(self) -> Counter[int]:
        return sum((plan.records for plan in self.kept), self.troubled.records)

    def begun(self, *, completes_again: bool = True, kind: type[WatchedBucket] = WatchedBucket) -> WatchedBucket:
        bucket = kind(completes_again=completes_again)
        for plan in self.before:
            run_until_done(bucket, plan)
        bucket.store.forget()
        return bucket

    def clean_calls(self, kind: type[WatchedBucket] = WatchedBucket) -> int:
        bucket = self.begun(kind=kind)
        run_until_done(bucket, self.troubled)
        return len(bucket.store.memory.calls)


SCENARIOS = {
    "the first merge": Scenario((), OLD),
    "a merge into a merged table": Scenario((OLD,), MORE, kept=(OLD,)),
    "a merge into a table that was appended to": Scenario((appending(OLD),), MORE, kept=(OLD,)),
    "a refresh of a merged table": Scenario((OLD,), REFRESH),
    "a refresh of an appended table": Scenario((appending(OLD),), appending(REFRESH)),
    "a refresh of a new table": Scenario((), REFRESH),
    "a refresh without records": Scenario((OLD,), replace(REFRESH, checkpoints=())),
    "a refresh that sends everything again, each attempt a generation": Scenario((OLD,), replace(REFRESH, resumable=False, bumps=True)),
    "an overwrite": Scenario((OLD,), OVERWRITE),
    "an overwrite of a new table": Scenario((), appending(OVERWRITE)),
    "an overwrite by a sync without a number": Scenario((OLD,), replace(OVERWRITE, sync_id=0, resumable=False)),
    "a refresh over rows of its generation and older ones": Scenario((appending(OLD), appending(SAME)), appending(LATER), kept=(SAME,)),
    "a refresh over merged rows of its generation and older ones": Scenario((OLD, SAME), LATER, kept=(SAME,)),
    "a compaction of appended rows": Scenario((appending(OLD),), compacting(MORE), kept=(OLD,)),
    "a compaction of compacted rows": Scenario((appending(OLD), compacting(MORE)), compacting(replace(MORE, sync_id=3)), kept=(OLD, MORE)),
    "a refresh over compacted rows of its generation and older ones": Scenario(
        (appending(OLD), compacting(SAME)), appending(LATER), kept=(SAME,)
    ),
    "an append with partitions": Scenario((divided(appending(OLD)),), divided(appending(MORE)), kept=(OLD,)),
    "a merge with partitions": Scenario((divided(OLD),), divided(MORE), kept=(OLD,)),
    "a refresh of an undivided table with partitions": Scenario((appending(OLD),), divided(appending(REFRESH))),
    "a compaction with partitions": Scenario((divided(appending(OLD)),), divided(compacting(MORE)), kept=(OLD,)),
    "a refresh over compacted rows of its generation with partitions": Scenario(
        (divided(appending(OLD)), divided(compacting(SAME))), divided(appending(LATER)), kept=(SAME,)
    ),
    "a sync after a refresh": Scenario((OLD, REFRESH), replace(MORE, sync_id=3, generation=5), kept=(REFRESH,)),
}


class Tally:
    """Adds up what was wrong over many schedules."""

    def __init__(self) -> None:
        self.schedules = 0
        self.bad: Counter[str] = Counter()
        self.first_bad = ""

    def add(self, schedule: object, bucket: WatchedBucket, expected: Counter[int]) -> None:
        bucket.check(expected)
        self.schedules += 1
        self.bad.update(bucket.problems)
        if bucket.problems and not self.first_bad:
            self.first_bad = f"{schedule}: {bucket.problems}, calls {list(enumerate(bucket.store.calls, 1))}"

    def expect_clean(self, name: str) -> None:
        print(f"{name}: {self.schedules} schedules, {dict(self.bad)}")
        assert not self.bad, self.first_bad


def random_faults(seed: str, count: int, last_call: int) -> Iterator[dict[int, Fate]]:
    lot = chance(seed)
    for _ in range(rounds(count // EVERY, count)):
        faults = [lot.choice(CRASHES) for _ in range(lot.randint(0, 4))]
        faults += [lot.choice(LOSSES) for _ in range(lot.randint(0, 4))]
        yield {lot.randint(1, last_call): fault for fault in faults}


class Paused:
    """A writer that is paused before one of its calls while other attempts of the sync take over, and that goes on then.

    `others_end`: they go on until one succeeds; otherwise there is one of them, and the faults kill it.
    """

    def __init__(self, bucket: WatchedBucket, plan: Plan, pause_at: int, faults_of_others: Hook, others_end: bool) -> None:
        self._lake = bucket
        self._plan = plan
        self._pause_at = pause_at
        self._faults_of_others = faults_of_others
        self._others_end = others_end
        self._platform = Platform()
        bucket.two_writers = True
        bucket.store.hook = self._hook

    def run(self) -> str:
        try:
            Attempt(self._lake, self._plan, self._platform).run()
        except SyncError as error:
            return type(error).__name__
        finally:
            self._lake.audit()
        return "finished"

    def finish(self) -> None:
        """What the platform does once both are gone."""
        self._platform.acked = max(self._platform.acked, self._others.acked)
        run_until_done(self._lake, self._plan, self._platform)

    def _hook(self, call: S3Call) -> Fate | Refusal | None:
        if call.number == self._pause_at:
            self._others = Platform(self._platform.acked)
            self._lake.store.hook = lambda later: self._faults_of_others(replace(later, number=later.number - call.number))
            (run_until_done if self._others_end else run_once)(self._lake, self._plan, self._others)
            self._lake.store.hook = None
        return None


def opened_by(scenario: Scenario, kind: type[WatchedBucket] = WatchedBucket) -> int:
    """The number of the call that opens the table; a writer that is paused before opens it after the others, as a sync of its own."""
    bucket = scenario.begun(kind=kind)
    run_until_done(bucket, scenario.troubled)
    return bucket.store.names().index("create") + 1
