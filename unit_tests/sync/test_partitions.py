"""Tables with partitions through whole syncs: every row is once in the table, in the folder of its value."""

from __future__ import annotations

import io
import json
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.events import SetDataSchema
from destination_s3_spark.chain.files import GENERATION_METADATA, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError, DataError, TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.schema.partitioning import NULL_PARTITION
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables import partitioned_files
from destination_s3_spark.tables.due import rebuild_of
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.found import find_tables
from destination_s3_spark.tables.merge.update import Resources
from destination_s3_spark.tables.row_sources import raw_twin
from destination_s3_spark.tables.stored import rewrite
from destination_s3_spark.tables.verification import verify
from unit_tests.sync.inline_lake import InlineLake, line, state, status

CHAIN = "lake/airbyte_internal/_raw__stream_users/chain/"
AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": AT, "kind": {"type": "string"}}}
DAILY = {"stream": "users", "column": "at", "transform": "day"}
CLOCK = count(1000)
HOURLY = {"stream": "users", "column": "at", "transform": "hour", "name": "hours"}


def partitioned(*rules: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {"tables": {"partition_by": list(rules), "compaction": "on", **tables}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path, options=partitioned(DAILY))


def catalog(
    mode: str = "append",
    sync: int = 1,
    generation: int = 1,
    minimum: int = 0,
    schema: dict[str, Any] | None = None,
    key: Sequence[str] = ("id",),
) -> Catalog:
    entry = {
        "stream": {"name": "users", "json_schema": schema or SCHEMA, "supported_sync_modes": ["incremental"]},
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "primary_key": [[one] for one in key],
        "cursor_field": [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": sync,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def record(number: int, days: int = 3) -> dict[str, Any]:
    """A record on one of a few days, or of none."""
    day = number % (days + 1)
    at = None if day == days else f"2026-11-{20 + day}T{2 + number % 22:02}:30:00+02:00"
    return {"id": number, "at": at, "kind": f"kind {number % 2}"}


def messages(records: Iterable[dict[str, Any]], *, complete: bool = True) -> Iterator[bytes]:
    number = 0
    for number, data in enumerate(records, 1):  # noqa: B007
        yield line({"type": "RECORD", "record": {"stream": "users", "emitted_at": next(CLOCK), "data": data}})
    yield state(number)
    if complete:
        yield status("COMPLETE")


def chain(lake: InlineLake) -> Chain:
    found = Chain(S3Store(lake.settings), CHAIN, StreamId(None, "users"))
    found.read()
    found.catch_up()
    return found


def finals(lake: InlineLake) -> tuple[FileEntry, ...]:
    return chain(lake).live_files().of(FileKind.FINAL)


def rows_of(lake: InlineLake, file: FileEntry) -> list[dict[str, Any]]:
    body = S3Store(lake.settings).get(file.key)
    if file.key.endswith(".avro"):
        return [{**row} for row in fastavro.reader(io.BytesIO(body))]
    return pq.read_table(pa.BufferReader(body)).to_pylist()


def day_of(at: datetime | None) -> str:
    return NULL_PARTITION if at is None else f"{at:%Y-%m-%d}"


def check(lake: InlineLake, ids: Iterable[int], folder: str = "at_day", value: Any = day_of) -> None:
    """Each record is once in the table, in the folder of its value; nothing else is there; and the chain agrees."""
    found = []
    for file in finals(lake):
        assert file.partition is not None
        assert f"/{folder}={file.partition}/" in file.key
        rows = rows_of(lake, file)
        assert {value(row["at"]) for row in rows} == {file.partition}
        assert len(rows) == file.rows
        found += [row["id"] for row in rows]
    assert sorted(found) == sorted(ids)
    store = S3Store(lake.settings)
    (table,) = find_tables(store, "lake/airbyte_internal/")
    assert verify(store, table).problems == ()
    stored = {info.key for info in store.list("lake/users/") if info.key.endswith((".parquet", ".avro")) and "_delta_log" not in info.key}
    assert stored == {file.key for file in finals(lake)}


def rebuilt(lake: InlineLake) -> None:
    factory = TableFactory(lake.config(), S3Store(lake.settings), datetime.now(UTC))
    (found,) = factory.find()
    table = factory.of_found(found, ()).open()
    update = rebuild_of(table, Resources(lake.settings, 2**26, 2, None))
    work = next(update)
    while True:
        try:
            work = update.send([work.function(task) for task in work.tasks])
        except StopIteration:
            break
    table.writer.close()


@pytest.mark.parametrize("format_type", ["Parquet", "Avro"])
def test_appends_and_compaction(format_type: str, lake: InlineLake) -> None:
    lake.format = {"format_type": format_type}
    for sync in range(16):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
        if sync == 0:
            assert [file.partition for file in finals(lake)] == ["2026-11-20", "2026-11-21", "2026-11-22", NULL_PARTITION]
            assert [file.offset for file in finals(lake)] == [0, 2, 4, 6]
            check(lake, range(8))
    live = chain(lake).live_files()
    assert sorted((file.partition, file.rows) for file in finals(lake)) == [
        ("2026-11-20", 32),
        ("2026-11-21", 32),
        ("2026-11-22", 32),
        (NULL_PARTITION, 32),
    ]
    assert [file.rows for file in live.of(FileKind.RAW)] == [128]
    assert all(file.partition is None for file in live.of(FileKind.RAW))
    check(lake, range(128))
    for file in finals(lake):  # the order of arrival stays within a partition
        ids = [row["id"] for row in rows_of(lake, file)]
        assert ids == sorted(ids)
    lake.sync(catalog(sync=17), messages(map(record, range(128, 136))))
    check(lake, range(136))


def test_a_file_of_a_partition_has_no_raw_twin() -> None:
    """By chance it can have the offset and the number of rows of a raw file that has other rows."""
    raw = FileEntry(FileKind.RAW, "raw", 6, 1, offset=0)
    joined = FileEntry(FileKind.FINAL, "final", 6, 1, offset=0, partition="2026-11-20")
    live = LiveFiles(files=(raw, joined))
    assert raw_twin(live, joined) is None
    assert raw_twin(live, replace(joined, partition=None)) == raw


@pytest.mark.parametrize("raw", [True, False])
def test_types_of_columns_change_in_place(raw: bool, lake: InlineLake) -> None:
    lake.options = partitioned(DAILY, schema_change="rewrite", raw_tables=raw)
    for sync in range(3):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    kinds = {"type": "object", "properties": {**SCHEMA["properties"], "id": {"type": "number"}}}  # type: ignore[dict-item]
    lake.sync(catalog(sync=4, schema=kinds), messages(map(record, range(24, 32))))
    check(lake, range(32))


def test_a_change_of_the_columns_type_moves_its_rows(lake: InlineLake) -> None:
    for sync in range(3):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    day = {"type": "string", "format": "date"}
    dates = {"type": "object", "properties": {**SCHEMA["properties"], "at": day}}  # type: ignore[dict-item]
    lake.sync(catalog(sync=4, schema=dates), messages([{"id": 24, "at": "2026-11-20"}]))
    assert {file.partition for file in finals(lake)} >= {"2026-11-20"}
    check(lake, range(25))
    numbers = {"type": "object", "properties": {**SCHEMA["properties"], "at": {"type": "number"}}}  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="'at' is none of date"):
        lake.sync(catalog(sync=5, schema=numbers), messages([{"id": 25, "at": 1.5}]))
    check(lake, range(25))


def test_a_rebuild_from_raw_rows(lake: InlineLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for sync in range(16):
        lake.sync(catalog(sync=sync + 1), messages(map(record, range(8 * sync, 8 * sync + 8))))
    monkeypatch.setattr(rewrite, "WAITING_BYTES", 1)
    monkeypatch.setattr(partitioned_files, "MOST_PARTITIONS", 2)  # only for records of a batch
    rebuilt(lake)
    check(lake, range(128))
    monkeypatch.undo()
    lake.sync(catalog(sync=17), messages(map(record, range(128, 136))))
    check(lake, range(136))


@pytest.mark.parametrize("raw", [True, False])
def test_refreshes(raw: bool, lake: InlineLake) -> None:
    lake.options = partitioned(DAILY, raw_tables=raw)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    with pytest.raises(TransientError):
        lake.sync(catalog(sync=2, generation=2, minimum=2), messages(map(record, range(100, 108)), complete=False))
    check(lake, range(8))
    assert {file.partition for file in chain(lake).live_files().of(FileKind.DELTA)} == {file.partition for file in finals(lake)}
    lake.sync(catalog(sync=2, generation=2, minimum=2), messages(map(record, range(108, 116))))
    check(lake, range(100, 116))
    # a refresh that goes on after rows of its generation are in the table
    lake.sync(catalog(sync=3, generation=2), messages(map(record, range(116, 120))))
    lake.sync(catalog(sync=4, generation=3), messages(map(record, range(120, 124))))
    lake.sync(catalog(sync=5, generation=3, minimum=3), messages(map(record, range(124, 128))))
    check(lake, range(120, 128))


@pytest.mark.parametrize(("first", "then"), [((), (DAILY,)), ((HOURLY,), (DAILY,)), ((DAILY,), ({**DAILY, "name": "days"},))])
def test_another_partitioning_takes_a_refresh(
    first: tuple[dict[str, Any], ...], then: tuple[dict[str, Any], ...], lake: InlineLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.options = partitioned(*first)
    lake.sync(catalog(sync=1), messages(map(record, range(8))))
    folders = {file.key.split("/")[2].partition("=")[0] for file in finals(lake)}
    assert "keeps that" not in caplog.text
    lake.options = partitioned(*then)
    lake.sync(catalog(sync=2), messages(map(record, range(8, 16))))
    assert "Run a refresh of the stream" in caplog.text
    if first:
        assert {file.key.split("/")[2].partition("=")[0] for file in finals(lake)} == folders
    else:
        assert {file.partition for file in finals(lake)} == {None}
    lake.sync(catalog(sync=3, generation=2, minimum=2), messages(map(record, range(100, 108))))
    check(lake, range(100, 108), then[0].get("name", "at_day"))
    lake.options = partitioned()
    lake.sync(catalog(sync=4, generation=2), messages(map(record, range(108, 112))))
    check(lake, range(100, 112), then[0].get("name", "at_day"))
    lake.sync(catalog(sync=5, generation=3, minimum=3), messages(map(record, range(4))))
    assert {file.partition for file in finals(lake)} == {None}


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(("first", "then"), [((), DAILY), (HOURLY, DAILY), (DAILY, ())])
def test_a_refresh_with_another_partitioning_that_is_given_up(raw: bool, mode: str, first: Any, then: Any, lake: InlineLake) -> None:
    """Its rows join the table, whose files are then written again with the new partitions."""
    key = ("id", "at")
    lake.options = partitioned(*filter(None, [first]), raw_tables=raw)
    lake.sync(catalog(mode, sync=1, key=key), messages(map(record, range(8))))
    lake.options = partitioned(*filter(None, [then]), raw_tables=raw)
    with pytest.raises(TransientError):
        lake.sync(catalog(mode, sync=2, generation=2, minimum=2, key=key), messages(map(record, range(100, 108)), complete=False))
    lake.sync(catalog(mode, sync=3, generation=2, key=key), messages(map(record, range(108, 112))))
    if then:
        check(lake, [*range(8), *range(100, 112)])
    else:
        assert sorted(row["id"] for file in finals(lake) for row in rows_of(lake, file)) == [*range(8), *range(100, 112)]
        assert {file.partition for file in finals(lake)} == {None}
    lake.sync(catalog("overwrite", sync=4, generation=2), messages(map(record, range(4))))
    assert sorted(row["id"] for file in finals(lake) for row in rows_of(lake, file)) == [*range(4)]
    assert {file.partition is None for file in finals(lake)} == {not then}


def test_files_of_destination_s3_stay_undivided_until_a_refresh(lake: InlineLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {}
    lake.sync(catalog(sync=1), messages(map(record, range(4))))
    store = S3Store(lake.settings)
    body = store.get(finals(lake)[0].key)
    store.delete([info.key for info in store.list("lake/")])
    store.put("lake/users/2026_01_01_1700000000000_0.parquet", body, {GENERATION_METADATA: "1"})
    lake.options = partitioned(DAILY)
    lake.sync(catalog(sync=2), messages(map(record, range(4, 8))))
    assert "Run a refresh of the stream" in caplog.text
    assert len(chain(lake).live_files().adopted) == 1
    assert {file.partition for file in finals(lake)} == {None}
    lake.sync(catalog(sync=3, generation=2, minimum=2), messages(map(record, range(8, 16))))
    check(lake, range(8, 16))


def test_many_partitions_are_refused_with_words(lake: InlineLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_files, "MOST_PARTITIONS", 100)
    lake.options = partitioned({"stream": "*", "column": "id", "transform": "identity"})
    lake.sync(catalog(), messages(map(record, range(100))))
    with pytest.raises(DataError, match=r"column 'id' divides the records of one batch into more than 100 partitions"):
        lake.sync(catalog(sync=2), messages(map(record, range(101))))
    assert list(S3Store(lake.settings).list_uploads("lake/")) == []
    lake.sync(catalog(sync=3), messages(map(record, range(100, 200))))
    assert sorted(int(file.partition or "") for file in finals(lake)) == list(range(200))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({**DAILY, "column": "missing"}, "Stream 'users': tables.partition_by names the column 'missing'"),
        ({**DAILY, "transform": "identity"}, "'at' is a timestamp"),
        ({**DAILY, "column": "kind"}, "'kind' is neither a date nor a timestamp"),
        ({**DAILY, "name": "KIND"}, "the directories 'KIND=…' would have the name of the column 'kind'"),
    ],
)
def test_what_cannot_partition_is_refused_before_anything_is_written(rule: dict[str, Any], words: str, lake: InlineLake) -> None:
    lake.options = partitioned(rule)
    with pytest.raises(ConfigError) as refused:
        lake.sync(catalog(), messages([record(1)]))
    assert words in refused.value.message
    assert list(S3Store(lake.settings).list("lake/")) == []


def test_a_column_with_the_name_of_the_directories_is_refused(lake: InlineLake) -> None:
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


def test_a_column_that_the_source_drops_is_null(lake: InlineLake) -> None:
    lake.sync(catalog(), messages(map(record, range(8))))
    less = {"type": "object", "properties": {"id": {"type": "integer"}}}
    lake.sync(catalog(sync=2, schema=less), messages([{"id": 8}, {"id": 9}]))
    check(lake, range(10))
    assert finals(lake)[-1].partition == NULL_PARTITION
    found = chain(lake)
    schemas = [
        block.event.schema for block in found.blocks(range(found.head.sequence_number + 1)) if isinstance(block.event, SetDataSchema)
    ]
    assert [schema.get("retyped") for schema in schemas] == [None, None]


def test_the_first_rule_that_matches_applies(lake: InlineLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    lake.options = partitioned({**DAILY, "stream": "other.*"}, HOURLY, {**DAILY, "stream": "*"})
    lake.sync(catalog(), messages(map(record, range(8))))
    check(lake, range(8), "hours", lambda at: NULL_PARTITION if at is None else f"{at:%Y-%m-%d-%H}")


def latest(*syncs: Iterable[dict[str, Any]]) -> dict[tuple[int, str | None], str]:
    """The rows that a deduplicated table has: the last of each key."""
    return {(row["id"], row["at"]): row["kind"] for sync in syncs for row in sync}


def moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def versions(ids: Iterable[int], kind: str, days: int = 5) -> list[dict[str, Any]]:
    at = {number: f"2026-11-{20 + number % days:02}T10:00:00Z" if number % (days + 1) else None for number in ids}
    return [{"id": number, "at": at[number], "kind": kind} for number in ids]


@pytest.mark.parametrize("format_type", ["Parquet", "Avro"])
def test_deduplicated_tables_whose_key_has_the_column(format_type: str, lake: InlineLake) -> None:
    lake.format = {"format_type": format_type}
    lake.merge_limits = {"least_file_bytes": 4_000}
    chance = random.Random(5)
    sent: list[list[dict[str, Any]]] = []
    for sync in range(4):
        ids = sorted(chance.sample(range(600), 300)) if sync else list(range(600))
        sent.append(versions(ids, f"of sync {sync}"))
        lake.sync(catalog("append_dedup", sync + 1, key=("id", "at")), messages(sent[-1]))
        rows = {}
        for file in finals(lake):
            assert file.partition is not None
            assert f"/at_day={file.partition}/" in file.key
            for row in rows_of(lake, file):
                assert day_of(row["at"]) == file.partition
                assert (row["id"], moment(row["at"])) not in rows
                rows[row["id"], moment(row["at"])] = row["kind"]
        assert rows == latest(*sent)
        (table,) = find_tables(S3Store(lake.settings), "lake/airbyte_internal/")
        assert verify(S3Store(lake.settings), table).problems == ()
    assert len(finals(lake)) > 6
    assert len({file.key for file in finals(lake)}) == len(finals(lake))


def test_a_merge_of_one_day_leaves_the_files_of_the_others(lake: InlineLake) -> None:
    """Small files are joined with their neighbours, but not with those of other partitions."""
    key = ("at", "id")
    lake.sync(catalog("append_dedup", 1, key=key), messages(versions(range(100), "old")))
    before = {file.key: file.partition for file in finals(lake)}
    assert len(before) == 6
    lake.sync(catalog("append_dedup", 2, key=key), messages([{"id": 1000, "at": "2026-11-22T23:59:59Z", "kind": "new"}]))
    after = {file.key: file.partition for file in finals(lake)}
    assert {before[key] for key in before.keys() - after.keys()} == {"2026-11-22"}
    assert sum(file.rows for file in finals(lake)) == 101


def test_append_tables_are_deduplicated_and_back(lake: InlineLake) -> None:
    lake.sync(catalog(sync=1, key=("id", "at")), messages([*versions(range(40), "a"), *versions(range(20), "b")]))
    lake.sync(catalog("append_dedup", 2, key=("id", "at")), messages(versions(range(10), "c")))
    rows = {row["id"]: row["kind"] for file in finals(lake) for row in rows_of(lake, file)}
    assert rows == {number: "c" if number < 10 else "b" if number < 20 else "a" for number in range(40)}
    assert sum(file.rows for file in finals(lake)) == 40
    lake.sync(catalog(sync=3), messages(versions(range(10), "d")))
    check(lake, [*range(40), *range(10)])
    rebuilt(lake)
    assert sum(file.rows for file in finals(lake)) == 80  # all that came in


def test_deduplicated_tables_are_refreshed_and_rebuilt(lake: InlineLake) -> None:
    key = ("id", "at")
    lake.options = partitioned(HOURLY)
    lake.sync(catalog("append_dedup", 1, key=key), messages(versions(range(60), "old")))
    lake.options = partitioned(DAILY)
    lake.sync(catalog("append_dedup", 2, key=key), messages(versions(range(30), "older")))
    assert all("/hours=" in file.key for file in finals(lake))
    lake.sync(catalog("append_dedup", 3, generation=2, minimum=2, key=key), messages(versions(range(50), "new")))
    check(lake, range(50))
    rebuilt(lake)
    check(lake, range(50))
    lake.options = partitioned()
    lake.sync(catalog("append_dedup", 4, generation=3, minimum=3, key=key), messages(versions(range(50), "last")))
    assert {file.partition for file in finals(lake)} == {None}


def test_a_key_without_the_column_is_refused_before_anything_is_written(lake: InlineLake) -> None:
    with pytest.raises(ConfigError, match="divides its table by 'at', which is not in its primary key"):
        lake.sync(catalog("append_dedup"), messages([record(1)]))
    assert list(S3Store(lake.settings).list("lake/")) == []
    lake.sync(catalog(), messages([record(1)]))
    keys = {info.key for info in S3Store(lake.settings).list("lake/")}
    with pytest.raises(ConfigError, match="Add the column to the key"):
        lake.sync(catalog("append_dedup", 2), messages([record(2)]))
    assert {info.key for info in S3Store(lake.settings).list("lake/")} == keys


@pytest.mark.parametrize(("column", "values"), [("kind", ["", None, "x" * 200, "b", "a/ü", "y" * 200]), ("id", [-1, 0, 7, 2**60])])
def test_the_partitions_of_a_merge_are_whole(column: str, values: list[Any], lake: InlineLake) -> None:
    """Texts that no folder can name share one with the nulls, wherever they stand in the order of texts."""
    lake.options = partitioned({"stream": "*", "column": column, "transform": "identity", "name": "part"})
    rows = [{"id": value if column == "id" else number, column: value} for number, value in enumerate(values)]
    for sync in range(2):
        lake.sync(catalog("append_dedup", sync + 1, key=("id", "kind")), messages(rows))
    assert sum(file.rows for file in finals(lake)) == len(values)
    assert len({file.partition for file in finals(lake)}) == len(finals(lake)) == (3 if column == "kind" else 4)
