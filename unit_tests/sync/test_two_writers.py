"""Two syncs at the same time: of the same table, one wins and the other stops and says so; of different tables, they do not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from destination_s3_spark.errors import Fenced
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import LARGE, Lake
from unit_tests.lake.memory_bucket import Hook, S3Call
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.shop import complete, state, stream, users

AT_ONCE = replace(LARGE, age_s=0.01)
DEDUP: JsonObject = {"mode": "append_dedup", "primary_key": [["id"]]}


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Lake:
    """The bucket as another connection writes to it."""
    return Lake(lake.settings, tmp_path / "other")


def once(action: str, key_contains: str, effect: Callable[[], object]) -> Hook:
    """A hook that lets something happen before the first call of an action for such a key."""
    left = [effect]

    def hook(call: S3Call) -> None:
        if left and call.action == action and key_contains in call.key:
            left.pop()()

    return hook


def test_a_second_writer_of_a_table_fences_the_first(lake: Lake, other: Lake) -> None:
    lake.limits = AT_ONCE

    def blocks() -> Iterator[bytes]:
        yield from [*users([1, 2]), state(2)]
        yield from lake.silence(1)
        other.sync(catalog(stream(sync_id=2)), [*users([11, 12]), state(12), complete()])
        yield from [*users([3, 4]), state(4), complete()]

    with pytest.raises(Fenced, match=r"(?i)two connections") as raised:
        lake.sync(catalog(stream(sync_id=1)), blocks())
    assert "shop.users" in raised.value.message
    assert "sync id 2" in raised.value.message, "the winner is named"
    assert (raised.value.stream and (raised.value.stream.namespace, raised.value.stream.name)) == USERS
    assert (lake.cursors(), other.cursors()) == ([2], [12])
    assert lake.ids() == [1, 2, 11, 12]
    lake.verify()


def test_a_second_writer_that_merges_first_fences_the_first_in_its_merge(lake: Lake, other: Lake) -> None:
    """The second one merges what the first one has landed, runs and all, while the first one is about to read them."""
    second_rows = [*users([3, 4]), state(4), complete()]
    lake.memory.hook = once("GetObject", "/delta/", lambda: other.sync(catalog(stream(sync_id=2, **DEDUP)), second_rows))
    with pytest.raises(Fenced, match=r"(?i)two connections") as raised:
        lake.sync(catalog(stream(sync_id=1, **DEDUP)), [*users([1, 2, 3]), state(3), complete()])
    lake.memory.hook = None

    assert "sync id 2" in raised.value.message
    assert other.cursors() == [4]
    assert lake.cursors() == [3], "its rows were committed, and came in with the winner's merge"
    assert lake.ids() == [1, 2, 3, 4]
    lake.verify()

    other.sync(catalog(stream(sync_id=3, **DEDUP)), [*users([5]), state(5), complete()])
    assert lake.ids() == [1, 2, 3, 4, 5]
    lake.verify_at_rest()


def test_a_writer_paused_at_the_manifest_hides_nothing_of_the_one_that_went_on(lake: Lake, other: Lake) -> None:
    """The first one stands still with the manifest on its way, and the second one begins and ends meanwhile."""
    lake.sync(catalog(stream(sync_id=1)), [*users([1]), state(1), complete()])
    lake.memory.hook = once("PutObject", "/manifest", lambda: other.sync(catalog(stream(sync_id=2)), [*users([3]), state(3), complete()]))
    with pytest.raises(Fenced, match="sync id 2"):
        lake.sync(catalog(stream(sync_id=1)), [*users([2]), state(2), complete()])
    lake.memory.hook = None

    assert other.cursors() == [3]
    assert lake.ids() == [1, 2, 3]
    lake.verify_at_rest()


def test_syncs_of_different_tables_do_not_disturb_each_other(lake: Lake, other: Lake) -> None:
    lake.limits = AT_ONCE

    def blocks() -> Iterator[bytes]:
        yield from [*users([1]), state(1)]
        yield from lake.silence(1)
        other.sync(catalog(stream("orders")), [*users([5], "orders"), state(5, "orders"), complete("orders")])
        yield from [*users([2]), state(2), complete()]

    lake.sync(catalog(stream()), blocks())
    assert (lake.ids(USERS), lake.ids(("shop", "orders"))) == ([1, 2], [5])
    lake.verify_at_rest()
