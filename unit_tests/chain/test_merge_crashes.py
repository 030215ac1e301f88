"""Merges and refreshes under crashes, timeouts, vanishing uploads and paused writers: every row once, old rows until new ones are there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from destination_s3_spark.chain.events import ReplaceData, Void
from destination_s3_spark.chain.opening import WriteDisposition
from unit_tests.chain.bucket import CRASHES, FATES, at_calls, name_of
from unit_tests.chain.merging import Plan, Platform, WatchedBucket, run_once, run_until_done
from unit_tests.chain.trouble import EVERY, OLD, REFRESH, SCENARIOS, Paused, Scenario, Tally, opened_by, random_faults
from unit_tests.lake.memory_bucket import Fate, Hook, Refusal, S3Call
from unit_tests.sampling import sample


def tally(name: str, schedules: Iterable[dict[int, Fate]], what: str, *, completes_again: bool = True) -> None:
    found = Tally()
    scenario = SCENARIOS[name]
    for schedule in schedules:
        bucket = scenario.begun(completes_again=completes_again)
        bucket.store.hook = at_calls(schedule)
        run_until_done(bucket, scenario.troubled)
        found.add(schedule, bucket, SCENARIOS[name].expected)
    found.expect_clean(f"{what}, {name}, completes again: {completes_again}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_trouble_every_row_is_there_once(name: str) -> None:
    bucket = SCENARIOS[name].begun()
    run_until_done(bucket, SCENARIOS[name].troubled)
    bucket.check(SCENARIOS[name].expected)

    assert bucket.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("completes_again", [True, False])
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_fault_at_every_call(name: str, completes_again: bool) -> None:
    schedules = ({call: fault} for call in range(1, SCENARIOS[name].clean_calls() + 1) for fault in FATES)
    tally(name, schedules, "one fault", completes_again=completes_again)


@pytest.mark.parametrize("name", ["a merge into a merged table", "a refresh of a merged table"])
def test_two_crashes(name: str) -> None:
    calls = SCENARIOS[name].clean_calls()
    pairs = [
        {first: CRASHES[first % 2], second: CRASHES[second % 2]}
        for first in range(1, calls + 1)
        for second in range(first + 1, first + 20, 2)
    ]
    tally(name, sample(pairs, len(pairs) // EVERY), "two crashes")


@pytest.mark.parametrize("name", SCENARIOS)
def test_random_crashes_and_timeouts(name: str) -> None:
    tally(name, random_faults(name, 60, 2 * SCENARIOS[name].clean_calls()), "random faults", completes_again=False)


@pytest.mark.parametrize("name", ["a merge into a merged table", "a refresh of an appended table"])
def test_staged_uploads_vanish(name: str) -> None:
    found = Tally()
    scenario = SCENARIOS[name]
    for seed, faults in enumerate(random_faults(name, 150, scenario.clean_calls())):
        chance = random.Random(seed)
        bucket = scenario.begun(completes_again=False)
        strike = at_calls(faults)

        def hook(
            call: S3Call, bucket: WatchedBucket = bucket, chance: random.Random = chance, strike: Hook = strike
        ) -> Fate | Refusal | None:
            if bucket.store.uploads and call.number < 200 and chance.random() < 0.03:
                bucket.store.uploads.pop(chance.choice(list(bucket.store.uploads)))
            return strike(call)

        bucket.store.hook = hook
        run_until_done(bucket, scenario.troubled)
        found.add((seed, faults), bucket, SCENARIOS[name].expected)
    found.expect_clean(f"vanishing uploads, {name}")


OTHER = (20, 21)
FOLLOWERS = {
    "the same generation again": REFRESH,
    "a higher generation": Plan(3, 6, WriteDisposition.TRUNCATE, (OTHER, (22,))),
    "a lower generation": Plan(3, 4, WriteDisposition.TRUNCATE, (OTHER, (22,))),
    "a higher generation without records": Plan(3, 6, WriteDisposition.TRUNCATE, ()),
    "cancelled, and a sync that keeps everything": replace(REFRESH, sync_id=3, disposition=WriteDisposition.APPEND),
    "cancelled, and an overwrite": Plan(3, 5, WriteDisposition.OVERWRITE, (OTHER,)),
}


@pytest.mark.parametrize("deduplicated", [False, True], ids=["append", "append_dedup"])
@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_refresh_that_dies_anywhere_is_followed_by(name: str, deduplicated: bool) -> None:
    follower = replace(FOLLOWERS[name], deduplicated=deduplicated)
    first = replace(REFRESH, deduplicated=deduplicated)
    scenario = Scenario((replace(OLD, deduplicated=deduplicated),), first)
    chance = random.Random(name)
    found = Tally()
    for call in range(1, scenario.clean_calls() + 1):
        for crash in CRASHES:
            bucket, platform = scenario.begun(), Platform()
            later = {call + chance.randint(1, 60): chance.choice(FATES) for _ in range(chance.randint(0, 2))}
            bucket.store.hook = at_calls({**later, call: crash})
            run_once(bucket, first, platform)
            expected = follower.records
            if follower.disposition is WriteDisposition.APPEND and not published(bucket):
                expected = expected + OLD.records
            goes_on = follower.checkpoints == first.checkpoints
            run_until_done(bucket, follower, platform if goes_on else None)
            found.add((call, crash, later), bucket, expected)
    found.expect_clean(f"a refresh that dies, then {name}, deduplicated {deduplicated}")


def published(bucket: WatchedBucket) -> bool:
    """Whether the refresh replaced the table before it died. A block whose uploads are all there cannot be taken back any more."""
    blocks = bucket.blocks()
    assert not any(isinstance(block.event, Void) for block in blocks)
    return any(isinstance(block.event, ReplaceData) for block in blocks)


def test_three_generations_in_a_row_of_which_only_the_last_ends() -> None:
    found = Tally()
    last = Plan(4, 4, WriteDisposition.TRUNCATE, (OTHER, (22,)))
    second = Plan(3, 6, WriteDisposition.TRUNCATE, ((30, 31), (32,)))
    scenario = Scenario((OLD,), REFRESH)
    calls = scenario.clean_calls()
    deaths = [(first, second) for first in range(1, calls + 1) for second in range(1, calls + 1, 5)]
    for first_dies, second_dies in sample(deaths, len(deaths) // 5):
        bucket = scenario.begun()
        bucket.store.hook = at_calls({first_dies: CRASHES[second_dies % 2]})
        run_once(bucket, REFRESH, Platform())
        bucket.store.hook = at_calls({len(bucket.store.memory.calls) + second_dies: CRASHES[first_dies // 2 % 2]})
        run_once(bucket, second, Platform())
        bucket.store.hook = None
        run_until_done(bucket, last)
        found.add((first_dies, second_dies), bucket, last.records)
    found.expect_clean("three generations")


@pytest.mark.slow
@pytest.mark.parametrize("completes_again", [True, False])
@pytest.mark.parametrize("name", ["a merge into a merged table", "a refresh of a merged table", "a refresh of an appended table"])
def test_a_paused_writer_that_wakes_up_after_another_took_over(name: str, completes_again: bool) -> None:
    scenario = SCENARIOS[name]
    found, outcomes = Tally(), Counter[str]()
    pauses = range(opened_by(scenario) + 1, scenario.clean_calls() + 1)
    crashes = [(pause, crash_at) for pause in pauses for crash_at in range(1, scenario.clean_calls(), 9)]
    for pause, crash_at in [*((pause, None) for pause in pauses), *sample(crashes, len(crashes) // EVERY)]:
        faults = {} if crash_at is None else {crash_at: CRASHES[crash_at % 2]}
        bucket = scenario.begun(completes_again=completes_again)
        paused = Paused(bucket, scenario.troubled, pause, at_calls(faults), others_end=True)
        outcomes[paused.run()] += 1
        found.add((pause, faults), bucket, scenario.expected)
    found.expect_clean(f"paused {dict(outcomes)}, {name}, completes again: {completes_again}")
    assert outcomes.keys() <= {"Fenced", "TransientError", "finished"}
    assert outcomes["Fenced"] > 5 * outcomes["finished"]


@pytest.mark.parametrize("unanswered", [0, 6])
@pytest.mark.parametrize("name", ["a merge into a merged table", "a refresh of a merged table"])
def test_a_paused_writer_that_wakes_up_while_the_other_has_died_half_way(name: str, unanswered: int) -> None:
    """With unanswered completes the other one takes the paused writer's block back while its uploads are still there."""
    scenario = SCENARIOS[name]
    found, outcomes = Tally(), Counter[str]()
    cases = [(pause, dies_at) for pause in range(opened_by(scenario) + 1, scenario.clean_calls() - 1) for dies_at in range(1, 36)]
    for pause, dies_at in sample(cases, len(cases) // (3 * EVERY)):
        left = [Fate.LOST_BEFORE] * unanswered

        def faults(call: S3Call, dies_at: int = dies_at, left: list[Fate] = left) -> Fate | None:
            if call.number == dies_at:
                return CRASHES[dies_at // 3 % 2]
            return left.pop() if name_of(call) == "complete_upload" and left else None

        bucket = scenario.begun()
        paused = Paused(bucket, scenario.troubled, pause, faults, others_end=False)
        outcomes[paused.run()] += 1
        paused.finish()
        found.add((pause, dies_at), bucket, scenario.expected)
    found.expect_clean(f"paused beside dead ones {dict(outcomes)}, {name}, {unanswered} completes unanswered")
    assert outcomes.keys() <= {"Fenced", "TransientError", "finished"}
