"""The change log through whole syncs: what is in it, when it begins anew, and that it makes the table."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.change_log.manifest import Manifest
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.batches import Limits
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, record, state
from unit_tests.sync.logged_lake import (
    CDC,
    COLUMNS,
    DATA,
    FOLDER,
    KEYS,
    Source,
    cdc_catalog,
    change_log_names,
    last_files,
    lines,
    manifests,
    noise,
    records_of,
    run,
    stored,
)
from unit_tests.sync.reference_changes import PLACEHOLDER, Record, Row, Table, replayed

POLICIES = [("KEY", "UPDATED"), ("KEY", "ALL"), ("ALL", "UPDATED"), ("ALL", "ALL")]


@pytest.fixture
def make_lake(s3_settings: S3Settings, tmp_path: Path) -> Callable[..., Lake]:
    def make(file_format: str = "Parquet", tables: dict[str, Any] | None = None, **change_log: Any) -> Lake:
        options = {"change_log": {"enabled": True, "format": "jsonl", **change_log}, "tables": tables or {}}
        return Lake(s3_settings, tmp_path, options=options, format={"format_type": file_format})

    return make


@pytest.mark.parametrize(
    ("log_format", "file_format", "images"),
    [
        *(("jsonl", "Parquet", images) for images in POLICIES),
        *(("parquet", "Parquet", images) for images in POLICIES),
        *(("jsonl", "JSONL", images) for images in (POLICIES[0], POLICIES[3])),
        ("replicant_csv", "Parquet", POLICIES[1]),
        ("replicant_json", "Parquet", POLICIES[2]),
        ("jsonl", "Parquet in partitions", POLICIES[3]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_a_log_says_what_happened_to_each_key_and_makes_the_table(
    make_lake: Callable[..., Lake], images: tuple[str, str], log_format: str, file_format: str
) -> None:
    before, after = images
    tables = {"partition_by": [{"stream": "users", "column": "id", "transform": "identity"}]} if "partitions" in file_format else None
    lake = make_lake(file_format.split(maxsplit=1)[0], tables, format=log_format, before_image=before, after_image=after)
    lake.merge_limits = {"least_file_bytes": 6_000}
    lake.limits = Limits(batch_bytes=2**30, age_s=3600, spool_bytes=2**31)
    chance, source, table = random.Random(f"{images}{log_format}{file_format}"), Source(), Table()
    typed = log_format in ("jsonl", "parquet")
    rows: dict[int, Row] = {}
    for number in range(1, 4 if tables is None else 3):
        records = source.random_records(chance, 3 * KEYS if tables is None else KEYS // 2, number * 7)
        expected = table.merge(records)
        run(lake, records, number)

        manifest = manifests(lake)[-1]
        found = records_of(lake, manifest)
        if number == 1:
            assert {record["op"] for record in found} == {"S"}
            assert manifest.operation_count.insert_count == len(table.rows)
        else:
            assert [(record["op"], record["key"]["id"]) for record in found] == [(event.op, event.id) for event in expected]
            assert [record["operationCount"] for record in found] == counts(manifest, [event.op for event in expected])
        if typed and number > 1:
            assert [(record["new"], record["old"]) for record in found] == [event.images(before, after) for event in expected]
        if typed:
            rows = replayed(rows, found, COLUMNS)
            assert rows == table.rows
        assert stored(lake) == table.rows


def counts(manifest: Manifest, ops: Iterable[str]) -> list[dict[str, int]]:
    """The running counts a log has to show."""
    before = manifest.operation_count_before
    running = {"I": before.insert_count, "U": before.update_count, "D": before.delete_count}
    found = []
    for op in ops:
        running[op] += 1
        found.append(
            {"insertCount": running["I"], "updateCount": running["U"], "deleteCount": running["D"], "replaceCount": before.replace_count}
        )
    return found


@pytest.mark.parametrize("local_disk_bytes", [0, 2**30], ids=["through the bucket", "over the disk"])
def test_events_come_in_the_order_of_arrival_over_many_ranges_and_files(
    make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, local_disk_bytes: int
) -> None:
    lake, source, chance = make_lake(), Source(), random.Random(5)
    lake.local_disk_bytes = local_disk_bytes
    lake.merge_limits = {"least_file_bytes": 2_000, "least_log_bytes": 5_000}
    written: list[str] = []
    put = S3Store.put

    def watched_put(store: S3Store, key: str, *rest: Any) -> None:
        written.append(key)
        put(store, key, *rest)

    monkeypatch.setattr(S3Store, "put", watched_put)
    ids = list(range(500))
    run(lake, [source.record(id_, 1, name=noise(chance)) for id_ in ids], 1)
    chance.shuffle(ids)
    run(lake, [source.record(id_, 2, name=noise(chance)) for id_ in ids], 2)

    manifest = manifests(lake)[-1]
    records = records_of(lake, manifest)

    assert len(manifest.files) == InlineEngine.cores
    assert sorted(file.key for file in manifest.files) == [file.key for file in manifest.files]
    assert [record["key"]["id"] for record in records] == ids
    assert [record["sequence"] for record in records] == list(range(501, 1_001))
    assert len(lake.files(".parquet")) > 2
    assert any(key.endswith(".arrows") for key in written) == (local_disk_bytes == 0)
    assert not list(lake.store.list("lake/airbyte_internal/_raw__stream_users/scratch/"))
    assert not any(path.is_file() for path in (lake.directory / "events").rglob("*"))


def test_a_value_that_was_not_provided_is_that_of_the_row_before(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(after_image="ALL"), Source()
    run(lake, [source.record(1, 1, name="large"), source.record(2, 1, name=PLACEHOLDER)], 1)
    run(lake, [source.record(1, 2, name=PLACEHOLDER, amount=2), source.record(3, 3, name=PLACEHOLDER)], 2)

    found = records_of(lake, manifests(lake)[-1])

    assert stored(lake)[1] == {"id": 1, "name": "large", "amount": 2.0, "tags": None}
    assert stored(lake)[2]["name"] is None
    assert [record["new"] for record in found] == [{"id": 1, "amount": 2.0, "tags": None}, {"id": 3, "amount": None, "tags": None}]
    metas = {row["id"]: row["_airbyte_meta"]["changes"] for row in lake.glob()}
    lost = [{"field": "name", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}]
    assert metas == {1: [], 2: lost, 3: lost}


def test_a_cursor_cell_says_where_the_record_stands_in_the_source(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 1)], 1)
    run(lake, [source.record(1, 17, extracted_at=1_234, name="x")], 2)

    assert records_of(lake, manifests(lake)[-1])[0]["cursor"] == {
        "_ab_cdc_lsn": 17,
        "_ab_cdc_updated_at": "2026-01-02T03:04:05.678Z",
        "timestamp": 1767323045678,
        "extractionTimestamp": 1234,
        "v": 1,
    }


def test_a_table_that_was_emptied_has_a_snapshot_without_rows(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 9)], 1)
    lake.sync(cdc_catalog(generation=2, minimum=2), [complete()])

    manifest = manifests(lake)[-1]

    assert (manifest.kind.value, [file.rows for file in manifest.files], manifest.operation_count.total) == ("snapshot", [0], 0)
    assert records_of(lake, manifest) == []


def test_a_log_that_begins_later_begins_with_the_whole_table(make_lake: Callable[..., Lake]) -> None:
    chance, source = random.Random(1), Source()
    lake = make_lake()
    lake.merge_limits = {"least_file_bytes": 2_000}
    lake.options = {}
    run(lake, [source.record(id_, 1, name=noise(chance)) for id_ in range(800)], 1)
    files = len(lake.files(".parquet"))
    lake.options = {"change_log": {"enabled": True, "format": "jsonl"}}
    run(lake, [source.record(5, 2, name="new"), source.record(6, 2, deleted=True)], 2)

    manifest = manifests(lake)[-1]
    rows = replayed({}, records_of(lake, manifest), COLUMNS)

    assert files > 2
    assert (manifest.kind.value, manifest.operation_count.insert_count) == ("snapshot", 799)
    assert rows == stored(lake)
    assert [record["sequence"] for record in records_of(lake, manifest)] == list(range(1, 800))


def test_a_log_with_a_gap_begins_anew(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    logged = lake.options
    for number, options in enumerate([logged, {}, logged], 1):
        lake.options = options
        run(lake, [source.record(number, number)], number)

    assert [manifest.kind.value for manifest in manifests(lake)] == ["snapshot", "snapshot"]
    assert replayed({}, records_of(lake, manifests(lake)[-1]), COLUMNS) == stored(lake)


def test_without_cdc_fields_a_log_has_the_rows_that_changed(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()

    def sync(records: Sequence[Record], number: int) -> None:
        text = b"".join(record({"id": one.id, **one.values}, emitted_at=one.extracted_at) for one in records)
        lake.sync(cdc_catalog(properties=DATA), [text, state(number), complete()])

    sync([source.record(1, None, name="a"), source.record(2, None, name="b")], 1)
    sync([source.record(id_, None, 2_000, name=name) for id_, name in ((1, "x"), (1, "a2"), (2, "b"), (3, "c"))], 2)

    upserts = manifests(lake)[-1]

    assert (upserts.kind.value, upserts.operation_count.insert_count) == ("upserts", 4)
    assert [record["new"]["name"] for record in records_of(lake, upserts)] == ["a2", "c"]


def test_a_soft_deletion_is_one_in_the_log(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(tables={"cdc_deletion_mode": "soft"}), Source()
    run(lake, [source.record(1, 1, name="a"), source.record(2, 1, deleted=True)], 1)
    run(lake, [source.record(1, 2, deleted=True)], 2)
    run(lake, [source.record(1, 3, name="back")], 3)

    log = [[(record["op"], record["key"]["id"]) for record in records_of(lake, manifest)] for manifest in manifests(lake)]

    assert log == [[("S", 1)], [("D", 1)], [("I", 1)]]
    assert sorted(stored(lake)) == [1, 2]


@pytest.mark.parametrize("file_format", ["Parquet", "JSONL"])
def test_a_log_of_soft_deletions_makes_the_rows_that_are_not_deleted(make_lake: Callable[..., Lake], file_format: str) -> None:
    lake = make_lake(file_format, {"cdc_deletion_mode": "soft"}, before_image="ALL")
    lake.merge_limits = {"least_file_bytes": 6_000}
    chance, source, table = random.Random(file_format), Source(), Table()
    rows: dict[int, Row] = {}
    for number in range(1, 5):
        records = [
            replace(record, values=dict.fromkeys(record.values)) if record.deleted else record
            for record in source.random_records(chance, 2 * KEYS, number * 5)
        ]
        expected = table.merge(records)
        run(lake, records, number)

        found = records_of(lake, manifests(lake)[-1])
        if number > 1:
            assert [(record["new"], record["old"]) for record in found] == [event.images("ALL", "UPDATED") for event in expected]
        rows = replayed(rows, found, COLUMNS)
        assert rows == table.rows
        assert stored(lake) == table.rows | table.deleted
    assert len(table.deleted) > 10
    assert any(any(row[name] for name in ("amount", "name", "tags")) for row in table.deleted.values())


@pytest.mark.parametrize("file_format", ["Parquet", "JSONL"])
def test_softly_deleted_rows_are_none_to_a_log_with_hard_deletions(make_lake: Callable[..., Lake], file_format: str) -> None:
    lake, source = make_lake(file_format, {"cdc_deletion_mode": "soft"}), Source()
    run(lake, [source.record(id_, 1, name="a", amount=1) for id_ in range(1, 6)], 1)
    run(lake, [source.record(id_, 2, deleted=True) for id_ in (1, 2, 3, 4)], 2)
    lake.options = {**lake.options, "tables": {}}
    run(lake, [source.record(1, 3, name="back", amount=1), source.record(2, 3, deleted=True), source.record(6, 3)], 3)
    refreshed = [source.record(id_, 4, name="again", amount=1) for id_ in (1, 3, 6)]
    run(lake, refreshed, 4, cdc_catalog(2, 2))

    log = [records_of(lake, manifest) for manifest in manifests(lake)]

    assert [(record["op"], record["key"]["id"]) for record in log[2]] == [("I", 1), ("I", 6)]
    assert [(record["op"], record["key"]["id"]) for record in log[3]] == [("D", 5), ("U", 1), ("I", 3), ("U", 6)]
    rows: dict[int, Row] = {}
    for found in log:
        rows = replayed(rows, found, COLUMNS)
    assert rows == stored(lake)


def test_a_log_that_begins_after_soft_deletions_has_no_deleted_row(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    lake.options = {"tables": {"cdc_deletion_mode": "soft"}}
    run(lake, [source.record(1, 1, name="a"), source.record(2, 1, name="b"), source.record(1, 2, deleted=True)], 1)
    lake.options = make_lake().options
    run(lake, [source.record(3, 3, name="c")], 2)
    assert [record["key"]["id"] for record in records_of(lake, manifests(lake)[0])] == [2, 3]


def test_a_merge_that_changes_nothing_adds_nothing(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(1, 1, name="a")], 1)
    run(lake, [source.record(1, 2, name="a"), source.record(1, 0, name="late"), source.record(9, 5, deleted=True)], 2)
    run(lake, [source.record(1, 3, name="b")], 3)

    assert [manifest.operation_count.total for manifest in manifests(lake)] == [1, 2]


def test_another_schema_is_another_group_with_the_new_columns_last(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(format="replicant_csv", include_header=True), Source()
    run(lake, [source.record(1, 1)], 1)
    run(lake, [source.record(1, 2, name="b")], 2)
    wider = {"aaa": {"type": ["null", "string"]}, **DATA, **CDC}
    run(lake, [source.record(1, 3, name="c")], 3, cdc_catalog(properties=wider))

    found = manifests(lake)

    assert [[column.name for column in manifest.columns] for manifest in found] == [list(COLUMNS)] * 2 + [[*COLUMNS, "aaa"]]
    text = gzip.decompress(lake.store.get(FOLDER + found[-1].files[0].key)).decode()
    assert text.startswith("amount_New_Val,amount_Old_Val,amount_Exists_Val,id_New_Val,")
    assert ",aaa_New_Val,aaa_Old_Val,aaa_Exists_Val,opType,cursor,operationcount\n" in text


def test_rows_that_are_written_anew_begin_the_log_anew(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(tables={"schema_change": "rewrite"}), Source()
    run(lake, [source.record(1, 1, amount=2), source.record(2, 1)], 1)
    as_text = {**DATA, **CDC, "amount": {"type": ["null", "string"]}}
    run(lake, [source.record(1, 2, amount=7)], 2, cdc_catalog(properties=as_text))
    run(lake, [source.record(2, 2, amount=8)], 3, cdc_catalog(properties=as_text))
    run(lake, [source.record(3, 3, name="x")], 4, cdc_catalog(properties=as_text, key="name"))

    found = manifests(lake)

    assert [(manifest.kind.value, manifest.schema_id, manifest.primary_key) for manifest in found] == [
        ("snapshot", 0, ("id",)),
        ("snapshot", 1, ("id",)),
        ("changes", 1, ("id",)),
        ("changes", 1, ("id",)),
        ("snapshot", 2, ("name",)),
    ]
    assert [record["new"] for record in records_of(lake, found[2])] == [{"amount": "7"}]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "replicant_csv", "replicant_json"])
def test_a_field_of_cdc_may_be_part_of_the_key(make_lake: Callable[..., Lake], form: str) -> None:
    lake, source, catalog = make_lake(format=form), Source(), cdc_catalog(key="_ab_cdc_lsn")
    run(lake, [source.record(1, 1, name="a"), source.record(2, 2)], 1, catalog)
    run(lake, [source.record(1, 1, 2_000, name="b"), source.record(3, 3)], 2, catalog)
    found = [list(records_of(lake, manifest)) for manifest in manifests(lake)]
    keys = [[str(record["key"]["_ab_cdc_lsn"]) for record in records] for records in found]
    assert keys == [["1", "2"], ["1", "3"]]
    assert found[1][0]["new"] == {"name": "b"}


def test_a_commit_that_failed_is_made_again_with_the_same_bytes(
    make_lake: Callable[..., Lake], make_bucket: Callable[[], S3Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    first = [source.record(id_, 1, name=str(id_)) for id_ in range(50)]
    second = [source.record(id_, 2, name=f"{id_}b") for id_ in range(0, 70, 2)]

    def dying(self: InlineEngine, function: Callable[[Any], Any], groups: Any, progress: object = None) -> Any:
        done = [[function(task) for task in tasks] for tasks in groups]
        if function.__name__ == "render_changes":
            raise TransientError("the machine is gone")
        return done

    undisturbed = make_lake(format="replicant_csv")
    run(undisturbed, first, 1)
    run(undisturbed, second, 2)
    disturbed = make_lake(format="replicant_csv")
    disturbed.settings = make_bucket()
    run(disturbed, first, 1)
    with monkeypatch.context() as patch:
        patch.setattr(InlineEngine, "run", dying)
        with pytest.raises(TransientError):
            run(disturbed, second, 2)
    assert len(manifests(disturbed)) == 1
    disturbed.sync(cdc_catalog(), [state(3), complete()])

    assert last_files(disturbed) == last_files(undisturbed)
    counted = manifests(disturbed)[-1].operation_count
    assert (counted.insert_count, counted.update_count) == (60, 25)
    assert not disturbed.memory.uploads


def test_a_stream_without_a_primary_key_is_refused_at_the_start(make_lake: Callable[..., Lake]) -> None:
    with pytest.raises(ConfigError, match=r"Stream 'users' has no primary key, and change_log is enabled"):
        make_lake().sync(cdc_catalog(key=None), [complete()])


def test_rows_of_one_key_that_fill_many_portions_keep_their_order(make_lake: Callable[..., Lake]) -> None:
    lake, source, chance = make_lake(), Source(), random.Random(2)
    lake.limits = Limits(batch_bytes=200_000, age_s=3600, spool_bytes=2**31)
    run(lake, [source.record(1, 0, name="first")], 1)
    records = [source.record(1, lsn, name=noise(chance) * 20) for lsn in range(1, 2_001)]
    pieces = [lines(records[start : start + 100]) + state(start) for start in range(0, 2_000, 100)]
    lake.sync(cdc_catalog(), [*pieces, complete()])

    found = records_of(lake, manifests(lake)[-1])

    assert [record["cursor"]["_ab_cdc_lsn"] for record in found] == list(range(1, 2_001))
    assert {record["op"] for record in found} == {"U"}
    assert stored(lake)[1]["name"] == records[-1].values["name"]


def test_a_log_has_every_version_of_runs_that_are_combined_first(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(), Source()
    run(lake, [source.record(id_, 0, name="first") for id_ in range(20)], 1)
    lake.merge_budget_bytes = 1
    lake.limits = Limits(batch_bytes=100, age_s=900, spool_bytes=100)
    records = [source.record(id_, lsn, name=f"{lsn}") for lsn in range(1, 10) for id_ in range(20)]
    pieces = [lines(records[start : start + 20]) + state(start) for start in range(0, len(records), 20)]
    lake.sync(cdc_catalog(), [*pieces, complete()])

    found = records_of(lake, manifests(lake)[-1])

    assert [(record["key"]["id"], record["cursor"]["_ab_cdc_lsn"]) for record in found] == [(one.id, one.lsn) for one in records]
    assert {row["name"] for row in stored(lake).values()} == {"9"}


def test_headers_and_text_formats_are_gzip_files_that_any_tool_reads(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(format="replicant_csv", include_header=True), Source()
    run(lake, [source.record(1, 1, name="a")], 1)

    key = next(name for name in change_log_names(lake) if name.endswith("-snapshot.csv.gz"))

    assert gzip.decompress(lake.store.get(key)) == b"amount,id,name,tags\nNULL,1,a,NULL\n"
