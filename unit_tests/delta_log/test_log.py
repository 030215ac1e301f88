"""The log on S3: what a fold shows, who wins a version, and what a clean-up leaves."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_s3_spark.delta_log.actions import Action, Metadata, Remove, Transaction
from destination_s3_spark.delta_log.log import KEPT, DeltaLog, DeltaState, UnreadableLog, VersionTaken, commit_hash
from destination_s3_spark.errors import TransientError
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, at_each, name_of
from unit_tests.delta_log.written_log import METADATA, PROTOCOL, ROOT, added, adds_of, begun, commit, in_delta_rs
from unit_tests.lake.memory_bucket import Fate, S3Call

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def state(log: DeltaLog) -> DeltaState:
    found = log.read()
    assert found is not None
    return found


def contents(found: DeltaState) -> list[Action]:
    assert found.protocol is not None
    assert found.metadata is not None
    return [found.protocol, found.metadata, *found.transactions.values(), *found.adds.values()]


def test_no_log_is_none() -> None:
    assert DeltaLog(Bucket(), ROOT).read() is None
    assert DeltaLog(Bucket(), ROOT).newest_commit() is None


def test_a_fold_shows_the_newest_version() -> None:
    log = begun(Bucket(), 3)
    wider = Metadata("m", METADATA.schema_string, [], {})
    log.create(3, body := commit(wider, Transaction("t", 9, 8), Remove("1.parquet", True, 1), added(2, size=11)))

    found = state(log)
    assert (found.version, found.commit, found.checkpoint) == (3, commit_hash(body), None)
    assert (found.protocol, found.metadata) == (PROTOCOL, wider)
    assert found.transactions == {"t": Transaction("t", 9, 8)}
    assert {path: add.size for path, add in found.adds.items()} == {"0.parquet": 10, "2.parquet": 11}
    assert log.newest_commit() == body


def test_a_fold_reads_the_checkpoint_and_later_commits_alone() -> None:
    store = Bucket()
    log = begun(store, 5)
    before = state(log)
    log.write_checkpoint(4, contents(before))
    log.create(5, commit(added(5)))
    store.forget()
    after = state(log)

    assert store.names() == ["list", "get", "get"]
    assert (after.version, after.checkpoint) == (5, 4)
    assert after.adds.keys() == {*before.adds, "5.parquet"}
    assert json.loads(store.objects[f"{log.prefix}_last_checkpoint"]) == {"version": 4, "size": 8}


def test_a_commit_of_another_program_in_between_is_part_of_the_fold() -> None:
    store = Bucket()
    log = begun(store, 2)
    foreign = b'{"commitInfo":{"operation":"OPTIMIZE"}}\n{"remove":{"path":"0.parquet","dataChange":false}}\n'
    store.create(f"{log.prefix}{2:020d}.json", foreign)
    log.create(3, commit(added(3)))

    assert state(log).adds.keys() == {"1.parquet", "3.parquet"}


def test_other_objects_in_the_folder_are_not_read() -> None:
    store = Bucket()
    log = begun(store, 2)
    for name in ("00000000000000000002.json.tmp", "_last_checkpoint", "00000000000000000001.crc", "_commits/00000000000000000005.json"):
        store.put(log.prefix + name, b"?")

    assert state(log).version == 1


@each("lost", [0, 2])
def test_a_gap_is_named(lost: int) -> None:
    store = Bucket()
    log = begun(store, 5)
    del store.objects[f"{log.prefix}{lost:020d}.json"]
    with pytest.raises(UnreadableLog, match=f"its commit {lost} is missing"):
        log.read()


def test_a_torn_commit_is_named() -> None:
    store = Bucket()
    log = begun(store, 2)
    store.objects[f"{log.prefix}{1:020d}.json"] = store.objects[f"{log.prefix}{1:020d}.json"][:-30]
    with pytest.raises(UnreadableLog, match="a commit cannot be read"):
        log.read()


def test_a_torn_checkpoint_and_one_without_commits_are_named() -> None:
    store = Bucket()
    log = begun(store, 2)
    log.write_checkpoint(1, contents(state(log)))
    body = store.objects[f"{log.prefix}{1:020d}.checkpoint.parquet"]
    store.objects[f"{log.prefix}{1:020d}.checkpoint.parquet"] = body[:-10]
    with pytest.raises(UnreadableLog, match="its checkpoint 1 cannot be read"):
        log.read()
    for version in (0, 1):
        del store.objects[f"{log.prefix}{version:020d}.json"]
    with pytest.raises(UnreadableLog, match="a checkpoint and no commits"):
        log.read()


def test_of_two_writers_of_a_version_one_wins() -> None:
    store = Bucket()
    log = begun(store, 1)
    log.create(1, first := commit(added(1), name="first"))
    with pytest.raises(VersionTaken):
        log.create(1, commit(added(1), name="second"))

    assert log.newest_commit() == first
    assert log.holds(1, commit_hash(first))
    assert not log.holds(1, commit_hash(b""))
    assert not log.holds(2, commit_hash(first))


@each("fault", [Fate.LOST_BEFORE, Fate.LOST_AFTER])
def test_a_put_without_an_answer_is_looked_at(fault: Fate) -> None:
    store = Bucket()
    log = begun(store, 1)
    struck: list[str] = []

    def strike(call: S3Call) -> Fate | None:
        if name_of(call) == "create" and not struck:
            struck.append(call.key)
            return fault
        return None

    store.hook = strike
    log.create(1, body := commit(added(1)))
    assert log.newest_commit() == body


def test_a_store_that_never_tells_is_a_transient_error() -> None:
    store = Bucket()
    log = begun(store, 1)
    store.hook = at_each("create", Fate.LOST_BEFORE)
    with pytest.raises(TransientError, match="did not say whether"):
        log.create(1, commit(added(1)))


def test_the_newest_version_has_no_successor() -> None:
    log = begun(Bucket(), 2)
    found = state(log)
    assert log.is_newest(found.version, found.commit)
    log.create(2, commit(added(2)))
    assert not log.is_newest(found.version, found.commit)


def test_a_clean_up_leaves_what_a_reader_needs(tmp_path: Path) -> None:
    store = Bucket()
    log = begun(store, 30)
    found = state(log)
    for version in (9, 19, 29):
        adds = [found.adds[f"{number}.parquet"] for number in range(version + 1)]
        log.write_checkpoint(version, [PROTOCOL, METADATA, Transaction("t", version, 5), *adds])
    for key in store.objects:
        numbered = re.search(r"(\d{20})", key)
        age = 2 * KEPT if numbered is not None and int(numbered[1]) <= 19 else timedelta(0)
        store.memory.date(key, NOW - age)
    log.clean_up(NOW)

    left = sorted(key.removeprefix(log.prefix) for key in store.objects)
    expected = [f"{version:020d}.json" for version in range(19, 30)]
    assert [name for name in left if name.endswith(".json")] == expected, "from the old checkpoint's own commit, without a gap"
    assert [name for name in left if name.endswith(".parquet")] == [f"{version:020d}.checkpoint.parquet" for version in (19, 29)]
    assert state(log).adds.keys() == found.adds.keys() == adds_of(in_delta_rs(store, tmp_path)).keys()
    store.forget()
    log.clean_up(NOW)
    assert store.names() == ["list"]


def test_without_an_old_checkpoint_nothing_is_cleaned_up() -> None:
    store = Bucket()
    log = begun(store, 12)
    log.write_checkpoint(9, contents(state(log)))
    for key in store.objects:
        store.memory.date(key, NOW - KEPT + timedelta(hours=1))
    before = set(store.objects)
    log.clean_up(NOW)
    assert set(store.objects) == before


def test_a_removal_that_is_cut_off_leaves_a_log_that_can_be_read() -> None:
    store = Bucket()
    log = begun(store, 3)
    deleted: list[str] = []
    store.delete = deleted.extend  # type: ignore[method-assign,assignment]
    log.remove()
    assert deleted == sorted(deleted, reverse=True)
    for key in deleted[:-1]:
        del store.objects[key]
        assert state(log).version == len(store.objects) - 1


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=4), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_any_log_folds_to_the_same_files_with_and_without_checkpoints(changes: list[list[tuple[bool, int]]], checkpoints: set[int]) -> None:
    store, expected = Bucket(), set[str]()
    log = DeltaLog(store, ROOT)
    for version, changed in enumerate(changes):
        actions: list[Action] = [PROTOCOL, METADATA] if version == 0 else []
        latest = {number: adds for adds, number in changed}
        for number, adds in latest.items():
            actions.append(added(number) if adds else Remove(f"{number}.parquet", True, 1))
            (expected.add if adds else expected.discard)(f"{number}.parquet")
        log.create(version, commit(*actions))
        found = state(log)
        assert (found.version, set(found.adds)) == (version, expected)
        if version in checkpoints:
            log.write_checkpoint(version, contents(found))
            assert (state(log).checkpoint, set(state(log).adds)) == (version, expected)
