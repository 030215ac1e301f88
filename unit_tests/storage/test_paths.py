"""The templates against destination-s3's own cases in `data/path_and_name_cases.json` (its MIT-licensed test fixtures; origin inside)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.paths import PathTemplate, date_regex, date_text, namespace_folder, safe_characters, stream_folder
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

CASES = json.loads((Path(__file__).parent / "data" / "path_and_name_cases.json").read_text(encoding="utf-8"))
START = datetime(2020, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
TOKEN = 4200017


def template(bucket_path: str = "lake", path: str | None = None, name: str | None = None, sync_id: int = 42) -> PathTemplate:
    return PathTemplate(bucket_path, path, name, START, sync_id, clock=lambda: START + timedelta(milliseconds=1))


def of_case(case: dict[str, Any]) -> PathTemplate:
    return template(case["bucket_path"], case["path_pattern"], case["file_name_pattern"], case.get("sync_id", 0))


@each("case", CASES["render"], ids=lambda case: case["key"][:40])
def test_a_key_is_destination_s3s_key_plus_the_token(case: dict[str, Any]) -> None:
    key = of_case(case).key(StreamId(case["namespace"], case["stream"]), case.get("extension", ""), TOKEN, case["part_number"])
    assert key.count(f"-{TOKEN}") == 1
    assert key.replace(f"-{TOKEN}", "") == case["key"]


@each("case", CASES["match"], ids=lambda case: case["key"])
def test_files_of_destination_s3_are_recognised_with_their_part_number(case: dict[str, Any]) -> None:
    match = of_case(case).key_pattern(StreamId(case["namespace"], case["stream"])).fullmatch(case["key"])
    assert match is not None
    assert int(match["part"]) == case["part_number"]


@each("case", CASES["match_suffix"], ids=lambda case: case["key"])
def test_a_numeric_suffix_of_a_clashing_name_is_recognised(case: dict[str, Any]) -> None:
    pattern = of_case(case).key_pattern(StreamId(None, "any"))
    assert pattern.fullmatch(case["key"])
    assert not pattern.fullmatch(case["key"] + "x")


@each(("name", "expected"), [row[:2] for row in CASES["sanitise_own_computation"]["rows"]])
def test_names_get_destination_s3s_safe_characters(name: str, expected: str) -> None:
    assert safe_characters(name) == expected


@each(("bucket_path", "namespace", "name", "expected"), CASES["legacy_output_prefix"])
def test_legacy_output_prefixes(bucket_path: str, namespace: str | None, name: str, expected: str) -> None:
    assert template(bucket_path, "${NAMESPACE}/${STREAM_NAME}/").final_root(StreamId(namespace, name)) == expected + "/"


@each(("pattern", "expected"), CASES["legacy_file_name"])
def test_outer_blanks_of_a_file_name_go_and_inner_ones_become_underscores(pattern: str, expected: str) -> None:
    key = template("b", "p/", pattern).key(StreamId(None, "s"), ".csv", TOKEN, 0)
    assert key.replace(f"-{TOKEN}", "") == f"b/p/{expected}"


def test_the_defaults_are_destination_s3s() -> None:
    assert template().key(StreamId("ns", "users"), ".parquet", 7, 0) == "lake/ns/users/2020_01_02_1577934245678_0-7.parquet"
    assert template().final_root(StreamId("ns", "users")) == "lake/ns/users/"


@each(
    ("pattern", "expected"),
    [
        ("{part_number}{format_extension}", "3-9.csv.gz"),
        ("{timestamp}{format_extension}", "1577934245679-9.csv.gz"),
        ("{timestamp:millis}{format_extension}", "1577934245679-9.csv.gz"),
        ("{timestamp:micro}{format_extension}", "1577934245679900-9.csv.gz"),
        ("{date:yyyy-MM-dd'T'HH}{format_extension}", "2020-01-02T03-9.csv.gz"),
        ("${STREAM_NAME}_{sync_id}{format_extension}", "users_42-9.csv.gz"),
        ("data.csv.gz", "data-9.csv.gz"),
        ("data.json", "data-9.csv.gz"),
        ("{format_extension}_{part_number}", ".csv.gz_3-9.csv.gz"),
        ("{date}.{part_number}", "2020_01_02.3-9.csv.gz"),
        ("v1.2", "v1.2-9.csv.gz"),
        ("{date}.final", "2020_01_02.final-9.csv.gz"),
        ("Data.JSON", "Data-9.csv.gz"),
        ("{unknown}", "{unknown}-9.csv.gz"),
        ("{format_extension}", "9.csv.gz"),
        ("", "3-9.csv.gz"),
    ],
)
def test_the_token_and_the_extension_are_at_the_end_in_the_place_of_an_extension(pattern: str, expected: str) -> None:
    key = template(path="x/", name=pattern).key(StreamId(None, "users"), ".csv.gz", 9, 3)
    assert key == f"lake/x/{expected}"
    assert re.fullmatch(r".*?(-[0-9]+)?(\.[a-z.]+)?", key)


@each("name", ["2020_01_02", "2020_01_02-1"])
def test_names_of_destination_s3_without_an_extension_are_recognised(name: str) -> None:
    assert template(path="x/", name="{date}").key_pattern(StreamId("n", "s")).fullmatch(f"lake/x/{name}")


@each("pattern", ["{part_number}{format_extension}", "any_filename", "f.json", "{date:dd MMM yy}_{part_number}"])
def test_our_own_keys_are_recognised_whatever_sync_wrote_them(pattern: str) -> None:
    key = template(path="${NAMESPACE}/${STREAM_NAME}/${YEAR}/${UUID}/", name=pattern).key(StreamId("n", "s"), ".parquet", TOKEN, 3)
    later = PathTemplate("lake", "${NAMESPACE}/${STREAM_NAME}/${YEAR}/${UUID}/", pattern, START + timedelta(days=900), 77)
    assert later.key_pattern(StreamId("n", "s")).fullmatch(key)
    assert not later.key_pattern(StreamId("n", "t")).fullmatch(key)


@each(
    ("path", "expected"),
    [
        ("${NAMESPACE}/${STREAM_NAME}/", "lake/n/s/"),
        ("${NAMESPACE}/${STREAM_NAME}_${YEAR}", "lake/n/"),
        ("${YEAR}/${STREAM_NAME}/", "lake/"),
        ("${STREAM_NAME}/${UUID}/", "lake/s/"),
        ("fixed/folder_", "lake/fixed/"),
        ("", ""),
    ],
)
def test_the_final_root_is_the_longest_constant_folder(path: str, expected: str) -> None:
    assert template(path=path).final_root(StreamId("n", "s")) == expected


def test_another_root_replaces_the_templates_and_the_tail_stays() -> None:
    key = template().key(StreamId("ns", "users"), ".parquet", 7, 0, root="lake/ns/users_0a0a0a0a/")
    assert key == "lake/ns/users_0a0a0a0a/2020_01_02_1577934245678_0-7.parquet"
    assert template().key_pattern(StreamId("ns", "users"), root="lake/ns/users_0a0a0a0a/").fullmatch(key)


@each(
    ("bucket_path", "expected"),
    [("a/b", "a/b/"), ("/a//b/", "a/b/"), ("", ""), ("p-${NAMESPACE}", ""), ("a/p-${NAMESPACE}", "a/"), ("a/../b", "a/__/b/")],
)
def test_the_base_is_the_constant_part_of_the_bucket_path(bucket_path: str, expected: str) -> None:
    assert template(bucket_path).base == expected


@each("name", ["..", ".", "../../etc", "a//b", "/", "", "\0", "%2f", "x" * 2000, "ø" * 700, "😀", "a/./b", " "])
@each("namespace", [None, "..", "/", "n" * 1500])
def test_hostile_names_stay_under_the_bucket_path_and_within_1024_bytes(namespace: str | None, name: str) -> None:
    one = template()
    root = one.final_root(StreamId(namespace, name))
    key = one.key(StreamId(namespace, name), ".jsonl.gz", 2**128, 999_999)
    assert key.startswith(root)
    assert root.startswith("lake/")
    assert root != "lake/"
    assert len(key.encode()) <= 1024
    assert not {"", ".", ".."} & set(key.split("/"))


def test_long_names_that_differ_only_at_the_end_stay_apart() -> None:
    assert template().final_root(StreamId(None, "x" * 2000 + "a")) != template().final_root(StreamId(None, "x" * 2000 + "b"))


def test_templates_that_cannot_fit_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="1024"):
        template("é" * 600).final_root(StreamId(None, "s"))


def test_a_namespace_may_be_several_folders_and_a_missing_one_is_none() -> None:
    assert namespace_folder("a/b/") == "a/b"
    assert namespace_folder(None) == ""
    assert stream_folder("/") == "unnamed"


@each(
    ("pattern", "expected"),
    [
        ("yyyy_MM", "2020_01"),
        ("yy-M-d", "20-1-2"),
        ("EEE, dd MMMM yyyy", "Thu, 02 January 2020"),
        ("hh:mm:ss.SSS a", "03:04:05.678 AM"),
        ("yyyy''DDD 'at'", "2020'002 at"),
    ],
)
def test_date_patterns_are_simple_date_formats(pattern: str, expected: str) -> None:
    assert date_text(pattern, START) == expected
    assert re.fullmatch(date_regex(pattern), expected)


@each("pattern", ["{date:yyyy_ww}", "{date:z}", "{date:'open}"])
def test_a_date_pattern_that_is_not_supported_is_a_config_error_at_once(pattern: str) -> None:
    with pytest.raises(ConfigError, match="file_name_pattern"):
        template(name=pattern)


def test_the_timestamp_is_the_time_of_the_file() -> None:
    before = datetime.now(UTC).timestamp() * 1000
    key = PathTemplate("b", "p/", "{timestamp}", START, 1).key(StreamId(None, "s"), "", 1, 0)
    stamp = int(key.removeprefix("b/p/").removesuffix("-1"))
    assert before - 1 <= stamp <= datetime.now(UTC).timestamp() * 1000
