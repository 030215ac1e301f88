"""Forgetting of rows of tables with a change log: no event tells of them any more, and all others are as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.change_log.manifest import LogKind
from destination_s3_spark.change_log.reading import Interval
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, ForgetfulLake, forgotten_wherever_it_dies, person, somebody
from unit_tests.sync.logged_lake import all_records, change_log, manifests

ONLY_IN_THE_LOG = {"mail": f"{MARK}2@example.org"}
FORMATS = ("replicant_csv", "replicant_json", "jsonl", "parquet")
IMAGES: list[Mapping[str, Any]] = [
    {"before_image": "KEY", "after_image": "UPDATED"},
    {"before_image": "ALL", "after_image": "UPDATED", "include_header": True},
    {"before_image": "ALL", "after_image": "ALL"},
]


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    lake = ForgetfulLake(s3_settings, tmp_path, options={"change_log": {"enabled": True, "format": "jsonl"}})
    lake.keep_versions()
    return lake


def of_others(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in found if str(NUMBER) not in repr(record) and MARK not in repr(record)]


def replayed(found: list[dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for record in found:
        key = json.dumps(record["key"], default=str)
        if record["op"] == "D":
            rows.pop(key)
        else:
            rows[key] = {**rows.get(key, {}), **record["new"]}
    return rows


def lives(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [*(somebody(number) for number in range(20)), person(1)])
    lake.go("append_dedup", [person(2), somebody(3, 2), person(3), somebody(30)])
    lake.go("append_dedup", [person(4, _ab_cdc_deleted_at="2026-01-01T00:00:00Z"), somebody(4, 2)])
    lake.go("append_dedup", [person(5), {**somebody(5, 2), "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("wanted", "images"), [*product([ONLY_IN_THE_LOG], IMAGES), *product([{"id": NUMBER}], IMAGES)])
def test_no_event_of_a_forgotten_person_stays(lake: ForgetfulLake, form: str, images: Mapping[str, Any], wanted: dict[str, Any]) -> None:
    lake.options = {"change_log": {"enabled": True, "format": form, **images}, "tables": {"raw_tables": "id" in wanted}}
    lives(lake)
    before, described = all_records(lake), manifests(lake)
    forgotten = lake.forget(wanted)
    assert lake.holding() == []
    assert all_records(lake) == of_others(before)
    redacted = [sum(file.redacted for file in manifest.files) for manifest in manifests(lake)]
    assert redacted == [1, 2, 1, 1]
    assert forgotten["rows"]["changes"] == sum(redacted)
    assert [one.operation_count for one in manifests(lake)] == [one.operation_count for one in described]
    lake.check()

    lake.go("append_dedup", [somebody(7, 2)])
    assert {row["mail"] for row in replayed(all_records(lake)).values()} == {row["mail"] for row in lake.rows_of()}
    assert lake.holding() == []
    lake.check()


@pytest.mark.parametrize("wanted", [{"id": NUMBER}, {"mail": f"{MARK}1@example.org"}], ids=["by id", "by an earlier mail"])
def test_groups_of_other_keys_and_of_the_same_offset_keep_their_order(lake: ForgetfulLake, wanted: dict[str, Any]) -> None:
    lake.go("append_dedup", [somebody(1), somebody(2), person(1)], key=("price",))
    lake.go("append_dedup", [somebody(2, 2), person(2)], key=("price",))
    lake.rebuild()
    lake.go("append_dedup", [somebody(2, 3), person(3)])
    lake.go("append_dedup", [somebody(3, 3), somebody(4)])
    before, groups = all_records(lake), change_log(lake).groups
    assert len({group.offset for group in groups}) < len(groups)
    lake.forget(wanted)
    lake.forget({"id": 4})
    assert lake.holding() == []
    assert all_records(lake) == [record for record in of_others(before) if record["new"].get("id") != 4]
    lake.check()


def test_upserts_are_redacted_too(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [*(somebody(number) for number in range(20)), person(1)], cdc=False)
    lake.go("append_dedup", [person(2), somebody(3, 2)], cdc=False)
    assert [manifest.kind for manifest in manifests(lake)] == [LogKind.SNAPSHOT, LogKind.UPSERTS]
    before = all_records(lake)
    lake.forget({"mail": f"{MARK}2@example.org"})
    assert lake.holding() == []
    assert all_records(lake) == of_others(before)


def test_rows_of_a_snapshot_keep_their_numbers_when_others_are_forgotten_later(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [somebody(number) for number in range(8)])
    before = all_records(lake)
    for number in (1, 5, 0, 7):
        lake.forget({"id": number})
    assert all_records(lake) == [before[number] for number in (2, 3, 4, 6)]
    [(file,)] = [manifest.files for manifest in manifests(lake)]
    assert (file.rows, file.redacted, file.gone) == (4, 4, (0, 1, 5, 7))
    folder = change_log(lake)
    assert [record["key"]["id"] for record in folder.records(manifests(lake)[0], Interval(first=5))] == [4, 6]


def test_rows_with_keys_that_the_log_does_not_tell_apart_are_refused(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [{**person(1), "id": "word"}, {**somebody(1), "id": "other"}])
    with pytest.raises(ConfigError, match="key that does not fit"):
        lake.forget({"mail": f"{MARK}1@example.org"})


@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    lives(lake)
    before = all_records(lake)
    forgotten_wherever_it_dies(lake, start)
    assert all_records(lake) == of_others(before)
