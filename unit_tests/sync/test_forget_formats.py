"""Forgetting of rows of tables in other formats than Parquet: all other rows keep their bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import fastavro
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, ForgetfulLake, forgotten_wherever_it_dies, history, person, somebody

FLAT, GZIP = {"flattening": "Root level flattening"}, {"compression": {"compression_type": "GZIP"}}
PLAIN = {"compression": {"compression_type": "No Compression"}}
TEXTS: list[dict[str, Any]] = [
    {"format_type": "JSONL", **PLAIN},
    {"format_type": "JSONL", **FLAT, **GZIP},
    {"format_type": "CSV", **GZIP},
    {"format_type": "CSV", **FLAT, **PLAIN},
]
NAMES = ["jsonl", "flat jsonl gz", "csv gz", "flat csv"]
CODECS = ("no compression", "Deflate", "bzip2", "xz", "zstandard", "snappy")
AVRO: list[dict[str, Any]] = [{"format_type": "Avro", "compression_codec": {"codec": codec}} for codec in CODECS]
PROPERTIES = {"_airbyte_own": {"type": "string"}, "is": {"type": "boolean"}, "at": {"type": "string", "format": "date-time"}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    lake = ForgetfulLake(s3_settings, tmp_path)
    lake.keep_versions()
    return lake


def hard(one: dict[str, Any], version: int) -> dict[str, Any]:
    """The record with values that are hard to find the end of."""
    text = f'{one["mail"]}, "{version}"\r\n\\ "_airbyte_data": {{\n'
    return {**one, "name": text, "_airbyte_own": f"own {one['id']}", "is": one["id"] == NUMBER, "at": f"2026-01-0{version}T00:00:00Z"}


def contents(lake: ForgetfulLake) -> Iterator[str]:
    """The contents of the table's final files, in order."""
    store = lake.store
    for file in lake.live(FileKind.FINAL):
        body = store.get(file.key)
        if file.key.endswith(".avro"):
            yield from (repr(row) + "\n" for row in fastavro.reader(io.BytesIO(body)))
        else:
            yield (gzip.decompress(body) if file.key.endswith(".gz") else body).decode()


def rows(lake: ForgetfulLake) -> list[str]:
    """The rows, parsed by others."""
    found: list[str] = []
    for text in contents(lake):
        if lake.format["format_type"] == "Avro":
            found.append(text)
        elif text.startswith("{"):
            found += (line for line in text.split("\n") if json.loads(line or "{}"))
        else:
            found += map(repr, list(csv.reader(io.StringIO(text, newline="")))[1:])
    return sorted(found)


@pytest.mark.parametrize("form", [*TEXTS, *AVRO], ids=[*NAMES, *(form["compression_codec"]["codec"] for form in AVRO)])
@pytest.mark.parametrize("wanted", [{"_airbyte_own": f"own {NUMBER}"}, {"id": NUMBER}, {"is": True}, {"at": "2026-01-03T01:00:00+01:00"}])
def test_rows_of_text_files_of_append_tables(lake: ForgetfulLake, form: dict[str, Any], wanted: dict[str, Any]) -> None:
    lake.format = form
    every = [somebody(number) for number in range(30)]
    lake.go(
        "append", (hard(one, 1) for one in [*every[:20], person(1)] if "at" not in wanted or one["id"] != NUMBER), properties=PROPERTIES
    )
    lake.go("append", (hard(one, 3 if one["id"] == NUMBER else 2) for one in [person(2), *every[20:]]), properties=PROPERTIES)
    lake.go("append", [hard(person(3), 3)], properties=PROPERTIES)
    before = [row for row in rows(lake) if MARK not in row]
    lake.forget(wanted)
    assert lake.holding() == []
    assert rows(lake) == before
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == len(before) == len(every)
    lake.check()
    lake.go("append", [hard(somebody(50), 1)], properties=PROPERTIES)
    lake.check()


@pytest.mark.parametrize("form", [*TEXTS, {"format_type": "Avro"}], ids=[*NAMES, "avro"])
@pytest.mark.parametrize(("wanted", "raw"), [*product([{"mail": f"{MARK}4@example.org"}, {"id": NUMBER}], [True, False])])
def test_rows_of_deduplicated_tables(lake: ForgetfulLake, form: dict[str, Any], wanted: dict[str, Any], raw: bool) -> None:
    lake.format, lake.options = form, {"tables": {"raw_tables": raw}}
    history(lake, "append_dedup")
    before = sorted(part for text in contents(lake) for part in text.splitlines() if MARK not in part)
    record = lake.forget(wanted)
    assert lake.holding() == []
    assert sorted(part for text in contents(lake) for part in text.splitlines()) == before
    live = lake.live_files()
    assert {file.copy_of for file in live.of(FileKind.STATE)} == {file.key for file in live.of(FileKind.FINAL)}
    assert record["rows"]["waiting"] == 2
    lake.check()
    lake.options = {"tables": {"raw_tables": raw}}
    lake.go("append_dedup", [somebody(7, 9)])
    assert "7@9" in "".join(contents(lake))
    lake.check()
    if raw:
        lake.rebuild()
        lake.check()


@pytest.mark.parametrize("form", [*TEXTS, {"format_type": "Avro"}], ids=[*NAMES, "avro"])
def test_rows_with_keys_of_which_the_type_holds_only_a_part(lake: ForgetfulLake, form: dict[str, Any]) -> None:
    lake.format = form
    lake.go("append_dedup", [somebody(1), person(1, price=9007199254740993)], key=["price"])
    with pytest.raises(ConfigError, match="does not fit the type of its column"):
        lake.forget({"price": 9007199254740993})
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == 1
    lake.check()


def test_a_table_whose_format_has_changed(lake: ForgetfulLake) -> None:
    for form in ({"format_type": "Parquet"}, *TEXTS, *AVRO):
        lake.format = form
        lake.go("append", [somebody(1), person(1)])
    lake.forget({"mail": f"{MARK}1@example.org"})
    assert lake.holding() == []
    assert sum(file.rows for file in lake.live(FileKind.FINAL)) == 1 + len(TEXTS) + len(AVRO)
    lake.check()


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("start", sample(range(11), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, mode: str, lake: ForgetfulLake) -> None:
    forms = [*TEXTS, AVRO[start % len(AVRO)]]
    lake.format = forms[start % len(forms)]
    history(lake, mode)
    forgotten_wherever_it_dies(lake, start)
