"""The commit protocol under crashes, timeouts, vanishing uploads and paused writers: nothing lost, nothing doubled, never stuck.

Runs the real Commits, TableWriter and chain code over a fake bucket. Each schedule says what goes wrong at which store call.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.state import StateKind
from unit_tests.chain.bucket import CRASHES, FATES, LOSSES, at_calls, name_of
from unit_tests.chain.simulation import ONE_TABLE, Landing, Platform, Positions, Result, Shape, Sync, World, result, run_until_done
from unit_tests.lake.memory_bucket import Crash, Fate, Hook, Refusal, S3Call
from unit_tests.sampling import chance, rounds, sample

SHAPES = {
    "one table": ONE_TABLE,
    "several checkpoints per commit, a slice over all of them": Shape(((3,), (6,), (9,), (12,)), (12,), commit_states=3),
    "several slices per checkpoint, across its ends": Shape(((4,), (7,), (12,)), (12,), pieces=3, commit_states=2),
    "lands inside a checkpoint": Shape(((6,), (12,)), (12,), chunks=3, commit_states=1),
    "a tail behind the last state": Shape(((4,), (8,)), (11,), commit_states=1),
    "global state over three tables": Shape(((3, 0, 2), (3, 4, 2), (6, 6, 4)), (6, 6, 4), StateKind.GLOBAL, commit_states=1),
    "global state, many checkpoints per commit": Shape(((2, 1, 2), (4, 2, 2), (6, 4, 5)), (6, 4, 5), StateKind.GLOBAL, 2, 2, 2, 2),
    "global state, a stream that lands late": Shape(
        ((2, 2), (4, 4), (6, 6), (8, 8)), (8, 8), StateKind.GLOBAL, land_chunks=99, landing=Landing.LAST_STREAM_LATE
    ),
    "three streams with states of their own": Shape(((3, 2, 4), (6, 5, 4)), (6, 5, 4), commit_states=2),
}
TAIL = "a tail behind the last state"
EVERY = 4
"""Of so many cases that are alike, a run for a commit takes one."""
PER_PAUSE = 6
"""Deaths of other writers during a pause in a run for a commit, on average."""


class Tally:
    """Adds up the results of many schedules."""

    def __init__(self) -> None:
        self.schedules = 0
        self.attempts = 0
        self.bad: Counter[str] = Counter()
        self.first_bad = ""

    def add(self, schedule: object, shape: Shape, found: Result, copies: int = 1) -> None:
        self.schedules += 1
        self.attempts += found.attempts
        measured = {
            "lost": found.lost(shape, copies),
            "doubled": found.doubled(shape, copies),
            "doubled for a moment": max(0, found.copies_seen - copies),
            "uploads left": found.uploads_left,
        }
        if any(measured.values()) and not self.first_bad:
            self.first_bad = f"{schedule}: {measured}"
        self.bad.update(measured)

    def report(self, name: str) -> None:
        print(f"{name}: {self.schedules} schedules, {self.attempts} attempts, {dict(self.bad)}")

    def expect_clean(self, name: str) -> None:
        self.report(name)
        assert not self.bad.total(), self.first_bad


def survive(shape: Shape, hook: Hook, *, completes_again: bool) -> tuple[World, Result]:
    world = World(completes_again)
    world.store.hook = hook
    attempts = run_until_done(world, shape, Platform([0] * len(shape.totals)))
    return world, result(world, shape, attempts)


def clean_calls(shape: Shape) -> int:
    world = World()
    run_until_done(world, shape, Platform([0] * len(shape.totals)))
    return len(world.store.memory.calls)


def tally(shape: Shape, schedules: Iterable[Mapping[int, Fate]], name: str, *, completes_again: bool) -> None:
    found = Tally()
    for schedule in schedules:
        world, outcome = survive(shape, at_calls(schedule), completes_again=completes_again)
        found.add((schedule, world.store.names()), shape, outcome)
    found.expect_clean(f"{name}, completes again: {completes_again}")


def random_schedules(seed: str, count: int, last_call: int, crashes: tuple[int, int], losses: tuple[int, int]) -> Iterator[dict[int, Fate]]:
    lot = chance(seed)
    for _ in range(rounds(count // EVERY, count)):
        faults = [lot.choice(CRASHES) for _ in range(lot.randint(*crashes))]
        faults += [lot.choice(LOSSES) for _ in range(lot.randint(*losses))]
        yield {lot.randint(1, last_call): fault for fault in faults}


@pytest.mark.parametrize("name", SHAPES)
def test_a_clean_sync_lands_every_record_once(name: str) -> None:
    shape = SHAPES[name]
    platform = Platform([0] * len(shape.totals))
    world = World()
    found = result(world, shape, run_until_done(world, shape, platform))

    assert (found.attempts, found.lost(shape), found.doubled(shape), found.copies_seen, found.uploads_left) == (1, 0, 0, 1, 0)
    assert platform.acked == list(shape.boundaries[-1])


@pytest.mark.parametrize("completes_again", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_one_fault_at_every_call(name: str, completes_again: bool) -> None:
    shape = SHAPES[name]
    schedules = [{call: fault} for call in range(1, clean_calls(shape) + 1) for fault in FATES]
    if name == TAIL:
        schedules = [schedule for schedule in schedules if schedule not in deaths_after_close(shape)]
    tally(shape, schedules, f"one fault, {name}", completes_again=completes_again)


def deaths_after_close(shape: Shape) -> list[dict[int, Fate]]:
    """The last calls of a sync are Close and the hint."""
    calls = clean_calls(shape)
    return [{calls - 1: Fate.CRASH_AFTER}, {calls: Fate.CRASH_BEFORE}, {calls: Fate.CRASH_AFTER}]


def test_a_tail_without_a_state_doubles_only_when_the_process_dies_between_close_and_exit() -> None:
    """The source sends the tail again and nothing tells this from new records: at least once, as destinations promise. Nothing is lost."""
    shape = SHAPES[TAIL]
    for schedule in deaths_after_close(shape):
        _, found = survive(shape, at_calls(schedule), completes_again=True)

        assert found.lost(shape) == 0
        assert {row for row, copies in found.chain.items() if copies > 1} == {(0, 8), (0, 9), (0, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("completes_again", [True, False])
def test_every_pair_of_crashes(completes_again: bool) -> None:
    calls = clean_calls(ONE_TABLE)
    pairs = [
        {first: before, second: after}
        for first in range(1, calls + 1)
        for second in range(first + 1, first + 21)
        for before in CRASHES
        for after in CRASHES
    ]
    tally(ONE_TABLE, sample(pairs, len(pairs) // EVERY), "pairs of crashes, one table", completes_again=completes_again)


@pytest.mark.parametrize("completes_again", [True, False])
@pytest.mark.parametrize("name", [name for name in SHAPES if name != TAIL])
def test_random_crashes_and_timeouts(name: str, completes_again: bool) -> None:
    shape = SHAPES[name]
    tally(
        shape,
        random_schedules(name, 200, 2 * clean_calls(shape), (0, 4), (0, 5)),
        f"random faults, {name}",
        completes_again=completes_again,
    )


@pytest.mark.parametrize("name", ["one table", "several slices per checkpoint, across its ends", "global state over three tables"])
def test_staged_uploads_vanish(name: str) -> None:
    shape = SHAPES[name]
    found = Tally()
    for seed, crashes in enumerate(random_schedules(name, 600, clean_calls(shape), (0, 3), (0, 1))):
        chance = random.Random(seed)
        world = World(completes_again=False)
        strike = at_calls(crashes)

        def hook(call: S3Call, world: World = world, chance: random.Random = chance, strike: Hook = strike) -> Fate | Refusal | None:
            if world.store.uploads and call.number < 300 and chance.random() < 0.02:
                world.store.uploads.pop(chance.choice(list(world.store.uploads)))
            return strike(call)

        world.store.hook = hook
        attempts = run_until_done(world, shape, Platform([0] * len(shape.totals)))
        found.add((seed, crashes), shape, result(world, shape, attempts))
    found.expect_clean(f"vanishing uploads, {name}")


def test_a_source_that_replays_with_other_boundaries_loses_nothing() -> None:
    shape = Shape((), (20,), pieces=2, commit_states=2)
    found = Tally()
    for seed, schedule in enumerate(random_schedules("boundaries", 1200, 60, (1, 3), (0, 2))):
        chance = random.Random(seed)
        world = World()
        world.store.hook = at_calls(schedule)

        def boundaries(chance: random.Random = chance) -> list[Positions]:
            return [(position,) for position in sorted({chance.randint(1, 20) for _ in range(4)} | {20})]

        attempts = run_until_done(world, shape, Platform([0]), boundaries)
        found.add(schedule, shape, result(world, shape, attempts))
    found.report("other boundaries (doubles are allowed)")
    assert found.bad["lost"] == 0, found.first_bad
    assert found.bad["uploads left"] == 0, found.first_bad


@pytest.mark.parametrize(
    "name", ["one table", "global state over three tables", "several checkpoints per commit, a slice over all of them"]
)
def test_two_successful_identical_syncs_land_twice(name: str) -> None:
    shape = SHAPES[name]
    found = Tally()
    for schedule in random_schedules(name + " twice", 500, 3 * clean_calls(shape), (0, 5), (0, 3)):
        world = World()
        world.store.hook = at_calls(schedule)
        attempts = sum(run_until_done(world, shape, Platform([0] * len(shape.totals))) for _ in range(2))
        found.add(schedule, shape, result(world, shape, attempts), copies=2)
    found.expect_clean(f"two identical syncs, {name}")


def test_fewer_states_than_records_never_go_out_before_their_records_are_durable() -> None:
    """At the moment of every STATE, a reader that globs finds each record it covers."""
    found = Tally()
    for schedule in random_schedules("durable", 500, 70, (0, 3), (0, 4)):
        world = World()
        world.store.hook = at_calls(schedule)

        class Watching(Platform):
            def take(self, message: object, world: World = world) -> None:
                super().take(message)  # type: ignore[arg-type]
                assert all(world.visible[0, number] == 1 for number in range(self.acked[0])), "acknowledged, but not there"

        attempts = run_until_done(world, ONE_TABLE, Watching([0]))
        found.add(schedule, ONE_TABLE, result(world, ONE_TABLE, attempts))
    found.expect_clean("durable at every STATE")


class Zombie:
    """A writer that is paused before one of its calls while other attempts take over, under faults of their own, and that goes on then."""

    def __init__(self, shape: Shape, pause_at: int, faults_of_others: Hook, *, completes_again: bool = True) -> None:
        self.world = World(completes_again)
        self.shape = shape
        self.platform = Platform([0] * len(shape.totals))  # what the paused writer's STATEs say
        self.attempts = 1
        self._pause_at = pause_at
        self._faults_of_others = faults_of_others
        self.world.store.hook = self._hook

    def run(self) -> str:
        try:
            Sync(self.world, self.shape, self.platform).run()
        except SyncError as error:
            return type(error).__name__
        return "finished"

    def take_over(self) -> None:
        self.attempts += run_until_done(self.world, self.shape, Platform(list(self.platform.acked)))

    def _hook(self, call: S3Call) -> Fate | Refusal | None:
        if call.number == self._pause_at:
            store = self.world.store
            store.hook = lambda later: self._faults_of_others(replace(later, number=later.number - call.number))
            self.take_over()
            store.hook = None
        return None


def opened_by(shape: Shape) -> int:
    """The number of the call that opens the last table of a clean sync; a writer paused before may open after the other one closed."""
    world = World()
    run_until_done(world, shape, Platform([0] * len(shape.totals)))
    seeds = [number for number, (name, key) in enumerate(world.store.calls, 1) if name == "create" and key.endswith(f"{0:020d}.json")]
    return seeds[-1]


@pytest.mark.slow
@pytest.mark.parametrize("completes_again", [True, False])
@pytest.mark.parametrize("name", ["one table", "lands inside a checkpoint", "global state over three tables"])
def test_a_paused_writer_that_wakes_up_after_another_took_over(name: str, completes_again: bool) -> None:
    shape = SHAPES[name]
    found = Tally()
    outcomes: Counter[str] = Counter()
    pauses = range(opened_by(shape) + 1, clean_calls(shape) + 1)
    crashes = sample([(pause, crash_at) for pause in pauses for crash_at in range(1, clean_calls(shape) + 10, 3)], len(pauses) * PER_PAUSE)
    for pause, crash_at in [*((pause, None) for pause in pauses), *crashes]:
        faults = {} if crash_at is None else {crash_at: CRASHES[crash_at // 3 % 2]}
        zombie = Zombie(shape, pause, at_calls(faults), completes_again=completes_again)
        outcomes[zombie.run()] += 1
        found.add((pause, faults), shape, result(zombie.world, shape, zombie.attempts))
    found.expect_clean(f"zombies {dict(outcomes)}, {name}, completes again: {completes_again}")
    assert outcomes.keys() <= {"Fenced", "finished"}
    assert outcomes["Fenced"] > 10 * outcomes["finished"]


class InterruptedTakeover(Zombie):
    """The other attempt dies, the paused one goes on before anybody else comes, and every STATE of both counts."""

    def take_over(self) -> None:
        other = Platform(list(self.platform.acked))
        with suppress(SyncError, Crash):
            Sync(self.world, self.shape, other).run()
        self.other_acked = other.acked

    def finish(self) -> None:
        acked = [max(both) for both in zip(self.platform.acked, self.other_acked, strict=True)]
        self.attempts += 1 + run_until_done(self.world, self.shape, Platform(acked))


@pytest.mark.parametrize("death", CRASHES)
@pytest.mark.parametrize("unanswered", [0, 6])
def test_a_paused_writer_that_wakes_up_while_the_other_has_died_half_way(unanswered: int, death: Fate) -> None:
    """With unanswered completes the other one takes the paused writer's block back while its uploads are still there."""
    shape = Shape(((3,), (6,)), (6,))
    found = Tally()
    outcomes: Counter[str] = Counter()
    cases = [(pause, dies_at) for pause in range(opened_by(shape) + 1, clean_calls(shape) - 1) for dies_at in range(1, 46)]
    for pause, dies_at in sample(cases, len(cases) // EVERY):
        left = [Fate.LOST_BEFORE] * unanswered

        def faults(call: S3Call, dies_at: int = dies_at, left: list[Fate] = left) -> Fate | None:
            if call.number == dies_at:
                return death
            return left.pop() if name_of(call) == "complete_upload" and left else None

        zombie = InterruptedTakeover(shape, pause, faults)
        outcomes[zombie.run()] += 1
        zombie.finish()
        found.add((pause, dies_at), shape, result(zombie.world, shape, zombie.attempts))
    found.expect_clean(f"zombies beside dead ones {dict(outcomes)}, {unanswered} completes unanswered, {death.value}")


def test_a_writer_paused_before_it_opened_is_a_later_sync() -> None:
    """It sends everything again after the other one closed cleanly: that is what a second sync does, and both copies belong there."""
    for pause in range(1, opened_by(ONE_TABLE) + 1):
        zombie = Zombie(ONE_TABLE, pause, at_calls({}), completes_again=False)

        assert zombie.run() == "finished"
        found = result(zombie.world, ONE_TABLE, 2)
        assert (found.lost(ONE_TABLE, copies=2), found.doubled(ONE_TABLE, copies=2), found.uploads_left) == (0, 0, 0)
