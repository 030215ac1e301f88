"""A connector that dies in a merge: readers see whole tables, old or new, and `repair` or the next sync clears up what is left over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from destination_s3_spark import tables
from unit_tests.cases import each
from unit_tests.lake.deaths import DYING, deaths
from unit_tests.lake.histories import visible
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, download, read_pyarrow

FIELDS: JsonObject = {
    "id": {"type": "integer"},
    "round": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
}
STREAM = stream(schema={"type": "object", "properties": FIELDS}, mode="append_dedup", primary_key=[["id"]], cursor_field=["round"])
FINAL_ROOT = f"{BUCKET_PATH}/shop/users/"
Table: TypeAlias = list[tuple[int, int]]
"""(id, round it was last sent in) of each row, sorted."""


def is_block_of_merge(call: S3Call, has_landed: bool) -> bool:
    """Whether the call creates the first block after a run has become visible."""
    return has_landed and call.action == "PutObject" and "/chain/0" in call.key


COMPLETE = "CompleteMultipartUpload"
TOMBSTONES = "/tombstones/"
MOMENTS: dict[str, tuple[Callable[[S3Call, bool], bool], Fate]] = {
    "while it merges": (lambda call, _: call.action == "CreateMultipartUpload" and FINAL_ROOT in call.key, Fate.CRASH_BEFORE),
    "before the block": (is_block_of_merge, Fate.CRASH_BEFORE),
    "after the block": (is_block_of_merge, Fate.CRASH_AFTER),
    "between completes": (lambda call, _: call.action == COMPLETE and TOMBSTONES in call.key, Fate.CRASH_BEFORE),
    "after the completes": (lambda call, _: call.action == COMPLETE and FINAL_ROOT in call.key, Fate.CRASH_AFTER),
    "before the deletes": (lambda call, _: call.action == "DeleteObjects", Fate.CRASH_BEFORE),
}
COMPLETED_BY_THEN = {"between completes": FINAL_ROOT, "after the completes": TOMBSTONES}
"""The other file of a merge's two, whose completion the death waits for. They are completed side by side."""
COMMITTED = ("after the block", "between completes", "after the completes", "before the deletes")
"""The moments after which the merge is finished by whoever comes next."""
VISIBLE = ("after the completes", "before the deletes")
"""Those after which all new files are there; the manifest comes later."""
LISTED = ("before the deletes",)


@dataclass(frozen=True, slots=True)
class Death:
    """What readers saw after a kill: by folder, by manifest, by the chain and through the package; and then after `repair`.

    `old` and `new`: both tables.
    """

    old: Table
    new: Table
    folder: list[tuple[int, int]]
    manifest: Table
    chain: Table
    package: Table
    repaired: dict[str, Table]
    said: str
    left_over: list[str]


def messages(number: int) -> list[bytes]:
    """Two rows that change in every round, one that never does, one that is new, and the deletion of the one that was."""
    ids = [1, 2, 100 + number] if number else [1, 2, 3, 100]
    gone = [record({"id": 99 + number, "round": number, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"})] if number else []
    return [*(record({"id": one, "round": number}) for one in ids), *gone, state(number), complete()]


def table_after(number: int) -> Table:
    return [(1, number), (2, number), (3, 0), (100 + number, number)]


def as_table(rows: list[Row]) -> Table:
    return sorted((row["id"], row["round"]) for row in rows)


def wait_for_completion(lake: Lake, before: Collection[str], key_contains: str) -> None:
    deadline = time.monotonic() + 60
    while not any(key_contains in key for key in lake.memory.objects if key not in before):
        assert time.monotonic() < deadline, f"no file of {key_contains} was completed"
        time.sleep(0.01)


def killed_sync(lake: Lake, moment: str, number: int) -> None:
    is_reached, fate = MOMENTS[moment]
    before, acknowledged, reached = lake.memory.objects.keys(), len(lake.states), list[S3Call]()

    def hook(call: S3Call) -> Fate | None:
        has_landed = any("/delta/" in key for key in lake.memory.objects.keys() - before)
        if reached or not is_reached(call, has_landed):
            return None
        reached.append(call)
        if moment in COMPLETED_BY_THEN:
            wait_for_completion(lake, before, COMPLETED_BY_THEN[moment])
        return fate

    lake.memory.hook = hook
    with pytest.raises(Crash):
        lake.sync(catalog(STREAM), messages(number))
    lake.memory.hook = None
    assert len(lake.states) == acknowledged + 1, "the rows were committed before they were merged"


def look(lake: Lake, merged: int, number: int) -> Death:
    lake.verify()
    folder, chain, shown, package = by_folder(lake), as_table(lake.rows()), by_manifest(lake), by_package(lake)
    repaired = lake.connector().run("repair")
    assert repaired.exit_code == 0, repaired.stderr
    lake.verify()
    left_over = [*lake.bucket.open_uploads(), *(key for key in lake.bucket.list_keys() if "/scratch/" in key)]
    now = {"folder": by_folder(lake), "manifest": by_manifest(lake), "package": by_package(lake)}
    return Death(table_after(merged), table_after(number), folder, shown, chain, package, now, repaired.text, left_over)


def by_folder(lake: Lake) -> Table:
    return as_table(visible(lake, "shop")["users"])


def by_manifest(lake: Lake) -> Table:
    """The rows of the files that the manifest lists."""
    return as_table(read_pyarrow(download(lake.bucket, lake.manifest() or [], lake.directory / "manifest")))


def by_package(lake: Lake) -> Table:
    """The rows as Python programs get them."""
    return as_table(tables.read(lake.raw_config(), "users", "shop").to_table(columns=["id", "round"]).to_pylist())


@pytest.fixture(scope="module")
def died(make_lake: Callable[[], Lake]) -> dict[str, Death]:
    """A table whose every sync dies in its merge, each at another moment; the last one ends well."""
    lake = make_lake()
    lake.sync(catalog(STREAM), messages(0))
    found, merged = {}, 0
    for number, moment in enumerate(MOMENTS, start=1):
        killed_sync(lake, moment, number)
        found[moment] = look(lake, merged, number)
        merged = number if moment in COMMITTED else merged
    last = len(MOMENTS) + 1
    lake.sync(catalog(STREAM), messages(last))
    lake.verify_at_rest()
    assert as_table(lake.rows()) == table_after(last)
    return found


@each("moment", MOMENTS)
def test_a_reader_of_the_manifest_or_the_chain_sees_a_whole_table(died: dict[str, Death], moment: str) -> None:
    death = died[moment]
    assert death.manifest == (death.new if moment in LISTED else death.old)
    assert death.package == (death.new if moment in VISIBLE else death.old)
    assert death.chain in (death.old, death.new)


@each("moment", MOMENTS)
def test_a_reader_of_the_folder_sees_committed_rows_only_and_misses_none(died: dict[str, Death], moment: str) -> None:
    death = died[moment]
    assert set(death.folder) <= {*death.old, *death.new}
    assert {1, 2, 3} <= {key for key, _ in death.folder}


@each("moment", MOMENTS)
def test_repair_finishes_a_merge_that_was_committed_and_takes_back_one_that_was_not(died: dict[str, Death], moment: str) -> None:
    death = died[moment]
    assert death.repaired == dict.fromkeys(("folder", "manifest", "package"), death.new if moment in COMMITTED else death.old)
    assert death.left_over == []
    assert "shop.users" in death.said


@pytest.mark.parametrize("fate", DYING)
def test_a_death_at_any_call_leaves_a_whole_table_and_repair_ends_it(lake: Lake, fate: Fate) -> None:
    lake.sync(catalog(STREAM), messages(0))
    merges, endings = len(lake.chain().events("MergeData")), set[tuple[bool, bool]]()
    for call in deaths(lake, lambda: lake.sync(catalog(STREAM), messages(1)), fate):
        is_acknowledged, is_merged = len(lake.states) > 1, len(lake.chain().events("MergeData")) > merges
        endings.add((is_acknowledged, is_merged))
        death = look(lake, 0, 1)
        whole = (death.old, death.new)
        assert (death.manifest in whole, death.package in whole, death.chain in whole) == (True, True, True), call
        assert set(death.folder) <= {*death.old, *death.new}, call
        assert {1, 2, 3} <= {key for key, _ in death.folder}, call
        assert death.repaired == dict.fromkeys(("folder", "manifest", "package"), death.new if is_merged else death.old), call
        assert death.left_over == [], call
        lake.sync(catalog(STREAM), [complete()] if is_acknowledged else messages(1))
        lake.verify_at_rest()
        assert as_table(lake.rows()) == death.new, call
    assert endings == {(False, False), (True, False), (True, True)}, "deaths before the commit of the rows, and before and after the merge"
