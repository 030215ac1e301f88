"""A Delta table on S3: what readers see of it, and that other programs can do nothing to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import deltalake
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake.exceptions import DeltaError

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.delta_log.actions import Add, decode_commit
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.publishers.delta import DeltaTable
from unit_tests.lake.memory_client import bucket_of
from unit_tests.tables.publishers.delta_readers import DeltaReaders

COLUMNS = [("id", pa.int64())]
SERVED = pytest.mark.usefixtures("served_settings")
"""Other programs read and write there."""


@pytest.fixture
def table(make_table: Callable[..., Any]) -> Any:
    return make_table()


def readers(table: Any) -> DeltaReaders:
    return DeltaReaders.on_s3(table.settings, table.table.final_root)


def synced(table: Any, sync_id: int, *ids: int) -> None:
    writer = table.writer(sync_id, publishers=[DeltaTable()])
    schema = table.set_schema(writer, 0, COLUMNS)
    rows = table.rows(schema, *({"id": number} for number in ids))
    table.commit(writer, table.stage(writer, FileKind.FINAL, rows), table.stage(writer, FileKind.RAW, rows))
    writer.close()


def merged(table: Any, sync_id: int, *ids: int, keep: timedelta = timedelta()) -> None:
    writer = table.writer(sync_id, publishers=[DeltaTable()], keep_replaced=keep)
    schema = table.set_schema(writer, 0, COLUMNS)
    file = table.stage(writer, FileKind.FINAL, table.rows(schema, *({"id": number} for number in ids)))
    writer.merge([file], writer.live_files().of(FileKind.FINAL), None)
    writer.close()


@SERVED
def test_each_version_is_read_over_two_checkpoints(table: Any) -> None:
    for sync_id in range(1, 24):
        synced(table, sync_id, sync_id)
        if sync_id in {1, 10, 11, 12, 21, 22, 23}:
            assert readers(table).values() == list(range(1, sync_id + 1))
    assert readers(table).table().version() == 22


@SERVED
def test_a_merge_is_read_with_and_without_the_checkpoint_after_it(table: Any) -> None:
    for sync_id in range(1, 11):
        synced(table, sync_id, sync_id)
    for sync_id in range(11, 14):
        merged(table, sync_id, 100, sync_id)
        assert readers(table).values() == [sync_id, 100]


@SERVED
def test_a_query_that_was_planned_before_a_merge_finds_its_files(table: Any) -> None:
    synced(table, 1, 1)
    synced(table, 2, 2)
    planned = readers(table).table()
    merged(table, 3, 3, keep=timedelta(hours=1))

    assert readers(table).values() == [3]
    assert sorted(planned.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == [1, 2]
    later = readers(table).table()
    merged(table, 4, 4)
    with pytest.raises(OSError, match=r"(?i)not found|404"):
        later.to_pyarrow_table()


@SERVED
def test_rows_are_found_while_a_value_has_no_bound_and_after_it_is_gone(table: Any) -> None:
    """delta-rs loses rows of a file that lacks bounds of a column, unless the log says that the column has no statistics."""
    columns = [("id", pa.int64()), ("total, gross", pa.decimal128(38, 2)), ("day", pa.date32())]
    kept = [{"id": 0, "total, gross": Decimal(10**20)}, {"id": 1, "total, gross": Decimal(1), "day": date(2026, 1, 1)}]

    def write(sync_id: int, *rows: dict[str, object], merge: bool = False) -> None:
        writer = table.writer(sync_id, publishers=[DeltaTable()])
        typed = table.rows(table.set_schema(writer, 0, columns), *rows)
        if merge:
            writer.merge([table.stage(writer, FileKind.FINAL, typed)], writer.live_files().of(FileKind.FINAL), None)
        else:
            table.commit(writer, table.stage(writer, FileKind.FINAL, typed), table.stage(writer, FileKind.RAW, typed))
        writer.close()

    def found(condition: Any) -> list[int]:
        dataset = readers(table).table().to_pyarrow_dataset()
        return sorted(dataset.to_table(filter=condition)["id"].to_pylist())

    total = pc.field("total, gross")
    write(1, *kept)
    write(2, {"id": 2, "total, gross": Decimal(7), "day": date(2026, 1, 2)})
    assert found(total > pa.scalar(Decimal(5), pa.decimal128(38, 2))) == [0, 2]
    assert found(total < pa.scalar(Decimal(5), pa.decimal128(38, 2))) == [1]
    assert found(pc.field("day") == date(2026, 1, 1)) == [1]
    assert readers(table).polars().filter(pl.col("id") >= 1, pl.col("total, gross") < 8).collect()["id"].sort().to_list() == [1, 2]
    first, second = (_bounds(table, version) for version in range(2))
    assert (first["id"], first["day"], second["id"], second["total, gross"]) == ((0, 1), ("2026-01-01",) * 2, (2, 2), (7.0, 7.0))
    assert "total, gross" not in first

    write(3, {"id": 3, "total, gross": Decimal(9)}, merge=True)
    assert "delta.dataSkippingStatsColumns" not in readers(table).table().metadata().configuration
    assert found(total > pa.scalar(Decimal(5), pa.decimal128(38, 2))) == [3]


@SERVED
def test_a_file_that_the_chain_does_not_describe_has_all_bounds_or_none(table: Any) -> None:
    columns = [("id", pa.int64()), ("total", pa.decimal128(38, 2))]
    writer = table.writer(1, publishers=[DeltaTable()])
    schema = table.set_schema(writer, 0, columns)
    for number, total in enumerate((Decimal(10**20), Decimal(7))):
        rows = table.rows(schema, {"id": number, "total": total})
        final = msgspec.structs.replace(table.stage(writer, FileKind.FINAL, rows), statistics=None, unbounded=None)
        table.commit(writer, final, table.stage(writer, FileKind.RAW, rows))
    writer.close()

    dataset = readers(table).table().to_pyarrow_dataset()
    total = pc.field("total")
    found = [dataset.to_table(filter=total > pa.scalar(Decimal(least), pa.decimal128(38, 2))).num_rows for least in (5, 10)]
    assert found == [2, 1]
    assert sorted(str(file.partition_expression).count("7.00") for file in dataset.get_fragments()) == [0, 2]


def _bounds(table: Any, version: int) -> dict[str, tuple[Any, Any]]:
    """The bounds of the columns of the one file that a version of the log adds."""
    body = S3Store(table.settings).get(f"{table.table.final_root}_delta_log/{version:020}.json")
    (add,) = (action for action in decode_commit(body) if isinstance(action, Add))
    stats = json.loads(add.stats or "{}")
    return {name: (low, stats["maxValues"][name]) for name, low in stats["minValues"].items()}


ATTEMPTS: dict[str, Callable[[DeltaReaders], object]] = {
    "append": lambda found: _write(found, "append"),
    "overwrite": lambda found: _write(found, "overwrite"),
    "delete": lambda found: found.table().delete(),
    "optimize": lambda found: found.table().optimize.compact(),
    "vacuum": lambda found: found.table().vacuum(retention_hours=0, dry_run=False, full=True),
    "vacuum at any age": lambda found: found.table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True),
}


def _write(found: DeltaReaders, mode: Any) -> None:
    deltalake.write_deltalake(found.uri, found.table().to_pyarrow_table(), mode=mode, storage_options=found.options)


@SERVED
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_other_programs_cannot_write(table: Any, attempt: str) -> None:
    synced(table, 1, 1)
    synced(table, 2, 2)
    table.store.put(f"{table.table.final_root}not-in-the-log.parquet", b"PAR1")
    before = {info.key for info in table.store.list("")}
    with pytest.raises((DeltaError, OSError, ValueError), match=r"destinationS3Spark|retention period"):
        ATTEMPTS[attempt](readers(table))

    assert before <= {info.key for info in table.store.list("")}
    assert readers(table).values() == [1, 2]


@SERVED
def test_no_vacuum_finds_anything_to_delete_in_a_log_that_grew_old(table: Any) -> None:
    """Even one that did not look at the writer feature would ask for the retention."""
    synced(table, 1, 1)
    with pytest.raises(DeltaError, match="876000 hours"):
        readers(table).table().vacuum(retention_hours=24 * 365, dry_run=True)


@pytest.mark.parametrize("syncs", [12, 40])
def test_a_publication_takes_two_calls_however_old_the_table_is(table: Any, syncs: int) -> None:
    for sync_id in range(1, syncs + 1):
        synced(table, sync_id, sync_id)
    memory = bucket_of(table.settings)
    memory.forget()
    for sync_id in range(syncs + 1, syncs + 11):
        synced(table, sync_id, sync_id)

    calls = [call.action for call in memory.calls if "_delta_log" in call.key]
    assert len(calls) <= 3 * 10
    assert {operation: calls.count(operation) for operation in calls} == {"GetObject": 11, "PutObject": 12}
