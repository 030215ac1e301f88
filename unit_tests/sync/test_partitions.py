"""Tables with partitions through whole syncs: every row is once in the table, in the folder of its value."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.events import SetDataSchema
from destination_s3_spark.chain.files import GENERATION_METADATA, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.schema.partitioning import NULL_PARTITION
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.landing import land
from destination_s3_spark.tables.stored import rewrite
from unit_tests.lake.lake import Lake
from unit_tests.sync.partitioned_lake import (
    DAILY,
    HOURLY,
    SCHEMA,
    catalog,
    check,
    messages,
    partitioned,
    record,
    rows_of,
)

TEXTS: dict[str, Any] = {**SCHEMA, "properties": {**SCHEMA["properties"], "id": {"type": "string"}}}  # type: ignore[dict-item]
"""The columns with ids of another type."""


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options=partitioned(DAILY))


@pytest.mark.parametrize("format_type", ["Parquet", "Avro"])
def test_appends_and_compaction(format_type: str, lake: Lake) -> None:
    lake.format = {"format_type": format_type}
    for sync in range(16):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
        if sync == 0:
            assert [file.partition for file in lake.live(FileKind.FINAL)] == ["2026-11-20", "2026-11-21", "2026-11-22", NULL_PARTITION]
            assert [file.offset for file in lake.live(FileKind.FINAL)] == [0, 2, 4, 6]
            check(lake, range(8))
    live = lake.own_chain().live_files()
    assert sorted((file.partition, file.rows) for file in lake.live(FileKind.FINAL)) == [
        ("2026-11-20", 32),
        ("2026-11-21", 32),
        ("2026-11-22", 32),
        (NULL_PARTITION, 32),
    ]
    assert [file.rows for file in live.of(FileKind.RAW)] == [128]
    assert all(file.partition is None for file in live.of(FileKind.RAW))
    check(lake, range(128))
    for file in lake.live(FileKind.FINAL):  # the order of arrival stays within a partition
        ids = [row["id"] for row in rows_of(lake, file)]
        assert ids == sorted(ids)
    lake.sync(catalog(sync=17), messages(map(record, range(128, 136))))
    check(lake, range(136))


def test_a_file_of_a_partition_has_no_raw_twin() -> None:
    """By chance it can have the offset and the number of rows of a raw file that has other rows."""
    raw = FileEntry(FileKind.RAW, "raw", 6, 1, offset=0)
    joined = FileEntry(FileKind.FINAL, "at=2026-11-20/final", 6, 1, offset=0, in_partition=True)
    live = LiveFiles(files=(raw, joined))
    assert live.raw_twins([joined]) == {joined.key: None}
    assert live.raw_twins([replace(joined, in_partition=False)]) == {joined.key: raw}


@pytest.mark.parametrize("raw", [True, False])
def test_types_of_columns_change_in_place(raw: bool, lake: Lake) -> None:
    lake.options = partitioned(DAILY, schema_change="rewrite", raw_tables=raw)
    for sync in range(3):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    kinds = {"type": "object", "properties": {**SCHEMA["properties"], "id": {"type": "number"}}}  # type: ignore[dict-item]
    lake.sync(catalog(sync=4, schema=kinds), messages(map(record, range(24, 32))))
    check(lake, range(32))


def test_avro_files_without_raw_rows_are_not_retyped(lake: Lake) -> None:
    lake.format = {"format_type": "Avro"}
    lake.options = partitioned(DAILY, schema_change="rewrite", raw_tables=False)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    before = lake.live(FileKind.FINAL)
    dates = {"type": "object", "properties": {**SCHEMA["properties"], "at": {"type": "string", "format": "date"}}}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="Run a refresh that removes the records"):
        lake.sync(catalog(sync=2, schema=dates), messages([{"id": 8, "at": "2026-11-20"}]))
    assert lake.live(FileKind.FINAL) == before


def test_a_change_of_the_columns_type_moves_its_rows(lake: Lake) -> None:
    for sync in range(3):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    day = {"type": "string", "format": "date"}
    dates = {"type": "object", "properties": {**SCHEMA["properties"], "at": day}}  # type: ignore[dict-item]
    lake.sync(catalog(sync=4, schema=dates), messages([{"id": 24, "at": "2026-11-20"}]))
    assert {file.partition for file in lake.live(FileKind.FINAL)} >= {"2026-11-20"}
    check(lake, range(25))
    numbers = {"type": "object", "properties": {**SCHEMA["properties"], "at": {"type": "number"}}}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="'at' is none of date"):
        lake.sync(catalog(sync=5, schema=numbers), messages([{"id": 25, "at": 1.5}]))
    check(lake, range(25))


def test_a_rebuild_from_raw_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for sync in range(16):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    monkeypatch.setattr(rewrite, "WAITING_BYTES", 1)
    monkeypatch.setattr(land, "MOST_PARTITIONS", 2)  # only for records of a batch
    lake.rebuild()
    check(lake, range(128))
    monkeypatch.undo()
    lake.sync(catalog(sync=17), messages(map(record, range(128, 136))))
    check(lake, range(136))


@pytest.mark.parametrize("raw", [True, False])
def test_refreshes(raw: bool, lake: Lake) -> None:
    lake.options = partitioned(DAILY, raw_tables=raw)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    with pytest.raises(TransientError):
        lake.sync(catalog(sync=2, generation=2, minimum=2), messages(map(record, range(100, 108)), ends=False))
    check(lake, range(8))
    assert {file.partition for file in lake.live(FileKind.DELTA)} == {file.partition for file in lake.live(FileKind.FINAL)}
    lake.sync(catalog(sync=2, generation=2, minimum=2), messages(map(record, range(108, 116))))
    check(lake, range(100, 116))
    # a refresh that goes on after rows of its generation are in the table
    lake.sync(catalog(sync=3, generation=2), messages(map(record, range(116, 120))))
    lake.sync(catalog(sync=4, generation=3), messages(map(record, range(120, 124))))
    lake.sync(catalog(sync=5, generation=3, minimum=3), messages(map(record, range(124, 128))))
    check(lake, range(120, 128))


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("shown", [True, False])
def test_a_refresh_of_avro_files_goes_on_after_a_change_of_types(shown: bool, mode: str, lake: Lake) -> None:
    """Their rows can only be read from raw files, which are not divided. `shown`: some of the refresh's rows are in the table before."""
    lake.format, key = {"format_type": "Avro"}, ("id", "at")
    lake.sync(catalog(sync=1, key=key), messages(map(record, range(8))))
    if shown:
        lake.sync(catalog(sync=2, generation=2, key=key), messages(map(record, range(8, 16))))
    with pytest.raises(TransientError):
        lake.sync(catalog(mode, sync=3, generation=2, minimum=2, key=key), messages(map(record, range(16, 24)), ends=False))
    lake.sync(catalog(mode, sync=3, generation=2, minimum=2, key=key, schema=TEXTS), messages(map(record, range(24, 32))))
    ids = range(8 if shown else 16, 32)
    check(lake, map(str, ids))
    assert sum(file.rows for file in lake.live(FileKind.RAW)) == len(ids)
    lake.sync(catalog(mode, sync=4, generation=2, key=key, schema=TEXTS), messages(map(record, range(32, 36))))
    check(lake, map(str, [*ids, *range(32, 36)]))


@pytest.mark.parametrize(("raw", "words"), [(False, "which has no rows"), (True, "which has no file with just its rows")])
def test_a_refresh_of_avro_files_without_all_raw_rows_is_refused_after_a_change_of_types(raw: bool, words: str, lake: Lake) -> None:
    lake.format = {"format_type": "Avro"}
    lake.options = partitioned(DAILY, raw_tables=False)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    with pytest.raises(TransientError):
        lake.sync(catalog(sync=2, generation=2, minimum=2), messages(map(record, range(8, 16)), ends=False))
    before = lake.live(FileKind.FINAL)
    lake.options = partitioned(DAILY, raw_tables=raw)
    with pytest.raises(ConfigError, match=f"can only be done from the raw table, {words}"):
        lake.sync(catalog(sync=2, generation=2, minimum=2, schema=TEXTS), messages(map(record, range(16, 24))))
    assert lake.live(FileKind.FINAL) == before
    lake.sync(catalog(sync=3, generation=3, minimum=3, schema=TEXTS), messages(map(record, range(24, 32))))
    check(lake, map(str, range(24, 32)))


@pytest.mark.parametrize(("first", "then"), [((HOURLY,), (DAILY,)), ((), (DAILY,)), ((DAILY,), ({**DAILY, "name": "days"},))])
def test_another_partitioning_takes_a_refresh(
    first: tuple[dict[str, Any], ...], then: tuple[dict[str, Any], ...], lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.options = partitioned(*first)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    folders = {file.key.split("/")[2].partition("=")[0] for file in lake.live(FileKind.FINAL)}
    assert "keeps that" not in caplog.text
    lake.options = partitioned(*then)
    lake.sync(catalog(sync=2), messages(map(record, range(8, 16))))
    assert "Run a refresh of the stream" in caplog.text
    if first:
        assert {file.key.split("/")[2].partition("=")[0] for file in lake.live(FileKind.FINAL)} == folders
    else:
        assert {file.partition for file in lake.live(FileKind.FINAL)} == {None}
    lake.sync(catalog(sync=3, generation=2, minimum=2), messages(map(record, range(100, 108))))
    check(lake, range(100, 108), then[0].get("name", "at_day"))
    lake.options = partitioned()
    lake.sync(catalog(sync=4, generation=2), messages(map(record, range(108, 112))))
    check(lake, range(100, 112), then[0].get("name", "at_day"))
    lake.sync(catalog(sync=5, generation=3, minimum=3), messages(map(record, range(4))))
    assert {file.partition for file in lake.live(FileKind.FINAL)} == {None}


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(("first", "then"), [((), DAILY), (HOURLY, DAILY), (DAILY, ())])
def test_a_refresh_with_another_partitioning_that_is_given_up(raw: bool, mode: str, first: Any, then: Any, lake: Lake) -> None:
    """Its rows join the table, whose files are then written again with the new partitions."""
    key = ("id", "at")
    lake.options = partitioned(*filter(None, [first]), raw_tables=raw)
    lake.sync(catalog(mode, sync=1, key=key), messages(map(record, range(8))))
    lake.options = partitioned(*filter(None, [then]), raw_tables=raw)
    with pytest.raises(TransientError):
        lake.sync(catalog(mode, sync=2, generation=2, minimum=2, key=key), messages(map(record, range(100, 108)), ends=False))
    lake.sync(catalog(mode, sync=3, generation=2, key=key), messages(map(record, range(108, 112))))
    if then:
        check(lake, [*range(8), *range(100, 112)])
    else:
        assert sorted(row["id"] for file in lake.live(FileKind.FINAL) for row in rows_of(lake, file)) == [*range(8), *range(100, 112)]
        assert {file.partition for file in lake.live(FileKind.FINAL)} == {None}
    lake.sync(catalog("overwrite", sync=4, generation=2), messages(map(record, range(4))))
    assert sorted(row["id"] for file in lake.live(FileKind.FINAL) for row in rows_of(lake, file)) == [*range(4)]
    assert {file.partition is None for file in lake.live(FileKind.FINAL)} == {not then}


def test_files_of_destination_s3_stay_undivided_until_a_refresh(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {}
    lake.sync(catalog(sync=1), messages(map(record, range(4))))
    store = lake.store
    body = store.get(lake.live(FileKind.FINAL)[0].key)
    store.delete([info.key for info in store.list("lake/")])
    store.put("lake/users/2026_01_01_1700000000000_0.parquet", body, {GENERATION_METADATA: "1"})
    lake.options = partitioned(DAILY)
    lake.sync(catalog(sync=2), messages(map(record, range(4, 8))))
    assert "Run a refresh of the stream" in caplog.text
    assert len(lake.own_chain().live_files().adopted) == 1
    assert {file.partition for file in lake.live(FileKind.FINAL)} == {None}
    lake.sync(catalog(sync=3, generation=2, minimum=2), messages(map(record, range(8, 16))))
    check(lake, range(8, 16))


def test_many_partitions_are_refused_with_words(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(land, "MOST_PARTITIONS", 100)
    lake.options = partitioned({"stream": "*", "column": "id", "transform": "identity"})
    lake.sync(catalog(), messages(map(record, range(100))))
    with pytest.raises(DataError, match=r"column 'id' divides the records of one batch into more than 100 partitions"):
        lake.sync(catalog(sync=2), messages(map(record, range(101))))
    assert list(lake.store.list_uploads("lake/")) == []
    lake.sync(catalog(sync=3), messages(map(record, range(100, 200))))
    assert sorted(int(file.partition or "") for file in lake.live(FileKind.FINAL)) == list(range(200))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({**DAILY, "column": "missing"}, "Stream 'users': tables.partition_by names the column 'missing'"),
        ({**DAILY, "transform": "identity"}, "'at' is a timestamp"),
        ({**DAILY, "column": "kind"}, "'kind' is neither a date nor a timestamp"),
        ({**DAILY, "name": "KIND"}, "the directories 'KIND=…' would have the name of the column 'kind'"),
    ],
)
def test_what_cannot_partition_is_refused_before_anything_is_written(rule: dict[str, Any], words: str, lake: Lake) -> None:
    lake.options = partitioned(rule)
    with pytest.raises(ConfigError) as refused:
        lake.sync(catalog(), messages([record(1)]))
    assert words in refused.value.message
    assert list(lake.store.list("lake/")) == []


def test_a_column_with_the_name_of_the_directories_is_refused(lake: Lake) -> None:
    lake.sync(catalog(), messages(map(record, range(4))))
    wider = {"type": "object", "properties": {**SCHEMA["properties"], "at_day": {"type": "string"}}}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="would have the name of the column 'at_day'"):
        lake.sync(catalog(sync=2, schema=wider), messages(map(record, range(4))))
    lake.options = partitioned({**DAILY, "name": "days"})
    lake.sync(catalog(sync=3, generation=2, minimum=2, schema=wider), messages(map(record, range(4))))
    check(lake, range(4), "days")


def test_text_formats_are_refused() -> None:
    options = {"s3_bucket_name": "b", "s3_bucket_path": "p", "s3_bucket_region": "", **partitioned(DAILY)}
    with pytest.raises(ConfigError, match="partition_by needs the format Parquet or Avro, and the format is CSV"):
        Config.parse({**options, "format": {"format_type": "CSV", "flattening": "No flattening"}})


def test_the_name_of_the_column_is_refused() -> None:
    options = {"s3_bucket_name": "b", "s3_bucket_path": "p", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    with pytest.raises(ConfigError, match=r"tables.partition_by.0.name: must not be the column's"):
        Config.parse({**options, **partitioned({**DAILY, "name": "AT"})})


def test_a_column_that_the_source_drops_is_null(lake: Lake) -> None:
    lake.sync(catalog(), messages(map(record, range(8))))
    less = {"type": "object", "properties": {"id": {"type": "integer"}}}
    lake.sync(catalog(sync=2, schema=less), messages([{"id": 8}, {"id": 9}]))
    check(lake, range(10))
    assert lake.live(FileKind.FINAL)[-1].partition == NULL_PARTITION
    found = lake.own_chain()
    schemas = [
        block.event.schema for block in found.blocks(range(found.head.sequence_number + 1)) if isinstance(block.event, SetDataSchema)
    ]
    assert [schema.get("retyped") for schema in schemas] == [None, None]


def test_the_first_rule_that_matches_applies(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    lake.options = partitioned({**DAILY, "stream": "other.*"}, HOURLY, {**DAILY, "stream": "*"})
    lake.sync(catalog(), messages(map(record, range(8))))
    check(lake, range(8), "hours", lambda at: NULL_PARTITION if at is None else f"{at:%Y-%m-%d-%H}")
