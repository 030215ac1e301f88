"""Statistics through whole syncs: the hint has those of every final file, and they are those of its footer. Blocks have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import TransientError
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.tables.compaction.groups import LEAST_FILES
from destination_s3_spark.tables.configured import final_options
from destination_s3_spark.tables.runs.footers import read_footer, statistics_of, with_statistics
from destination_s3_spark.tables.updates.steps import Update
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, records, schema_of, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.places import table_of

INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
EMITTED_AT = 1_767_323_045_678


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options as a publisher that shows statistics sets them."""

    def with_statistics(config: Config) -> FileOptions:
        options = final_options(config)
        return dataclasses.replace(options, statistics=True) if isinstance(options, ParquetOptions) else options

    monkeypatch.setattr("destination_s3_spark.tables.factory.final_options", with_statistics)


def catalog(mode: str = "append", generation: int = 1, minimum: int = 0, of_id: dict[str, Any] = INTEGER) -> JsonObject:
    schema = schema_of({"id": of_id, "name": TEXT, "of": schema_of({"x": NUMBER})})
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(schema=schema, mode=mode, key="id", **ids))


def messages(ids: Sequence[int], word: str = "COMPLETE") -> list[bytes]:
    data = [{"id": one, "name": f"n{one}", "of": {"x": one / 2}} for one in ids]
    return [records(data, emitted_at=EMITTED_AT), state(max(ids)), status(word)]


def finals(lake: Lake) -> tuple[FileEntry, ...]:
    """The final files, as the hint has them."""
    live = lake.own_chain().live_files()
    assert of_blocks(lake).live_files() == live.without_values()
    return live.of(FileKind.FINAL)


def of_blocks(lake: Lake) -> Chain:
    found = Chain(lake.store, table_of("users"))
    found.catch_up()
    return found


def require_true(lake: Lake, ids: Sequence[int]) -> None:
    files = with_statistics(finals(lake), lake.store)
    assert files
    for file in files:
        assert statistics_of(lake.store, file.without_values()) == file.statistics
        assert read_footer(lake.store, file).num_rows == file.rows
    found = [file.statistics for file in files if file.statistics is not None]
    assert len(found) == len(files)
    assert min(one.min["id"] for one in found) == min(ids)
    assert max(one.max["of"]["x"] for one in found) == max(ids) / 2
    assert {one.min["_airbyte_extracted_at"] for one in found} == {"2026-01-02T03:04:05.678Z"}
    assert all(list(one.min["_airbyte_meta"]) == ["sync_id"] for one in found)


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("mode", ["append", "append_dedup", "overwrite"])
def test_landed_merged_and_replaced_files_have_them(lake: Lake, mode: str) -> None:
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
def test_retyped_and_rebuilt_files_have_them(lake: Lake, mode: str) -> None:
    lake.options = {"tables": {"schema_change": "rewrite"}}
    lake.sync(catalog(mode), messages([1, 2]))
    lake.sync(catalog(mode, of_id=NUMBER), messages([3]))
    require_true(lake, [1, 2, 3])
    lake.rebuild()

    require_true(lake, [1, 2, 3])


def run(update: Update) -> None:
    """Do the work of an update here."""
    with suppress(StopIteration):
        work = next(update)
        while True:
            work = update.send([work.function(task) for task in work.tasks])


def test_files_written_without_them_have_them_in_their_footers(lake: Lake) -> None:
    lake.sync(catalog(), messages([1, 2]))
    (file,) = finals(lake)
    found = statistics_of(lake.store, file)

    assert (file.statistics, file.unbounded) == (None, None)
    assert read_footer(lake.store, file).num_rows == file.rows
    assert (found.min["name"], found.max["name"], found.nulls["name"]) == ("n1", "n2", 0)
    with pytest.raises(ObjectNotFound):
        statistics_of(lake.store, replace(file, key="lake/users/gone.parquet"))


@pytest.mark.usefixtures("gathering")
def test_joined_files_have_them(lake: Lake) -> None:
    lake.options = {"tables": {"compaction": "on"}}
    for number in range(LEAST_FILES):
        lake.sync(catalog(), messages([2 * number, 2 * number + 1]))

    (joined,) = finals(lake)
    assert joined.rows == 2 * LEAST_FILES
    require_true(lake, range(2 * LEAST_FILES))
