"""Forgetting of rows by a field whose type has changed, so that it has several columns: by the values of any of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sync.forgetful_lake import MARK, NUMBER, WAITING, ForgetfulLake
from unit_tests.sync.logged_lake import all_records
from unit_tests.sync.shop_lake import STREAMS, ShopLake

MODES = ("append", "append_dedup")
FLAT, PLAIN = {"flattening": "Root level flattening"}, {"compression": {"compression_type": "No Compression"}}
TEXTS: list[dict[str, Any]] = [{"format_type": "JSONL", **PLAIN}, {"format_type": "CSV", **FLAT, **PLAIN}]
NUMBERS, DAYS, FLAGS = {"type": "integer"}, {"type": "string", "format": "date"}, {"type": "boolean"}
WORDS = {"type": "string"}
FIVE = NUMBER + 5


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    lake = ForgetfulLake(s3_settings, tmp_path, options={"publish": {"delta": True}})
    lake.keep_versions()
    return lake


def go(lake: ForgetfulLake, mode: str, of: dict[str, Any], names: Iterable[tuple[int, Any]], **other: Any) -> None:
    lake.go(mode, ({"id": number, "name": name, "tags": []} for number, name in names), properties={"name": of}, **other)


def changed(lake: ForgetfulLake, mode: str) -> None:
    """Syncs after which a field has a column of texts and one of numbers, and rows of both that wait for a merge."""
    go(lake, mode, WORDS, [(1, MARK), (2, "two"), (3, "three")])
    go(lake, mode, NUMBERS, [(4, 4), (5, FIVE)])
    lake.options = {**lake.options, "tables": {**lake.options.get("tables", {}), **WAITING}}
    go(lake, mode, WORDS, [(6, f"{FIVE}"), (7, MARK)])
    go(lake, mode, NUMBERS, [(8, FIVE), (9, 9)])


def numbers(lake: ForgetfulLake, *kinds: FileKind) -> list[int]:
    return sorted({row["id"] for kind in kinds for row in lake.rows_of(kind)})


def left(lake: ForgetfulLake) -> list[int]:
    """The rows of the table, those that wait included; raw rows have to be the same."""
    return numbers(lake, FileKind.FINAL, FileKind.DELTA)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("wanted", "gone"),
    [
        ([{"name": MARK}], [1, 7]),
        ([{"name": FIVE}], [5, 6, 8]),
        ([{"name": f"{FIVE}"}], [5, 6, 8]),
        ([{"name": MARK}, {"name": f"{FIVE}"}], [1, 5, 6, 7, 8]),
        ([{"name": MARK, "id": 7}], [7]),
    ],
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "no raw"])
def test_rows_are_found_by_a_value_of_either_type(
    lake: ForgetfulLake, mode: str, wanted: list[dict[str, Any]], gone: list[int], raw: bool
) -> None:
    lake.options = {**lake.options, "tables": {"raw_tables": raw}}
    changed(lake, mode)
    record = lake.forget(*wanted)
    assert left(lake) == [number for number in range(1, 10) if number not in gone]
    assert record["rows"]["final"] + record["rows"]["waiting"] == len(gone)
    assert record["rows"]["raw"] == (len(gone) if raw else 0)
    if len(wanted) > 1:
        assert lake.holding() == []
    lake.check()
    lake.check_delta()
    go(lake, mode, WORDS, [(10, "ten")])
    if raw:
        lake.rebuild()
        assert left(lake) == [number for number in range(1, 11) if number not in gone]
    lake.check()


@pytest.mark.parametrize("mode", MODES)
def test_a_value_has_to_fit_one_of_the_types(lake: ForgetfulLake, mode: str) -> None:
    go(lake, mode, NUMBERS, [(1, 77), (2, NUMBER)])
    go(lake, mode, DAYS, [(3, "2026-01-01"), (4, "2026-01-02")])
    go(lake, mode, FLAGS, [(5, True)])
    before = sorted(lake.versions())
    with pytest.raises(ConfigError, match="a value of name does not fit the type of its column") as refused:
        lake.forget({"name": 77}, {"name": MARK})
    assert MARK not in refused.value.message
    assert sorted(lake.versions()) == before
    lake.forget({"name": NUMBER}, {"name": "2026-01-02"}, {"name": True})
    assert left(lake) == [1, 3]
    lake.check()


def left_as_sent(lake: ForgetfulLake) -> list[int]:
    """The rows of the table in any format, by its raw rows."""
    rows = sorted(json.loads(row["_airbyte_data"])["id"] for row in lake.rows_of(FileKind.RAW))
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == len(rows)
    return rows


@pytest.mark.parametrize("form", TEXTS, ids=["jsonl", "csv"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("types", [(WORDS, NUMBERS), (NUMBERS, WORDS)], ids=["texts first", "numbers first"])
def test_rows_of_text_files_are_found_by_either_type(
    lake: ForgetfulLake, form: dict[str, Any], mode: str, types: list[dict[str, Any]]
) -> None:
    lake.options = {}
    parts: dict[str, list[tuple[int, Any]]] = {WORDS["type"]: [(1, MARK), (2, "two")], NUMBERS["type"]: [(3, FIVE), (4, 4)]}
    for of in types:
        go(lake, mode, of, parts[of["type"]])
    lake.format = form
    go(lake, mode, types[1], [(5, FIVE), (6, MARK), (7, "nine")])
    lake.forget({"name": MARK})
    assert left_as_sent(lake) == [2, 3, 4, 5, 7]
    lake.forget({"name": FIVE})
    assert left_as_sent(lake) == [2, 4, 7]
    assert lake.holding() == []
    lake.check()
    lake.format = {"format_type": "Parquet"}
    go(lake, mode, WORDS, [(8, "eight")])
    lake.check()


@pytest.mark.parametrize(
    "form", [{"format_type": "Avro", "compression_codec": {"codec": "no compression"}}, TEXTS[0]], ids=["avro", "jsonl"]
)
@pytest.mark.parametrize("mode", MODES)
def test_files_of_other_formats_from_before(lake: ForgetfulLake, form: dict[str, Any], mode: str) -> None:
    lake.options, lake.format = {}, form
    go(lake, mode, WORDS, [(1, MARK), (2, "two")])
    go(lake, mode, NUMBERS, [(3, FIVE), (4, 4)])
    if mode == "append":
        lake.format = {"format_type": "Parquet"}
        go(lake, mode, NUMBERS, [(5, FIVE), (6, 9)])
        go(lake, mode, WORDS, [(7, MARK), (8, "eight")])
    lake.forget({"name": MARK}, {"name": FIVE})
    assert left_as_sent(lake) == ([2, 4] if mode == "append_dedup" else [2, 4, 6, 8])
    assert lake.holding() == []
    lake.check()


@pytest.mark.parametrize("wanted", [{"name": f"{MARK} before"}, {"name": NUMBER}], ids=["text", "number"])
def test_rows_that_only_the_change_log_shows_with_the_value(lake: ForgetfulLake, wanted: dict[str, Any]) -> None:
    lake.options = {"change_log": {"enabled": True, "format": "jsonl", "before_image": "ALL"}, "tables": {"raw_tables": False}}
    go(lake, "append_dedup", WORDS, [(1, f"{MARK} before"), (2, "two")])
    go(lake, "append_dedup", NUMBERS, [(1, NUMBER), (3, 3)])
    go(lake, "append_dedup", WORDS, [(1, f"{MARK} after"), (4, "four")])
    record = lake.forget(wanted)
    assert (record["rows"]["final"], record["rows"]["changes"]) == (1, 3)
    assert [one["new"]["id"] for one in all_records(lake)] == [2, 3, 4]
    assert lake.holding() == []
    lake.check()


@pytest.mark.parametrize("wanted", [{"name": f"{MARK} before"}, {"name": NUMBER}], ids=["text", "number"])
def test_versions_of_a_history(lake: ForgetfulLake, wanted: dict[str, Any]) -> None:
    lake.options = {"tables": {"history": [{"stream": "*"}], "raw_tables": False}}
    go(lake, "append_dedup", WORDS, [(1, f"{MARK} before"), (2, "two")])
    go(lake, "append_dedup", NUMBERS, [(1, NUMBER), (3, 3)])
    go(lake, "append_dedup", WORDS, [(1, f"{MARK} after"), (3, "three")])
    lake.forget(wanted)
    assert lake.holding() == []
    assert numbers(lake, FileKind.CURRENT, FileKind.CLOSED) == left(lake) == [2, 3]
    lake.check()


@pytest.mark.parametrize("mode", MODES)
def test_later_records_with_a_value_of_either_type_are_left_out(lake: ForgetfulLake, mode: str) -> None:
    changed(lake, mode)
    lake.forget({"name": MARK}, {"name": FIVE}, forever=True)
    go(lake, mode, NUMBERS, [(20, FIVE), (21, 21)])
    go(lake, mode, WORDS, [(22, MARK), (23, f"{FIVE}"), (24, "twenty-four")])
    assert left(lake) == [2, 3, 4, 9, 21, 24]
    assert lake.holding() == []


@pytest.mark.parametrize("types", [(WORDS, NUMBERS), (NUMBERS, WORDS)], ids=["texts first", "numbers first"])
def test_later_records_are_left_out_of_text_files(lake: ForgetfulLake, types: list[dict[str, Any]]) -> None:
    lake.options = {}
    for of in types:
        go(lake, "append", of, [(1, 1)])
    lake.format = TEXTS[0]
    go(lake, "append", WORDS, [(2, MARK), (3, FIVE)])
    lake.forget({"name": MARK}, {"name": FIVE}, forever=True)
    go(lake, "append", WORDS, [(4, MARK), (5, FIVE), (6, f"{FIVE}"), (7, "seven")])
    assert left_as_sent(lake) == [1, 1, 7]
    assert lake.holding() == []


def test_rows_hang_on_values_of_either_type(s3_settings: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ShopLake(s3_settings, tmp_path)
    lake.keep_versions()
    users, orders = (
        [{"id": NUMBER, "name": MARK}, {"id": 2, "name": "two"}],
        [{"id": 1, "user": MARK, "name": MARK}, {"id": 2, "user": "two"}],
    )
    lake.send({"users": users, "orders": orders})
    for stream, field in (("users", "name"), ("orders", "user")):
        mode, properties = STREAMS[stream]
        monkeypatch.setitem(STREAMS, stream, (mode, {**properties, field: NUMBERS}))
    lake.send({"users": [{"id": NUMBER, "name": FIVE}], "orders": [{"id": 3, "user": FIVE}, {"id": 4, "user": 4}]})
    by_name = [{"stream": "orders", "column": "user", "references": {"stream": "users", "column": "name"}}]
    done = lake.forget_all({"id": NUMBER}, cascade=by_name)
    assert (done["users"]["rows"]["final"], done["orders"]["rows"]["final"]) == (1, 2)
    assert lake.holding() == []


def test_a_recovered_field_that_becomes_the_key(lake: ForgetfulLake) -> None:
    go(lake, "append", NUMBERS, [(1, 1), (2, NUMBER)])
    go(lake, "append", WORDS, [(3, MARK), (4, "four")])
    go(lake, "append_dedup", WORDS, [(5, MARK), (6, "six")], key=["name"])
    lake.forget({"name": MARK}, {"name": NUMBER})
    assert left(lake) == [1, 4, 6]
    assert lake.holding() == []
    lake.check()
