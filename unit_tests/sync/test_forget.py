"""Forgetting of rows: afterwards no byte under the bucket path has them, in no version of an object, and all other rows are there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.forgetting.course import Forgetting
from destination_s3_spark.tables.updates.steps import Update
from unit_tests.lake.memory_bucket import Refusal
from unit_tests.lake.messages import record, state
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import (
    MARK,
    NUMBER,
    SECRET,
    WAITING,
    ForgetfulLake,
    catalog,
    forgotten_wherever_it_dies,
    history,
    person,
    somebody,
)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    return ForgetfulLake(s3_settings, tmp_path)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "no raw"])
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("wanted", [{"mail": f"{MARK}2@example.org"}, {"id": NUMBER}])
def test_no_byte_of_a_forgotten_person_stays(lake: ForgetfulLake, mode: str, raw: bool, wanted: dict[str, Any]) -> None:
    if mode == "append" and "mail" in wanted:
        wanted = {"price": 1.5, "id": NUMBER}
    if mode == "append_dedup" and not raw and "mail" in wanted:
        wanted = {"mail": f"{MARK}4@example.org"}  # which a waiting row still has
    lake.keep_versions()
    lake.options = {"tables": {"raw_tables": raw}, "publish": {"keep_replaced_minutes": 60, "delta": raw}}
    history(lake, mode)
    kinds = {FileKind.FINAL} | ({FileKind.RAW} if raw else set())
    kinds |= {FileKind.DELTA, FileKind.TOMBSTONE} if mode == "append_dedup" else set()
    assert {file.kind for file in lake.live_files().files} == kinds
    assert len(lake.holding()) > len(kinds)
    others = {kind: [row for row in lake.rows_of(kind) if MARK not in repr(row)] for kind in (FileKind.FINAL, FileKind.RAW)}

    dry = lake.live_files()
    assert lake.forget(wanted, dry_run=True) == {}
    assert lake.live_files() == dry
    done = lake.forget(wanted)

    assert lake.holding() == []
    assert {kind: lake.rows_of(kind) for kind in others} == others
    lake.check()
    assert done["rows"]["raw"] == (len([0, 1, 2, 3, 4] if mode == "append_dedup" else [0, 1]) if raw else 0)
    assert MARK not in json.dumps(done)
    assert str(NUMBER) not in json.dumps(done)

    lake.options = {"tables": {"raw_tables": raw}, "publish": {"delta": raw}}
    if raw:
        lake.check_delta()
    lake.go(mode, [somebody(50)])
    assert lake.holding() == []
    lake.check()
    mails = {row["id"]: row["mail"] for row in lake.rows_of()}
    assert mails.keys() == {*range(40), 50} | ({41} if mode == "append_dedup" else set())
    if raw:
        lake.check_delta()
        before = lake.rows_of()
        lake.rebuild()
        assert [row["mail"] for row in lake.rows_of()] == [row["mail"] for row in before]
        lake.check()


def test_a_key_that_names_a_field_twice_is_that_field(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)], key=("id", "id"))
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    assert [row["id"] for row in lake.rows_of()] == [1]


def test_a_table_without_such_rows_is_not_written_to(lake: ForgetfulLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.go("append_dedup", [somebody(1), somebody(2)])
    before = sorted(lake.versions())
    done = lake.forget({"id": NUMBER})
    assert sorted(lake.versions()) == before
    assert set(done["rows"].values()) == {0}
    assert "forgot 0 rows" in capsys.readouterr().out


@pytest.mark.parametrize("mail", ["a", "b"])
def test_rows_whose_key_is_null_or_does_not_fit_are_told_apart(lake: ForgetfulLake, mail: str) -> None:
    others: list[dict[str, Any]] = [{**somebody(1), "id": "word"}, {**somebody(2), "id": None}, somebody(3)]
    unfit = {**person(1), "id": "other" if mail == "a" else None, "mail": mail, "price": 7}
    lake.go("append_dedup", [*others, unfit] if mail == "a" else [others[0], others[2], unfit])
    before = [row["mail"] for row in lake.rows_of() if row["mail"] != mail]
    assert lake.forget({"mail": mail})["rows"]["final"] == 1
    assert [row["mail"] for row in lake.rows_of()] == before
    lake.check()


def test_values_are_found_as_rules_made_them(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1), somebody(1)])
    rules = [{"stream": "users", "column": "mail", "action": "hash"}]
    lake.options = {"tables": {"columns": rules, "hash_secret": SECRET}}
    lake.go("append", [{"id": 8, "mail": f"{MARK}1@example.org"}, somebody(2)])
    assert lake.forget({"mail": f"{MARK}1@example.org"})["rows"]["final"] == 2
    assert [row["id"] for row in lake.rows_of()] == [1, 2]


def test_many_subjects_and_columns_go_at_once(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [somebody(number) for number in range(60)])
    done = lake.forget(
        *({"id": number} for number in range(0, 60, 2)), {"mail": "7@1"}, {"mail": "9@1", "price": 2.25}, {"mail": "11@1", "price": 0}
    )
    assert [row["id"] for row in lake.rows_of()] == [number for number in range(1, 60, 2) if number not in {7, 9}]
    assert {kind: rows for kind, rows in done["rows"].items() if rows} == {"final": 32, "raw": 32}
    lake.check()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"nobody": 1}, "no column of the field 'nobody'"),
        ({"tags": "x"}, "does not hold single values"),
        ({"id": "word"}, "does not fit the type"),
        ({"mail": None}, "a null of 'mail'"),
    ],
)
def test_what_names_no_rows_is_refused(lake: ForgetfulLake, wanted: dict[str, Any], said: str) -> None:
    lake.go("append", [somebody(1)])
    with pytest.raises(ConfigError, match=said) as refused:
        lake.forget(wanted)
    assert "word" not in str(refused.value)


def test_a_table_of_a_sync_that_died_waits_for_the_next_one(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.limits = replace(lake.limits, batch_bytes=1)
    again = record(person(2), emitted_at=2)
    with pytest.raises(SyncError):
        lake.sync(catalog("append_dedup"), [*[again, state(2)] * 3, b"{\n"])
    with pytest.raises(TransientError, match="next sync has ended"):
        lake.forget({"id": NUMBER})
    lake.go("append_dedup", [somebody(2)])
    lake.forget({"id": NUMBER})
    assert lake.holding() == []


@pytest.mark.parametrize("wanted", [{"id": NUMBER}, {"mail": f"{MARK}1@example.org"}])
def test_a_sync_that_exchanges_files_meanwhile_is_named(
    lake: ForgetfulLake, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    lake.options = {"publish": {"keep_replaced_minutes": 0}}
    lake.go("append_dedup", [person(1), somebody(1)])
    searched = Forgetting.searched

    def overtaken(forgetting: Forgetting) -> Update:
        monkeypatch.undo()
        lake.go("append_dedup", [person(2)])
        return searched(forgetting)

    monkeypatch.setattr(Forgetting, "searched", overtaken)
    with pytest.raises(TransientError, match=r"A sync has just written to it\. Try again\."):
        lake.forget(wanted)
    lake.forget({"id": NUMBER})
    assert lake.holding() == []


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_files_of_partitions_and_of_earlier_columns_lose_the_rows(mode: str, lake: ForgetfulLake) -> None:
    lake.options = {"tables": {"partition_by": [{"stream": "users", "column": "group", "transform": "identity"}], **WAITING}}
    data = [{**one, "group": group} for group in ("a", "b") for one in (somebody(1), somebody(2), person(1))]
    lake.keep_versions()
    lake.go(mode, data, key=("id", "group"), properties={"group": {"type": "string"}})
    more = {"group": {"type": "string"}, "later": {"type": "string"}, "born": {"type": "string", "format": "date"}}
    lake.go(mode, [{**one, "later": MARK if one["id"] == NUMBER else "x"} for one in data], key=("id", "group"), properties=more)
    schemas = {file.schema_id for file in lake.live_files().files}
    others = [row for row in lake.rows_of() if MARK not in repr(row)]

    lake.forget({"id": NUMBER, "mail": f"{MARK}1@example.org"})
    assert lake.holding() == []
    assert [(row["id"], row["group"]) for row in lake.rows_of()] == [(row["id"], row["group"]) for row in others]
    assert all(f"={row['group']}/" in key for key, rows in lake.rows_by_key() for row in rows)
    assert schemas == {file.schema_id for file in lake.live_files().files if file.kind is FileKind.RAW}
    lake.check()
    lake.rebuild()
    lake.check()
    assert {(row["id"], row["group"], row["later"]) for row in lake.rows_of()} >= {(1, "a", "x"), (2, "b", "x")}


def test_nothing_is_changed_if_old_versions_may_not_be_listed(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1)])
    before = sorted(lake.versions())
    lake.memory.fail("ListObjectVersions", Refusal(403, "AccessDenied"))
    with pytest.raises(ConfigError, match="s3:ListBucketVersions"):
        lake.forget({"id": NUMBER})
    lake.memory.hook = None
    assert sorted(lake.versions()) == before


def test_a_store_without_versions_has_none_to_delete(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1), somebody(2)])
    lake.memory.forget()
    lake.memory.fail("ListObjectVersions", Refusal(501, "NotImplemented"))
    done = lake.forget({"id": NUMBER})
    assert "ListObjectVersions" in lake.memory.actions()
    assert (done["rows"]["final"], done["oldVersions"]) == (1, 0)
    lake.memory.hook = None
    assert lake.holding() == []
    assert [row["id"] for row in lake.rows_of()] == [2]


@pytest.mark.parametrize(("mode", "soft"), [("append", False), ("append_dedup", False), ("append_dedup", True)])
def test_nothing_is_wrong_with_a_table_that_has_no_merged_rows_left(lake: ForgetfulLake, mode: str, soft: bool) -> None:
    lake.options = {"tables": {"raw_tables": False, **({"cdc_deletion_mode": "soft"} if soft else {})}}
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.go("append_dedup", [person(2)], generation=2, minimum=2)
    lake.go("append_dedup", [person(3)], generation=2)
    if mode == "append":
        lake.go("append", [somebody(2)], generation=3)
    lake.forget({"id": NUMBER}, {"id": 1})
    assert [row["id"] for row in lake.rows_of()] == ([2] if mode == "append" else [])
    lake.check()
    lake.go(mode, [somebody(3), somebody(3)], generation=3)
    lake.check()


def test_executors_run_the_tasks_without_pydantic() -> None:
    modules = ("erasure", "log_search", "search")
    imports = "; ".join(f"import destination_s3_spark.tables.forgetting.{name}" for name in modules)
    subprocess.run([sys.executable, "-c", f"import sys; sys.modules['pydantic'] = None; {imports}"], check=True)


@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    lake.keep_versions()
    lake.options = {"publish": {"keep_replaced_minutes": 60, "delta": start % 2 == 0}}
    history(lake, "append_dedup")

    def source_still_has_it(at: int) -> None:
        if at % 3 == 0:
            lake.go("append_dedup", [person(at)])

    forgotten_wherever_it_dies(lake, start, source_still_has_it)
    assert {row["id"] for row in lake.rows_of()} == {*range(40), 41}
