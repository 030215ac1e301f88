"""Statistics through whole syncs: the hint has those of every final file, and they are those of its footer. Blocks have none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import TransientError
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.compaction.groups import LEAST_FILES
from destination_s3_spark.tables.configured import final_options
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.runs.footers import read_footer, statistics_of, with_statistics
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update
from unit_tests.places import table_of
from unit_tests.sync.inline_lake import InlineLake, line, state, status

INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
EMITTED_AT = 1_767_323_045_678


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path)


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options as a publisher that shows statistics sets them."""

    def with_statistics(config: Config) -> FileOptions:
        options = final_options(config)
        return dataclasses.replace(options, statistics=True) if isinstance(options, ParquetOptions) else options

    monkeypatch.setattr("destination_s3_spark.tables.factory.final_options", with_statistics)


def catalog(mode: str = "append", generation: int = 1, minimum: int = 0, of_id: dict[str, Any] = INTEGER) -> Catalog:
    schema = {"type": "object", "properties": {"id": of_id, "name": TEXT, "of": {"type": "object", "properties": {"x": NUMBER}}}}
    entry = {
        "stream": {"name": "users", "json_schema": schema, "supported_sync_modes": ["incremental"]},
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "cursor_field": [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": generation,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def messages(ids: Sequence[int], word: str = "COMPLETE") -> list[bytes]:
    data = [{"id": one, "name": f"n{one}", "of": {"x": one / 2}} for one in ids]
    records = [{"stream": "users", "emitted_at": EMITTED_AT, "data": one} for one in data]
    return [*(line({"type": "RECORD", "record": record}) for record in records), state(max(ids)), status(word)]


def chain(lake: InlineLake) -> Chain:
    found = Chain(S3Store(lake.settings), table_of("users"))
    found.read()
    found.catch_up()
    return found


def finals(lake: InlineLake) -> tuple[FileEntry, ...]:
    """The final files, as the hint has them."""
    live = chain(lake).live_files()
    assert of_blocks(lake).live_files() == live.without_values()
    return live.of(FileKind.FINAL)


def of_blocks(lake: InlineLake) -> Chain:
    found = Chain(S3Store(lake.settings), table_of("users"))
    found.catch_up()
    return found


def require_true(lake: InlineLake, ids: Sequence[int]) -> None:
    files = with_statistics(finals(lake), S3Store(lake.settings))
    assert files
    for file in files:
        assert statistics_of(S3Store(lake.settings), file.without_values()) == file.statistics
        assert read_footer(S3Store(lake.settings), file).num_rows == file.rows
    found = [file.statistics for file in files if file.statistics is not None]
    assert len(found) == len(files)
    assert min(one.min["id"] for one in found) == min(ids)
    assert max(one.max["of"]["x"] for one in found) == max(ids) / 2
    assert {one.min["_airbyte_extracted_at"] for one in found} == {"2026-01-02T03:04:05.678Z"}
    assert all(list(one.min["_airbyte_meta"]) == ["sync_id"] for one in found)


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("mode", ["append", "append_dedup", "overwrite"])
def test_landed_merged_and_replaced_files_have_them(lake: InlineLake, mode: str) -> None:
    lake.sync(catalog(mode), messages([1, 2]))
    require_true(lake, [1, 2])
    lake.sync(catalog(mode, 2), messages([2, 3]))
    require_true(lake, [2, 3] if mode == "overwrite" else [1, 3])
    with pytest.raises(TransientError):
        lake.sync(catalog(mode, 3, 3), messages([7], "INCOMPLETE"))
    lake.sync(catalog(mode, 3, 3), messages([8, 9]))
    require_true(lake, [7, 8, 9])


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_retyped_and_rebuilt_files_have_them(lake: InlineLake, mode: str) -> None:
    lake.options = {"tables": {"schema_change": "rewrite"}}
    lake.sync(catalog(mode), messages([1, 2]))
    lake.sync(catalog(mode, of_id=NUMBER), messages([3]))
    require_true(lake, [1, 2, 3])
    (found,) = (factory := TableFactory(lake.config(), S3Store(lake.settings), chain(lake).head.system_time)).find().tables
    table = factory.of_found(found, ()).open()
    run(rebuild_of(table, Resources(TaskResources(lake.settings, 2**26), 2, None)))
    table.writer.close()

    require_true(lake, [1, 2, 3])


def run(update: Update) -> None:
    """Do the work of an update here."""
    with suppress(StopIteration):
        work = next(update)
        while True:
            work = update.send([work.function(task) for task in work.tasks])


def test_files_written_without_them_have_them_in_their_footers(lake: InlineLake) -> None:
    lake.sync(catalog(), messages([1, 2]))
    (file,) = finals(lake)
    found = statistics_of(S3Store(lake.settings), file)

    assert (file.statistics, file.unbounded) == (None, None)
    assert read_footer(S3Store(lake.settings), file).num_rows == file.rows
    assert (found.min["name"], found.max["name"], found.nulls["name"]) == ("n1", "n2", 0)
    with pytest.raises(ObjectNotFound):
        statistics_of(S3Store(lake.settings), replace(file, key="lake/users/gone.parquet"))


@pytest.mark.usefixtures("gathering")
def test_joined_files_have_them(lake: InlineLake) -> None:
    lake.options = {"tables": {"compaction": "on"}}
    for number in range(LEAST_FILES):
        lake.sync(catalog(), messages([2 * number, 2 * number + 1]))

    (joined,) = finals(lake)
    assert joined.rows == 2 * LEAST_FILES
    require_true(lake, range(2 * LEAST_FILES))
