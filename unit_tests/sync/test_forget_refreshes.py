"""Forgetting of rows of a refresh that waits: they leave it, the table that it replaces, and the table that it becomes."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.messages import line, records
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, ForgetfulLake, catalog, forgotten_wherever_it_dies, person, somebody

FORMATS: list[dict[str, Any]] = [{"format_type": "Parquet"}, {"format_type": "JSONL"}]


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    lake = ForgetfulLake(s3_settings, tmp_path)
    lake.keep_versions()
    return lake


UNKNOWN: dict[str, Any] = {"generation": None, "minimum": None}
"""What the catalog of a connector without generations has."""


def waits(lake: ForgetfulLake, mode: str) -> None:
    """A refresh that is complete but not merged, or of a table that is not deduplicated, held back because it has too few rows."""
    if mode == "append_dedup":
        lake.go(mode, [*(somebody(number) for number in range(10)), person(1)])
        lake.go(mode, [person(2), somebody(3, 2)])
        lake.merge_limits = {"time": MergeTime(timedelta())}
        lake.go(mode, [*(somebody(number, 5) for number in range(8)), person(5)], generation=2, minimum=2)
        lake.merge_limits = {}
        return
    held_back = [somebody(60), person(5), somebody(61), somebody(62)]
    for data, blob in [([*map(somebody, range(10)), person(1)], {}), (held_back, {"page": 1})]:
        body = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "users"}, "stream_state": blob}}
        with suppress(ConfigError):
            lake.sync(catalog(mode, **UNKNOWN), [records(data, emitted_at=9), line({"type": "STATE", "state": body})])


@pytest.mark.parametrize("form", FORMATS, ids=["parquet", "jsonl"])
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "no raw"])
@pytest.mark.parametrize("mode", ["overwrite", "append_dedup"])
def test_rows_leave_a_refresh_that_waits(lake: ForgetfulLake, mode: str, raw: bool, form: dict[str, Any]) -> None:
    lake.format, lake.options = form, {"tables": {"raw_tables": raw}}
    waits(lake, mode)
    live = lake.live_files()
    assert live.pending is not None
    pending = sum(file.rows for file in live.of(FileKind.DELTA))
    assert pending == (9 if mode == "append_dedup" else 4)
    lake.forget({"mail": f"{MARK}5@example.org"} if mode == "append_dedup" else {"id": NUMBER})
    assert lake.holding() == []
    assert lake.live_files().pending == live.pending
    assert sum(file.rows for file in lake.live(FileKind.DELTA)) == pending - 1
    lake.check()

    if mode == "append_dedup":
        lake.go(mode, [somebody(50)], generation=2, minimum=2)
    else:
        assert lake.connector().run("accept").exit_code == 0
    assert lake.live_files().pending is None
    assert lake.holding() == []
    lake.check()
    if form["format_type"] == "Parquet":
        assert {row["mail"] for row in lake.rows_of()} == {
            *(["60@1", "61@1", "62@1"] if mode == "overwrite" else ["50@1", *(f"{number}@5" for number in range(8))])
        }
    if raw:
        lake.rebuild()
        lake.check()


@pytest.mark.parametrize("mode", ["overwrite", "append_dedup"])
@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, mode: str, lake: ForgetfulLake) -> None:
    waits(lake, mode)
    forgotten_wherever_it_dies(lake, start)
    assert lake.live_files().pending is not None
