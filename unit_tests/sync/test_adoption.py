"""Taking over from destination-s3: what it wrote belongs to the table until a refresh removes it, and nothing else is ever touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from unit_tests.lake.histories import StreamSync, sync
from unit_tests.lake.lake import Lake
from unit_tests.lake.outcome import BUCKET_PATH, Outcome

NAMESPACE = "adopted"
OLD_NAMES = ["2026_01_01_1700000000000_0.parquet", "2026_01_01_1700000000000_1.parquet", "2026_01_02_1700086400000_0-1.parquet"]
"""What destination-s3 names its files by default; the last one met another of its name."""
FOREIGN_NAMES = ["2026_01_03_1700000000000_0.parquet", "upload.parquet", "notes.txt"]
"""Objects without destination-s3's metadata, the first of them named like its files."""
GENERATION = {"ab-generation-id": "3"}


def put(lake: Lake, name: str, file: str, metadata: dict[str, str]) -> str:
    key = f"{BUCKET_PATH}/{NAMESPACE}/{name}/{file}"
    lake.bucket.server.client().put_object(Bucket=lake.bucket.name, Key=key, Body=b"PAR1 of destination-s3", Metadata=metadata)
    return key


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A bucket in which destination-s3 wrote and then we did. `old` and `foreign`: the keys that were there, by stream."""

    lake: Lake
    old: dict[str, list[str]]
    foreign: dict[str, list[str]]
    before_refresh: set[str]
    outcomes: list[Outcome]


@pytest.fixture(scope="module")
def taken_over(make_lake: Callable[[], Lake]) -> TakenOver:
    """A sync that appends and begins anew, an interrupted refresh, the sync that completes it, and one that is refused."""
    lake = make_lake()
    names = ("kept", "refreshed", "deduplicated", "refused")
    old = {name: [put(lake, name, file, GENERATION) for file in OLD_NAMES] for name in names}
    foreign = {name: [put(lake, name, file, {}) for file in FOREIGN_NAMES] for name in names}
    # The last one was switched in the middle of its refresh, whose first records are in all files but one.
    old["resumed"] = [put(lake, "resumed", file, GENERATION if file == OLD_NAMES[0] else {"ab-generation-id": "5"}) for file in OLD_NAMES]
    all_foreign = [key for keys in foreign.values() for key in keys if key.endswith(".parquet")]
    connector, untouched = lake.connector(), [*old["refreshed"], *old["refused"], *old["resumed"]]

    first = {"kept": StreamSync([1]), "deduplicated": StreamSync([3, 3], "append_dedup", 5, 5)}
    outcomes = [sync(connector, NAMESPACE, first, 1).expect_success()]
    refresh = StreamSync([3], "append", 5, 5, "INCOMPLETE")
    second = {"kept": StreamSync([2], status="INCOMPLETE"), "refreshed": refresh, "resumed": refresh}
    outcomes.append(sync(connector, NAMESPACE, second, 2).expect_failure("transient_error"))
    before_refresh = set(lake.bucket.list_keys())
    lake.verify(foreign=[*all_foreign, *untouched])
    third = {"kept": StreamSync([4]), "refreshed": StreamSync([4], "append", 5, 5), "resumed": StreamSync([4], "append", 5, 5)}
    outcomes.append(sync(connector, NAMESPACE, third, 3).expect_success())
    lake.verify_at_rest(foreign=[*all_foreign, *old["refused"]])
    outcomes.append(sync(connector, NAMESPACE, {"refused": StreamSync([1], "append_dedup")}, 4).expect_failure("config_error"))
    return TakenOver(lake, old, foreign, before_refresh, outcomes)


def ids(taken: TakenOver, name: str) -> list[int]:
    return taken.lake.ids((NAMESPACE, name))


def test_appending_leaves_the_old_files_and_the_manifest_lists_them(taken_over: TakenOver) -> None:
    assert set(taken_over.old["kept"]) <= set(taken_over.lake.bucket.list_keys())
    chain = taken_over.lake.chains()[NAMESPACE, "kept"]
    assert taken_over.lake.manifest((NAMESPACE, "kept")) == sorted([*taken_over.old["kept"], *chain.final_keys])
    assert ids(taken_over, "kept") == [1, 2, 4]


def test_an_interrupted_refresh_leaves_the_old_files(taken_over: TakenOver) -> None:
    assert set(taken_over.old["refreshed"]) <= taken_over.before_refresh


@pytest.mark.parametrize(("name", "left"), [("refreshed", [3, 4]), ("deduplicated", [3])])
def test_a_refresh_removes_the_old_files(taken_over: TakenOver, name: str, left: list[int]) -> None:
    assert not set(taken_over.old[name]) & set(taken_over.lake.bucket.list_keys())
    assert ids(taken_over, name) == left
    assert taken_over.lake.manifest((NAMESPACE, name)) == sorted(taken_over.lake.chains()[NAMESPACE, name].final_keys)


def test_files_of_a_refresh_that_destination_s3_began_stay_when_it_is_complete(taken_over: TakenOver) -> None:
    chain, keys = taken_over.lake.chains()[NAMESPACE, "resumed"], set(taken_over.lake.bucket.list_keys())
    assert [key for key in taken_over.old["resumed"] if key in keys] == taken_over.old["resumed"][1:]
    assert taken_over.lake.manifest((NAMESPACE, "resumed")) == sorted([*taken_over.old["resumed"][1:], *chain.final_keys])
    assert ids(taken_over, "resumed") == [3, 4]


def test_append_dedup_without_a_refresh_says_what_is_in_the_way_and_takes_nothing(taken_over: TakenOver) -> None:
    outcome = taken_over.outcomes[-1]
    words = ["adopted.refused", f"{len(OLD_NAMES)} files", taken_over.old["refused"][0], "refresh"]
    assert [word for word in words if word not in outcome.error_message] == []
    assert outcome.states == []
    assert set(taken_over.old["refused"]) <= set(taken_over.lake.bucket.list_keys())


def test_objects_of_others_stay_and_are_warned_about_once(taken_over: TakenOver) -> None:
    assert {key for keys in taken_over.foreign.values() for key in keys} <= set(taken_over.lake.bucket.list_keys())
    folder = f"{BUCKET_PATH}/{NAMESPACE}/kept/"
    warnings = [outcome.warnings.count(folder) for outcome in taken_over.outcomes]
    assert warnings == [1, 0, 0, 0]


def test_files_carry_the_metadata_by_which_destination_s3_takes_them_over_again(taken_over: TakenOver) -> None:
    client, bucket = taken_over.lake.bucket.server.client(), taken_over.lake.bucket.name
    for name in ("kept", "refreshed", "deduplicated"):
        for file in taken_over.lake.chains()[NAMESPACE, name].files("final"):
            metadata = client.head_object(Bucket=bucket, Key=file["key"])["Metadata"]
            assert metadata == {"ab-generation-id": str(file["generationId"])}, file["key"]
