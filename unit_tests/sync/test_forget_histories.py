"""Forgetting of rows of tables with histories: of all versions of a row, in the history that goes on and in those before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, WAITING, ForgetfulLake, forgotten_wherever_it_dies, person, somebody
from unit_tests.tables.publishers.delta_readers import DeltaReaders

WANTED = [{"mail": f"{MARK}1@example.org"}, {"id": NUMBER}]
HISTORY = {"history": [{"stream": "*"}]}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    lake = ForgetfulLake(s3_settings, tmp_path, options={"tables": HISTORY})
    lake.keep_versions()
    return lake


def versions(lake: ForgetfulLake) -> list[dict[str, Any]]:
    return sorted((row for kind in (FileKind.CURRENT, FileKind.CLOSED) for row in lake.rows_of(kind)), key=repr)


def of_others(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if MARK not in repr(row)]


def lives(lake: ForgetfulLake, *, key: tuple[str, ...] = ("id",)) -> None:
    """Syncs after which versions of the person are valid, have ended, and wait."""
    lake.go("append_dedup", [*(somebody(number) for number in range(20)), person(1)], key=key)
    lake.go("append_dedup", [person(2), somebody(3, 2)], key=key)
    lake.go("append_dedup", [person(3, _ab_cdc_deleted_at="2026-01-01T00:00:00Z"), somebody(4, 2)], key=key)
    lake.go("append_dedup", [person(4)], key=key)
    lake.options = {**lake.options, "tables": {**lake.options["tables"], **WAITING}}
    lake.go("append_dedup", [person(5), somebody(5, 2)], key=key)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "no raw"])
@pytest.mark.parametrize("wanted", WANTED)
def test_no_version_of_a_forgotten_person_stays(lake: ForgetfulLake, raw: bool, wanted: dict[str, Any]) -> None:
    lake.options = {"tables": {**HISTORY, "raw_tables": raw}, "publish": {"delta": raw}}
    lives(lake)
    before = versions(lake)
    record = lake.forget(wanted)
    assert lake.holding() == []
    assert versions(lake) == of_others(before)
    assert (record["rows"]["valid versions"], record["rows"]["ended versions"]) == (1, 2)
    lake.check()
    if raw:
        shown = DeltaReaders.of_copy(lake.settings, "lake/airbyte_history/users/", lake.directory).table().to_pyarrow_table()
        assert sorted(shown["_airbyte_raw_id"].to_pylist()) == sorted(row["_airbyte_raw_id"] for row in versions(lake))

    lake.options = {"tables": {**HISTORY, "raw_tables": raw}, "publish": {"delta": raw}}
    lake.go("append_dedup", [somebody(3, 3), somebody(7, 2)])
    assert {(row["id"], row["mail"]) for row in lake.rows_of(FileKind.CLOSED)} >= {(3, "3@1"), (3, "3@2"), (5, "5@1"), (7, "7@1")}
    assert lake.holding() == []
    lake.check()
    if raw:
        lake.rebuild()
        lake.check()


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("key", ["id", "login"])
def test_histories_of_other_keys_or_types_lose_the_versions(lake: ForgetfulLake, wanted: dict[str, Any], key: str) -> None:
    lake.options = {"tables": {**HISTORY, "raw_tables": False}}
    login = {"login": {"type": "string"}}

    def go(by: str, *rows: dict[str, Any]) -> None:
        lake.go("append_dedup", [{**one, "login": f"of {one['id']}"} for one in rows], key=(by,), properties=login)

    go("price", somebody(1), somebody(2), person(1))
    go("price", somebody(2, 2), person(2))
    go(key, somebody(2, 3), person(3))
    go(key, somebody(2, 4), person(4))
    before, files = versions(lake), lake.live(FileKind.CURRENT, FileKind.CLOSED)
    assert {file.history for file in files} == {1, 2}
    lake.forget(wanted)
    assert lake.holding() == []
    assert versions(lake) == of_others(before)
    lake.check()
    go(key, somebody(2, 5))
    lake.check()


def test_no_bound_of_a_history_of_another_key_names_a_forgotten_person(lake: ForgetfulLake) -> None:
    """The footer of a sorted file has its first and last key, and bounds of long texts."""
    lake.options = {"tables": {**HISTORY, "raw_tables": False}, "publish": {"delta": True}}
    long = MARK + "x" * 5_000
    lake.go("append_dedup", [somebody(1), somebody(2), person(1, mail=long)], key=("mail",))
    lake.go("append_dedup", [somebody(2, 2), person(2)])
    assert {file.history for file in lake.live(FileKind.CURRENT, FileKind.CLOSED)} == {1, 2}
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    lake.check()


@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    lives(lake)
    before = versions(lake)
    forgotten_wherever_it_dies(lake, start)
    assert versions(lake) == of_others(before)
