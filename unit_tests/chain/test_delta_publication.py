"""The Delta log under crashes, timeouts, paused writers and other programs: at each moment it shows the files of one committed block."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFilesFold
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.delta_log.actions import Action, Add, CommitInfo, Remove, Transaction, decode_commit, encode_commit
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.formats.file_statistics import UNBOUNDED, WrittenFile
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from destination_s3_spark.tables.commit.repair import repair
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.publishers import delta
from destination_s3_spark.tables.publishers.delta import DeltaTable
from destination_s3_spark.tables.publishers.symlink import published_keys
from unit_tests.cases import each
from unit_tests.chain import merging
from unit_tests.chain.bucket import CRASHES, FATES, Bucket, at_calls, name_of
from unit_tests.chain.delta_table import LOG, SHOWN, Refusing, delta_calls, log_of, paths, version
from unit_tests.chain.merging import WatchedBucket, run_until_done
from unit_tests.chain.one_table import CHAIN, FIRST, STARTED, TABLE, kinds, land, synced, writer
from unit_tests.chain.trouble import SCENARIOS, Paused, Tally, opened_by, random_faults
from unit_tests.lake.memory_bucket import Fate, MemoryBucket, S3Call
from unit_tests.lake.memory_client import MemoryClient
from unit_tests.sampling import sample


class LookingClient(MemoryClient):
    """Looks at the bucket before every call."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def _answered(
        self, bucket: MemoryBucket, action: str, key: str, parameters: Mapping[str, Any], effect: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        self._look()
        return super()._answered(bucket, action, key, parameters, effect)


class DeltaBucket(WatchedBucket):
    """Looks whether the Delta log shows one committed block all the time."""

    publishers = (SHOWN, merging.SHOWN)

    def __init__(self, *, completes_again: bool = True) -> None:
        super().__init__(completes_again=completes_again)
        self._live = LiveFilesFold()
        self._published: list[set[str]] = []
        self._newest = -1
        self.store.client = LookingClient(self.look)  # type: ignore[assignment]

    def look(self) -> None:
        found = log_of(self.store, merging.TABLE)
        if found is None:
            return
        for block in self.blocks()[len(self._published) :]:
            self._live.add(block)
            self._published.append(set(published_keys(self._live.now)))
        shown = {merging.TABLE.final_root + path for path in found.adds}
        number = found.transactions[merging.TABLE.table_id].version
        if number < self._newest:
            self.problems.append(f"version {found.version} goes back from block {self._newest} to {number}")
        self._newest = number
        if shown != self._published[number]:
            self.problems.append(f"version {found.version} does not show block {number}")
        if not shown <= self.store.objects.keys():
            self.problems.append("a file is gone that the log shows")

    def check(self, expected: Counter[int]) -> None:
        super().check(expected)
        if paths(self.store, merging.TABLE) != set(self.shown()):
            self.problems.append("wrong in the end: the Delta log")


@pytest.fixture
def _many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)


CROSSED = ["a merge into a merged table", "a refresh of an appended table", "a merge into a table that was appended to"]


def tally(name: str, schedules: Iterable[dict[int, Fate]], *, completes_again: bool = True) -> None:
    found, scenario = Tally(), SCENARIOS[name]
    for schedule in schedules:
        bucket = scenario.begun(completes_again=completes_again, kind=DeltaBucket)
        bucket.store.hook = at_calls(schedule)
        run_until_done(bucket, scenario.troubled)
        found.add(schedule, bucket, scenario.expected)
    found.expect_clean(f"Delta, {name}")


@pytest.mark.usefixtures("_many_checkpoints")
@each("name", CROSSED)
def test_one_fault_at_every_call(name: str) -> None:
    calls = SCENARIOS[name].clean_calls(DeltaBucket)
    schedules = [{call: fault} for call in range(1, calls + 1) for fault in FATES]
    tally(name, sample(schedules, len(schedules) // 2))


@pytest.mark.usefixtures("_many_checkpoints")
@each("name", CROSSED)
def test_random_crashes_and_timeouts(name: str) -> None:
    tally(name, random_faults(name, 40, 2 * SCENARIOS[name].clean_calls(DeltaBucket)), completes_again=False)


@pytest.mark.slow
@pytest.mark.usefixtures("_many_checkpoints")
@pytest.mark.parametrize("name", CROSSED)
def test_a_paused_writer_that_wakes_up_after_another_took_over(name: str) -> None:
    scenario = SCENARIOS[name]
    found, outcomes = Tally(), Counter[str]()
    calls = scenario.clean_calls(DeltaBucket)
    pauses = range(opened_by(scenario, DeltaBucket) + 1, calls + 1)
    crashes = [(pause, crash_at) for pause in pauses for crash_at in range(1, calls, 13)]
    for pause, crash_at in [*((pause, None) for pause in pauses), *sample(crashes, len(crashes) // 3)]:
        faults = {} if crash_at is None else {crash_at: CRASHES[crash_at % 2]}
        bucket = scenario.begun(kind=DeltaBucket)
        paused = Paused(bucket, scenario.troubled, pause, at_calls(faults), others_end=True)
        outcomes[paused.run()] += 1
        found.add((pause, faults), bucket, scenario.expected)
    found.expect_clean(f"paused {dict(outcomes)}, {name}")
    assert outcomes["Fenced"] > outcomes["finished"]


def finals(store: Bucket) -> set[str]:
    return {key for key in store.objects if key.startswith("lake/users/f-")}


def commit_as_another(store: Bucket, *actions: Action) -> None:
    """What a program writes that ignores writer features."""
    info = CommitInfo(1, "OPTIMIZE", {}, "another program", "x")
    store.create(f"{LOG}{version(store) + 1:020d}.json", encode_commit([info, *actions]))


def test_a_steady_publication_takes_one_get_and_one_put() -> None:
    store = Bucket()
    for sync_id in range(1, 130):
        store.forget()
        synced(store, sync_id, [SHOWN])
        calls = delta_calls(store)
        if sync_id == 1:
            assert calls == ["list", "create"]
        elif sync_id == 101:
            assert calls == ["get", "create", "get", "put", "put", "list"], "a checkpoint, and a look for what may be cleaned up"
        elif sync_id == 11:
            assert calls == ["get", "create", "put", "put"], "the first checkpoint"
        elif sync_id % 10 == 1:
            assert calls == ["get", "create", "get", "put", "put"], "a checkpoint takes over what the last one says"
        else:
            assert calls == ["get", "create"]
    assert paths(store) == finals(store)
    assert len(finals(store)) == 129


def test_a_session_that_changes_nothing_commits_nothing() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    made = writer(store, 2, publishers=[SHOWN])
    made.open()
    store.forget()
    made.close()

    assert version(store) == 0
    assert delta_calls(store) == ["get", "head"]


def test_an_idle_table_that_is_current_costs_two_calls() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    store.forget()
    writer(store, 2, publishers=[SHOWN]).close()

    assert delta_calls(store) == ["list", "get"]


@each("hint", [True, False])
def test_a_log_that_was_removed_is_written_again(hint: bool) -> None:
    store = Bucket()
    for sync_id in (1, 2):
        synced(store, sync_id, [SHOWN])
    for key in [key for key in store.objects if key.startswith(LOG)]:
        store.objects.pop(key)
    if not hint:
        store.objects.pop(f"{CHAIN}hint.json")
    synced(store, 3, [SHOWN])

    assert version(store) == 0
    assert paths(store) == finals(store)


def test_a_log_many_blocks_behind_catches_up_in_one_commit() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    for sync_id in range(2, 6):
        synced(store, sync_id, [Refusing()])
    synced(store, 6, [SHOWN])

    assert version(store) == 1
    assert paths(store) == finals(store)
    assert len(finals(store)) == 6


def test_an_outdated_hint_costs_requests_only() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    hint = store.objects[f"{CHAIN}hint.json"]
    for sync_id in (2, 3):
        synced(store, sync_id, [SHOWN])
    store.objects[f"{CHAIN}hint.json"] = hint
    store.forget()
    synced(store, 4, [SHOWN])

    assert delta_calls(store) == ["get", "create", "get", "list", "get", "get", "get", "create"]
    assert version(store) == 3
    assert paths(store) == finals(store)


def test_after_a_refusal_the_mark_is_older_than_the_hint() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    synced(store, 2, [Refusing()])
    assert len(paths(store)) == 1
    synced(store, 3, [SHOWN])

    assert paths(store) == finals(store)
    assert len(paths(store)) == 3


def test_an_old_mark_is_not_trusted() -> None:
    """The version after it may have been cleaned up, and would be free again."""
    store = Bucket()
    synced(store, 1, [DeltaTable(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))])
    store.forget()
    synced(store, 2, [DeltaTable(clock=lambda: datetime(2026, 1, 5, tzinfo=UTC))])

    assert delta_calls(store) == ["list", "get", "create"]


def optimized(store: Bucket) -> None:
    found = log_of(store)
    assert found is not None
    gone = [Remove(path, False, 1) for path in found.adds]
    commit_as_another(store, *gone, Add(f"part-{found.version}.parquet", {}, 1, 1, False))


def test_a_commit_of_another_program_is_undone_by_the_next_sync() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    optimized(store)
    assert paths(store) == {"lake/users/part-0.parquet"}
    synced(store, 2, [SHOWN])

    assert paths(store) == finals(store)


def test_a_commit_of_another_program_is_undone_by_an_idle_sync_and_by_repair() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    optimized(store)
    writer(store, 2, publishers=[SHOWN]).close()
    assert paths(store) == finals(store)

    optimized(store)
    done = repair(store, TABLE, [SHOWN], OrphanUploads(store, "lake/"), STARTED)
    assert done is not None
    assert done.published == ("delta",)
    assert paths(store) == finals(store)
    assert repair(store, TABLE, [SHOWN], OrphanUploads(store, "lake/"), STARTED) is None


def blocks_shown(store: Bucket) -> list[int]:
    """The block of each version."""
    bodies = [store.objects[f"{LOG}{number:020d}.json"] for number in range(version(store) + 1)]
    return [action.version for body in bodies for action in decode_commit(body) if isinstance(action, Transaction)]


@each("name", ["list", "create"])
def test_a_session_paused_at_the_log_of_its_close_never_goes_back(name: str) -> None:
    store = Bucket()
    first = writer(store, 1, publishers=[SHOWN])
    land(first, store, 0, 100)
    first.commit([FIRST])

    def others_sync(call: S3Call) -> None:
        if name_of(call) == name:
            store.hook = None
            synced(store, 2, [SHOWN])

    store.hook = others_sync
    with pytest.raises(Fenced, match="sync id 2"):
        first.close()

    assert paths(store) == finals(store)
    assert len(paths(store)) == 2
    assert blocks_shown(store) == sorted(blocks_shown(store))


@each("ends", [True, False])
def test_a_session_paused_at_the_log_of_a_merge_never_goes_back(ends: bool) -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    first, second = writer(store, 2, publishers=[SHOWN]), writer(store, 3, publishers=[SHOWN])
    newest = []

    def take_over(call: S3Call) -> None:
        """While the first session has merged and not published, the second one finishes that and merges on."""
        if name_of(call) == "create" and call.key.startswith(LOG):
            store.hook = None
            newest.append(merged(store, second))
            if ends:
                second.close()

    store.hook = take_over
    with pytest.raises(Fenced, match="sync id 3"):
        merged(store, first)

    assert paths(store) == set(newest) == finals(store)
    assert blocks_shown(store) == sorted(blocks_shown(store))


@each("fault", [Fate.LOST_BEFORE, Fate.LOST_AFTER])
def test_a_put_without_an_answer_is_looked_at(fault: Fate) -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    made = writer(store, 2, publishers=[SHOWN])
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash="2")])
    struck: list[str] = []

    def strike(call: S3Call) -> Fate | None:
        if name_of(call) == "create" and not struck and call.key.startswith(LOG):
            struck.append(call.key)
            return fault
        return None

    store.hook = strike
    made.close()

    assert version(store) == 1
    assert paths(store) == finals(store)


def test_the_log_of_a_table_that_was_removed_does_not_count_as_newer() -> None:
    store = Bucket()
    for sync_id in (1, 2, 3):
        synced(store, sync_id, [SHOWN])
    for key in [key for key in store.objects if not key.startswith(LOG)]:
        store.objects.pop(key)
    time.sleep(0.002)  # nobody makes a table anew within a millisecond
    made = writer(store, 4, publishers=[SHOWN])
    land(made, store, 0, 110)
    made.commit([TableCheckpoint(110, "other")])
    made.close()

    assert paths(store) == finals(store)
    assert len(paths(store)) == 1
    found = log_of(store)
    assert found is not None
    assert [(add.size, add.stats) for add in found.adds.values()] == [(11, '{"numRecords":11}')], "although its key is an earlier one"


def test_a_log_of_another_table_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    store = Bucket()
    store.create(f"{LOG}{0:020d}.json", encode_commit([Transaction("another table", 1), Add("x.parquet", {}, 1, 1, True)]))
    before = {key: body for key, body in store.objects.items() if key.startswith(LOG)}
    synced(store, 1, [SHOWN])
    synced(store, 2)

    assert {key: body for key, body in store.objects.items() if key.startswith(LOG)} == before
    assert "holds the Delta log of another table or program, which is never overwritten" in caplog.text


@each("damage", ["a gap", "bytes", "a checkpoint"])
def test_a_damaged_log_is_left_alone_and_the_sync_goes_on(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    store = Bucket()
    for sync_id in range(1, 13):
        synced(store, sync_id, [SHOWN])
    store.objects.pop(f"{CHAIN}hint.json")
    if damage == "a gap":
        store.objects.pop(f"{LOG}{10:020d}.checkpoint.parquet")
        store.objects.pop(f"{LOG}{5:020d}.json")
    else:
        name = f"{10:020d}.checkpoint.parquet" if damage == "a checkpoint" else f"{11:020d}.json"
        store.objects[LOG + name] = b"{"
    synced(store, 13, [SHOWN])

    assert "Remove that folder; the next sync or `repair` writes it again" in caplog.text
    assert kinds(store)[-1] == "Close"


def test_others_who_commit_all_the_time_are_a_transient_error() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    made = writer(store, 2, publishers=[SHOWN])
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash="2")])

    def interfere(call: S3Call) -> None:
        if name_of(call) == "create" and call.key.startswith(LOG):
            hook, store.hook = store.hook, None
            optimized(store)
            store.hook = hook

    store.hook = interfere
    with pytest.raises(TransientError, match=r"Delta log of table shop\.users"):
        made.close()


def test_what_a_checkpoint_covers_is_cleaned_up_after_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CLEAN_UP_EVERY", 10)
    store, day = Bucket(), datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(36):
        now = day + number * timedelta(hours=12)
        before = set(store.objects)
        synced(store, number + 1, [DeltaTable(clock=lambda now=now: now)])  # type: ignore[misc]
        for key in store.objects.keys() - before:
            store.memory.date(key, now)
    left = sorted(key.removeprefix(LOG) for key in store.objects if key.startswith(LOG))

    assert left[:2] == [f"{10:020d}.checkpoint.parquet", f"{10:020d}.json"]
    assert [name for name in left if name.endswith(".json")] == [f"{number:020d}.json" for number in range(10, 36)]
    assert json.loads(store.objects[f"{LOG}_last_checkpoint"])["version"] == 30
    assert paths(store) == finals(store)


def merged(store: Bucket, made: TableWriter) -> str:
    """One file in place of all the table has; its key."""
    made.open()
    file = FileEntry.staged(
        FileKind.FINAL, store.stage(f"lake/users/f-{made.next_token()}.parquet", b"m"), WrittenFile(1, statistics=UNBOUNDED)
    )
    made.merge([file], made.live_files().of(FileKind.FINAL, FileKind.DELTA), 9)
    return file.key


def test_a_merge_is_published_once() -> None:
    store = Bucket()
    synced(store, 1, [SHOWN])
    made = writer(store, 2, publishers=[SHOWN])
    store.forget()
    key = merged(store, made)
    assert paths(store) == {key}
    made.close()

    assert delta_calls(store) == ["get", "create"], "none at the close"
