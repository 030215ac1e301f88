"""The encodings of a table's files through whole syncs: files of two encodings are never in one table."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import time
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark import tables
from destination_s3_spark.chain.files import GENERATION_METADATA, FileKind
from destination_s3_spark.errors import TransientError
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.updates.choice import rebuild_of
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from destination_s3_spark.tables.updates.steps import Update
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, records, state, status, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.sampling import chance, rounds

CHAIN = "lake/airbyte_internal/_raw__stream_users/chain/"
CLOCK = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
TIMES = {"opens": CLOCK, "days": {"type": "array", "items": CLOCK}}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, **TIMES}}
PLAIN = {"type": "object", "properties": {"id": {"type": "integer"}}}
MILLIS, MICROS = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
EMITTED_AT = 1_767_323_045_678
OTHER = {"extracted_at_encoding": "micros", "time_encoding": "local"}


class Stored(NamedTuple):
    """How a file stores the extraction time, and times of day at the top and in a list."""

    extracted_at: pa.DataType
    times: frozenset[str]


DEFAULT = Stored(MILLIS, frozenset({"Time(isAdjustedToUTC=true, timeUnit=microseconds)"}))
LOCAL = Stored(MICROS, frozenset({"Time(isAdjustedToUTC=false, timeUnit=microseconds)"}))
INT64 = Stored(MICROS, frozenset({"None"}))


def choose(lake: Lake, **options: str) -> None:
    lake.format = {"format_type": "Parquet", **options}


def catalog(mode: str = "append", generation: int = 1, minimum: int = 0, schema: dict[str, Any] | None = None) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(schema=schema or SCHEMA, mode=mode, key="id", **ids))


def row(number: int) -> dict[str, Any]:
    return {"id": number, "opens": f"08:00:{number % 60:02}", "days": ["12:30:00"]}


def messages(ids: Sequence[int], word: str = "COMPLETE") -> list[bytes]:
    return [records(map(row, ids), emitted_at=EMITTED_AT), state(max(ids, default=0)), status(word)]


def cut(lake: Lake, of: JsonObject, ids: Sequence[int]) -> None:
    with pytest.raises(TransientError):
        lake.sync(of, messages(ids, "INCOMPLETE"))


def stored(file: bytes) -> Stored:
    parquet = pq.ParquetFile(pa.BufferReader(file))
    kinds = (parquet.schema.column(number) for number in range(len(parquet.schema)))
    times = frozenset(str(kind.logical_type) for kind in kinds if kind.path.split(".")[0] in ("opens", "days"))
    return Stored(parquet.schema_arrow.field("_airbyte_extracted_at").type, times)


def shown(lake: Lake) -> set[Stored]:
    """How the files that readers see store them."""
    return {stored(file) for file in lake.files(".parquet")}


def raw(lake: Lake) -> set[pa.DataType]:
    live = lake.own_chain().live_files()
    files = [file.key for file in live.of(FileKind.RAW) if not live.is_pending(file)]
    return {stored(lake.store.get(key)).extracted_at for key in files}


def read(lake: Lake) -> pa.Table:
    keys = lake.settings.credentials
    assert keys is not None
    names = {"s3_bucket_name": lake.settings.bucket, "s3_bucket_path": "lake", "s3_bucket_region": lake.settings.region}
    credentials = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
    return tables.read({**names, **credentials, "s3_endpoint": lake.settings.endpoint, "format": lake.format}, "users").to_table()


def require_rows(lake: Lake, ids: Sequence[int]) -> None:
    """The rows have their values, whatever the encoding."""
    found = [pq.read_table(pa.BufferReader(file)) for file in lake.files(".parquet")]
    times = [table["opens"].cast(pa.int64()).to_pylist() for table in found]
    moments = [table["_airbyte_extracted_at"].cast(MICROS).cast(pa.int64()).to_pylist() for table in found]
    numbers = [table["id"].to_pylist() for table in found]
    rows = [one for table in zip(numbers, times, moments, strict=True) for one in zip(*table, strict=True)]
    assert sorted(rows) == [(one, (8 * 3600 + one % 60) * 10**6, EMITTED_AT * 1000) for one in sorted(ids)]


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, DEFAULT), (OTHER, LOCAL), ({"extracted_at_encoding": "micros", "time_encoding": "int64"}, INT64)],
)
def test_a_new_table_has_the_configured_encodings(lake: Lake, mode: str, options: dict[str, str], expected: Stored) -> None:
    choose(lake, **options)
    lake.sync(catalog(mode), messages([1, 2]))
    lake.sync(catalog(mode), messages([3]))

    assert shown(lake) == {expected}
    assert raw(lake) == {expected.extracted_at}
    require_rows(lake, [1, 2, 3])
    rows = read(lake)
    assert rows.schema.field("_airbyte_extracted_at").type == expected.extracted_at
    assert sorted(rows["opens"].to_pylist()) == [time(8, 0, second) for second in (1, 2, 3)]


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_an_existing_table_keeps_its_encodings_when_others_are_configured(lake: Lake, mode: str) -> None:
    lake.sync(catalog(mode), messages([1, 2]))
    schema = lake.own_chain().head.schema
    choose(lake, **OTHER)
    lake.sync(catalog(mode), messages([2, 3] if mode == "append_dedup" else [3]))

    assert shown(lake) == {DEFAULT}
    assert raw(lake) == {MILLIS}
    assert lake.own_chain().head.schema == schema
    require_rows(lake, [1, 2, 3])


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_refresh_takes_the_configured_encodings(lake: Lake, mode: str) -> None:
    lake.sync(catalog(mode), messages([1, 2]))
    choose(lake, **OTHER)
    cut(lake, catalog(mode, 2, 2), [3])
    assert shown(lake) == {DEFAULT}
    assert read(lake).schema.field("_airbyte_extracted_at").type == MILLIS
    choose(lake)  # what the refresh has begun with holds for the rest of it
    lake.sync(catalog(mode, 2, 2), messages([4]))

    assert shown(lake) == {LOCAL}
    assert raw(lake) == {MICROS}
    require_rows(lake, [3, 4])
    lake.sync(catalog(mode, 2), messages([5]))
    assert shown(lake) == {LOCAL}
    assert read(lake).schema.field("_airbyte_extracted_at").type == MICROS
    require_rows(lake, [3, 4, 5])


def test_mode_overwrite_replaces_the_encodings_with_the_rows(lake: Lake) -> None:
    lake.sync(catalog("overwrite", 1), messages([1, 2]))
    choose(lake, **OTHER)
    lake.sync(catalog("overwrite", 2), messages([3]))

    assert shown(lake) == {LOCAL}
    require_rows(lake, [3])


def test_rows_of_the_refresh_that_are_in_the_table_already_keep_its_encodings(lake: Lake) -> None:
    lake.sync(catalog(generation=1), messages([1]))
    lake.sync(catalog(generation=2), messages([2]))
    choose(lake, **OTHER)
    lake.sync(catalog(generation=2, minimum=2), messages([3]))

    assert shown(lake) == {DEFAULT}
    assert raw(lake) == {MILLIS}
    require_rows(lake, [2, 3])


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_refresh_that_is_given_up_does_not_mix_encodings(lake: Lake, mode: str) -> None:
    lake.sync(catalog(mode), messages([1]))
    choose(lake, **OTHER)
    cut(lake, catalog(mode, 2, 2), [2])
    lake.sync(catalog(mode, 2), messages([3]))  # its rows join the table

    assert shown(lake) == {LOCAL}
    require_rows(lake, [1, 2, 3])


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_rebuild_keeps_the_encodings(lake: Lake, mode: str) -> None:
    choose(lake, **OTHER)
    lake.sync(catalog(mode), messages([1, 2]))
    before = lake.own_chain().live_files().of(FileKind.FINAL)
    choose(lake)
    factory = TableFactory(lake.config(), lake.store, lake.own_chain().head.system_time)
    (found,) = factory.find().tables
    table = factory.of_found(found, ()).open()
    run(rebuild_of(table, Resources(TaskResources(lake.settings, 2**26), 2, None)))
    table.writer.close()

    assert not set(before) & set(lake.own_chain().live_files().of(FileKind.FINAL))
    assert shown(lake) == {LOCAL}
    require_rows(lake, [1, 2])


def run(update: Update) -> None:
    """Do the work of an update here."""
    with suppress(StopIteration):
        work = next(update)
        while True:
            work = update.send([work.function(task) for task in work.tasks])


def adopt(lake: Lake, number: int) -> None:
    """A file of destination-s3."""
    schema = pa.schema([*META_FIELDS, ("id", pa.int64()), ("opens", pa.time64("us")), ("days", pa.list_(pa.time64("us")))])
    own = {"_airbyte_raw_id": "r", "_airbyte_extracted_at": EMITTED_AT, "_airbyte_meta": {"sync_id": 1, "changes": []}}
    data = {"id": number, "opens": time(8, 0, number), "days": []}
    body = BytesIO()
    pq.write_table(pa.Table.from_pylist([{**own, "_airbyte_generation_id": 1, **data}], schema), body, write_time_adjusted_to_utc=True)
    lake.store.put("lake/users/2026_01_01_1700000000000_0.parquet", body.getvalue(), {GENERATION_METADATA: "1"})


def test_an_adopted_table_keeps_the_encodings_of_destination_s3_until_a_refresh(lake: Lake) -> None:
    adopt(lake, 1)
    choose(lake, **OTHER)
    lake.sync(catalog(), messages([2]))
    assert shown(lake) == {DEFAULT}
    assert read(lake).schema.field("_airbyte_extracted_at").type == MILLIS
    require_rows(lake, [1, 2])
    cut(lake, catalog(generation=2, minimum=2), [3])
    assert shown(lake) == {DEFAULT}
    require_rows(lake, [1, 2])
    lake.sync(catalog(generation=2, minimum=2), messages([4]))

    assert shown(lake) == {LOCAL}
    require_rows(lake, [3, 4])


def test_a_table_is_read_while_a_refresh_is_to_replace_adopted_files(lake: Lake) -> None:
    adopt(lake, 1)
    choose(lake, **OTHER)
    cut(lake, catalog(generation=2, minimum=2), [3])

    assert shown(lake) == {DEFAULT}
    assert read(lake)["_airbyte_extracted_at"].cast(MICROS).cast(pa.int64()).to_pylist() == [EMITTED_AT * 1000]


def test_a_retyped_table_keeps_its_encodings(lake: Lake) -> None:
    lake.options = {"tables": {"schema_change": "rewrite"}}
    choose(lake, **OTHER)
    lake.sync(catalog(), messages([1]))
    choose(lake)
    lake.sync(catalog(schema={"type": "object", "properties": {"id": {"type": "number"}, **TIMES}}), messages([2]))

    assert shown(lake) == {LOCAL}
    require_rows(lake, [1, 2])


def test_tables_in_other_formats_record_no_encodings(lake: Lake) -> None:
    lake.format = {"format_type": "JSONL"}
    lake.sync(catalog(), messages([1]))

    assert "encodings" not in (lake.own_chain().head.schema or {})
    assert raw(lake) == {MILLIS}


class Step(NamedTuple):
    mode: str
    generation: int
    minimum: int
    complete: bool
    options: dict[str, str]


def steps(chosen: random.Random, modes: Sequence[str]) -> Iterator[Step]:
    generation = 1
    for _ in range(5):
        generation += chosen.random() < 0.4
        minimum = generation if chosen.random() < 0.4 else 0
        unit, times = chosen.choice(["millis", "micros"]), chosen.choice(["time", "int64", "local"])
        options = {"extracted_at_encoding": unit, "time_encoding": times}
        yield Step(chosen.choice(modes), generation, minimum, chosen.random() < 0.7, options)


@pytest.mark.parametrize("number", range(rounds(25, 100)))
def test_readers_see_one_encoding_whatever_happens(lake: Lake, number: int) -> None:
    adopted = number % 3 == 0
    if adopted:
        adopt(lake, 10)
    for at, step in enumerate(steps(chance(f"encodings {number}"), ["append"] if adopted else ["append", "append_dedup"])):
        choose(lake, **step.options)
        if step.complete:
            lake.sync(catalog(step.mode, step.generation, step.minimum), messages([at]))
        else:
            cut(lake, catalog(step.mode, step.generation, step.minimum), [at])
        assert len(shown(lake)) <= 1, f"{step} at {at}"
        units = {found.extracted_at for found in shown(lake)}
        assert not units or {read(lake).schema.field("_airbyte_extracted_at").type} == units
