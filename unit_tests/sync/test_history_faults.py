"""Faults of histories that `verify` finds in their rows, and none in sound ones, partitioned and softly deleted rows included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.history import faults
from destination_s3_spark.tables.history.faults import history_faults
from destination_s3_spark.tables.runs.footers import with_keys
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sync.versioned_lake import COLUMNS, HISTORY, Change, lines, sync, users

Damage = Callable[[pa.Table], pa.Table]


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": HISTORY})


def damaged(lake: Lake, kind: FileKind, change: Damage) -> list[str]:
    """What is found if the rows of the files of a kind are others."""
    store, found = lake.store, lake.own_chain()
    live = found.live_files()

    def rewritten(file: FileEntry) -> Iterator[FileEntry]:
        if file.kind is not kind:
            yield file
            return
        source = pa.BufferReader(store.get(file.key))
        table, footer = pq.read_table(source), pq.ParquetFile(source).metadata.metadata
        rows, sink = change(table), pa.BufferOutputStream()
        if not len(rows):
            return
        pq.write_table(rows.replace_schema_metadata(footer), sink)
        body, key = sink.getvalue().to_pybytes(), f"{file.key}-damaged"
        store.put(key, body)
        yield replace(file, key=key, bytes=len(body), rows=len(rows))

    files = with_keys([new for file in live.files for new in rewritten(file)], store)
    keys = {file.key: file.keys for file in files if file.keys is not None}
    return list(history_faults(store, found.head, replace(live, files=tuple(files)), keys))


def at_another_time(name: str, minutes: int) -> Damage:
    def change(rows: pa.Table) -> pa.Table:
        number = rows.schema.get_field_index(name)
        moved = pc.add(rows[name], pa.scalar(minutes * 60_000_000, pa.duration("us")))
        return rows.set_column(number, rows.schema.field(number), moved)

    return change


def flagged(name: str) -> Damage:
    def change(rows: pa.Table) -> pa.Table:
        number = rows.schema.get_field_index(name)
        return rows.set_column(number, rows.schema.field(number), pc.invert(rows[name]))

    return change


NO_VERSION = "history 1: 1 key with a row in the table, but no valid version"
NO_ROW = "history 1: 1 key with a valid version, but no row in the table"
DAMAGES: dict[str, tuple[FileKind, Damage, list[str]]] = {
    "an end too late": (FileKind.CLOSED, at_another_time("_valid_to", 1), ["history 1: 1 key with versions that overlap"]),
    "a beginning too early": (FileKind.CURRENT, at_another_time("_valid_from", -1), ["history 1: 1 key with versions that overlap"]),
    "an end before the beginning": (
        FileKind.CLOSED,
        at_another_time("_valid_to", -5),
        ["history 1: 2 keys with a version whose columns contradict each other or its file"],
    ),
    "versions twice": (
        FileKind.CURRENT,
        lambda rows: rows.take([0, 0, 1]),
        ["history 1: 1 key with versions that overlap", "history 1: 1 key with more than one valid version"],
    ),
    "another word": (
        FileKind.CURRENT,
        flagged("_is_deleted"),
        ["history 1: 2 keys with a version whose columns contradict each other or its file"],
    ),
    "a version that is lost": (
        FileKind.CURRENT,
        lambda rows: rows.slice(0, 1),
        [NO_VERSION],
    ),
    "a row that is lost": (
        FileKind.FINAL,
        lambda rows: rows.slice(0, 1),
        [NO_ROW],
    ),
    "all rows lost": (FileKind.FINAL, lambda rows: rows.slice(0, 0), [NO_ROW.replace("1 key", "2 keys")]),
    "nothing": (FileKind.CLOSED, lambda rows: rows, []),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_fault_is_found_without_a_value(lake: Lake, damage: str) -> None:
    a, b = {"name": "a"}, {"name": "b"}
    sync(lake, Change(1, 1, a), Change(1, 3, b), Change(2, 2, a), Change(3, 2, a), Change(3, 4, None))
    kind, change, expected = DAMAGES[damage]
    assert damaged(lake, kind, change) == expected


def test_verify_reads_histories_in_small_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "READ_AT_ONCE_BYTES", 1_000)
    monkeypatch.setattr(faults, "LOOKED_AT_BYTES", 1_000)
    looked: list[int] = []
    look = faults._Faults.look

    def counted(found: faults._Faults, rows: pa.Table, *, beside_table: bool) -> None:
        looked.append(len(rows))
        look(found, rows, beside_table=beside_table)

    monkeypatch.setattr(faults._Faults, "look", counted)
    lake.merge_limits, lake.merge_budget_bytes = {"least_file_bytes": 3_000}, 2**20
    for at in range(1, 4):
        sync(lake, *(Change(number, at, {"name": f"{number} {at}" * 20}) for number in range(500)))
    assert lake.verified().problems == ()
    assert (sum(looked), max(looked) < 1_000) == (2_000, True)


@pytest.mark.parametrize(
    "options",
    [
        {"cdc_deletion_mode": "soft"},
        {"partition_by": [{"stream": "*", "column": "name", "transform": "identity"}]},
        {"partition_by": [{"stream": "*", "column": "id", "transform": "identity"}], "cdc_deletion_mode": "soft"},
    ],
    ids=["soft", "by another column", "by the key, soft"],
)
def test_sound_tables_of_every_kind_have_no_faults(lake: Lake, options: dict[str, object]) -> None:
    lake.options = {"tables": {**HISTORY, **options}}
    key = "name" if options.get("partition_by") and "name" in str(options) else "id"
    sync(lake, *(Change(number, 1, {"name": f"n{number}"}) for number in range(6)), catalog=users(key=key))
    gone = Change(3, 2, None) if key == "id" else Change(3, 2, {"name": "n4"})
    sync(lake, gone, Change(4, 3, {"name": "n4", "amount": 7}), catalog=users(key=key))
    assert lake.verified().problems == ()
    lake.options = {"tables": {**HISTORY, **options, "cdc_deletion_mode": "hard"}}
    sync(lake, Change(5, 6, {"name": "n5", "amount": 8}), catalog=users(key=key))
    assert lake.verified().problems == ()


def test_histories_of_another_key_are_not_read(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(1, 2, {"name": "b"}))
    sync(lake, Change(1, 5, {"name": "b"}), catalog=users(2, 2, key="name"))
    assert lake.verified().problems == ()
    changed = {**COLUMNS, "amount": {"type": ["null", "string"]}}
    lake.options = {"tables": {**HISTORY, "schema_change": "rewrite"}}
    sync(lake, Change(1, 6, {"name": "b", "amount": "1"}), catalog=users(2, key="name", columns=changed))
    assert lake.verified().problems == ()


def test_a_history_is_not_read_by_a_column_that_was_recovered_after_it_had_ended(lake: Lake) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 2, {"name": "b"}))
    texts = users(columns={**COLUMNS, "id": {"type": "string"}})
    lake.sync(texts, [lines([{**Change(3, 3, {"name": "c"}).data, "id": "3"}]), state(3), complete()])
    sync(lake, Change(4, 4, {"name": "d"}), catalog=users(mode="append"))
    of_key = [column for column in from_event(lake.own_chain().head.schema or {}).fields if column.source == "id"]
    assert [column.recovered_from is not None for column in of_key] == [False, True]
    assert lake.verified().problems == ()
