"""A connector that dies: whatever the moment, the next sync ends with every row exactly once and nothing half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from unit_tests.lake.deaths import DYING, deaths
from unit_tests.lake.lake import LARGE, Lake
from unit_tests.lake.memory_bucket import Crash, Fate
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

CHECKPOINTS = 3
ROWS_PER_CHECKPOINT = 50
CATALOG = catalog(stream())


@pytest.fixture
def lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Syncs that commit every checkpoint by itself, and at once."""
    monkeypatch.setattr("destination_s3_spark.sync.sync.LOOK_EVERY_S", 0)
    lake.limits = replace(LARGE, batch_bytes=1)
    return lake


def ids_of(*checkpoints: int) -> list[int]:
    return [number * ROWS_PER_CHECKPOINT + row for number in checkpoints for row in range(ROWS_PER_CHECKPOINT)]


def checkpoint(number: int) -> bytes:
    """The records of one checkpoint and its STATE. The source always sends the same ones for the same number."""
    return b"".join([*users(ids_of(number)), state(number)])


def in_turn(lake: Lake, numbers: Iterable[int]) -> Iterator[bytes]:
    """These checkpoints, each when the one before it was acknowledged."""
    before = len(lake.states)
    for count, number in enumerate(numbers, start=1):
        yield checkpoint(number)
        yield from lake.silence(before + count)


def rest(lake: Lake) -> Iterator[bytes]:
    """What the source sends when it starts again behind the last STATE that came back."""
    cursors = lake.cursors()
    yield from in_turn(lake, range(cursors[-1] + 1 if cursors else 0, CHECKPOINTS))
    yield complete()


@pytest.mark.parametrize("fate", DYING)
def test_after_a_death_at_any_call_every_row_is_there_exactly_once(lake: Lake, fate: Fate) -> None:
    commits: set[int] = set()
    for call in deaths(lake, lambda: lake.sync(CATALOG, rest(lake)), fate):
        commits.add(len(lake.states))
        assert lake.cursors() == list(range(len(lake.states)))
        lake.verify()
        lake.sync(CATALOG, rest(lake))
        lake.verify_at_rest()
        assert lake.ids() == ids_of(*range(CHECKPOINTS)), call
    assert commits == {*range(CHECKPOINTS + 1)}, "a death in each commit"


def dying_sync(lake: Lake, *numbers: int) -> None:
    """A sync of these checkpoints that dies when all of them were acknowledged."""

    def blocks() -> Iterator[bytes]:
        yield from in_turn(lake, numbers)
        lake.memory.hook = lambda _: Fate.CRASH_BEFORE
        yield complete()

    with pytest.raises(Crash):
        lake.sync(CATALOG, blocks())
    lake.memory.hook = None


def keep_versions(lake: Lake) -> None:
    """Releases of Ceph before 19 grant `If-None-Match` in buckets that keep versions, and do not say so for older objects."""
    lake.memory.versioning = "Enabled"
    lake.memory.has_conditions, lake.memory.tells_null = (lambda _: False), False


@pytest.mark.parametrize("versioned", ["from the start", "after a sync"])
def test_a_killed_sync_loses_no_row_where_the_store_overwrites_blocks(lake: Lake, versioned: str) -> None:
    lake.options = {"publish": {"delta": True}}
    if versioned == "after a sync":
        lake.sync(CATALOG, [checkpoint(0), complete()])
    blocks = blocks_of(lake)
    keep_versions(lake)
    dying_sync(lake, 1, 2)
    # Another sync that died as soon as it had overwritten the first block.
    lake.memory.put(min(blocks_of(lake) - blocks), b"overwritten")
    lake.sync(CATALOG, [checkpoint(3), complete()])

    assert lake.ids() == ids_of(*([0] if versioned == "after a sync" else []), 1, 2, 3)
    assert not overwritten(lake)


def test_a_sync_with_an_old_hint_overwrites_nothing_that_the_store_lets_it(lake: Lake) -> None:
    """The hint is one of two syncs before: a failure to write it is only logged."""
    lake.options = {"publish": {"delta": True}}
    keep_versions(lake)
    lake.sync(CATALOG, [checkpoint(0), complete()])
    (hint,) = [key for key in lake.memory.objects if key.endswith("/hint.json")]
    old = lake.memory.objects[hint]
    lake.sync(CATALOG, [checkpoint(1), complete()])
    lake.memory.put(hint, old)
    lake.sync(CATALOG, [checkpoint(2), complete()])

    assert lake.ids() == ids_of(0, 1, 2)
    assert not overwritten(lake)


def blocks_of(lake: Lake) -> set[str]:
    return {key for key in lake.memory.objects if "/chain/0" in key}


def overwritten(lake: Lake) -> set[str]:
    """The names of objects with older versions, except for those that are written again and again."""
    versions = lake.bucket.server.client().list_object_versions(Bucket=lake.bucket.name)["Versions"]
    names = {version["Key"].rpartition("/")[2] for version in versions if not version["IsLatest"]}
    return names - {"hint.json", "manifest", "README.md", "schema.json"}
