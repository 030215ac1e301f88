from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from destination_s3_spark.chain.events import (
    MergeData,
    OpenEpoch,
    Seed,
    SetDataSchema,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.state import Pending
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.summary import summary
from destination_s3_spark.cli.inspection.table import FileStatus, file_totals, table_files
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.schema.partitioning import Partitioning, PartitionSpec, Transform
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec, encode_key, key_column, key_range
from unit_tests.cases import each
from unit_tests.cli.inspection.hand_made_chain import KEY, KEYED, SCHEMA, SCHEMA_AGAIN, SEED, START, HandMadeChain, add_data


def test_files_are_listed_by_kind_and_those_of_a_pending_generation_apart() -> None:
    seed = Seed(SEED.stream, SEED.table_id, 42, "lake/shop/orders/", ("lake/shop/orders/old.parquet",), 7, 3, START)
    chain = HandMadeChain().append(seed).append(SCHEMA).append(add_data(0, 5))
    chain.append(OpenEpoch(8, 4, START, Pending(4, 5, 8)), settled=2).append(SCHEMA_AGAIN, settled=2)
    table = chain.append(add_data(5, 3, schema_id=1), settled=2).inspected()

    assert [(row.kind.value, row.standing, row.files, row.rows, row.bytes) for row in file_totals(table)] == [
        ("raw", FileStatus.LIVE, 1, 5, 1_500_000),
        ("raw", FileStatus.PENDING, 1, 3, 1_500_000),
        ("final", FileStatus.LIVE, 1, 5, 1_500_000),
        ("final", FileStatus.PENDING, 1, 3, 1_500_000),
        ("adopted", FileStatus.LIVE, 1, None, None),
    ]
    assert views.facts(summary(table))["pending"] == "generation 4 waits to replace the table, begun by sync 8"
    files = table_files(table)
    assert [(file.key, file.rows, file.block) for file in files] == [
        ("lake/shop/orders/old.parquet", None, None),
        ("raw/0.parquet", 5, 2),
        ("final/0.parquet", 5, 2),
        ("raw/5.parquet", 3, 5),
        ("final/5.parquet", 3, 5),
    ]
    assert files[1].committed_at == START + timedelta(seconds=2)


@each(("spec_key", "shown"), [(KEY, ("-5, a", "7, null")), (KEY[:1], (None, None))])
def test_files_that_are_sorted_by_key_show_its_range(spec_key: tuple[Field, ...], shown: tuple[str | None, str | None]) -> None:
    spec = KeySpec(spec_key, None, None, CdcDeletion.HARD)
    first, last = encode_key([pa.array([-5, 7]), pa.array(["a", None])], [Scalar.INTEGER, Scalar.STRING]).to_pylist()
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 2, 7, "upload", keys=key_range(first, last, spec.fingerprint))
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    chain = HandMadeChain().append(SEED).append(KEYED).append(add_data(0, 5))

    table = chain.append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2).inspected()

    assert [(file.first_key, file.last_key, file.block) for file in table_files(table) if file.kind is FileKind.FINAL] == [(*shown, 3)]


def test_files_of_partitions_show_them_and_their_keys_without_them() -> None:
    by = PartitionSpec("name", Transform.IDENTITY, "of")
    spec = KeySpec(KEY, None, None, CdcDeletion.HARD, partitioning=Partitioning(by, KEY[1]))
    meta = pa.array([{"sync_id": 0, "changes": []}] * 2, META_FIELDS[2].type)
    rows = pa.record_batch({"id": [-5, 7], "name": ["a", "a"], "_airbyte_meta": meta, "_airbyte_raw_id": ["", ""]})
    first, last = key_column(rows, spec).to_pylist()
    merged = FileEntry(
        FileKind.FINAL, "final/of=a/1.parquet", 2, 7, "upload", keys=key_range(first, last, spec.fingerprint), in_partition=True
    )
    divided = SetDataSchema({**KEYED.schema, "partition": by.to_json()})
    chain = HandMadeChain().append(SEED).append(divided).append(add_data(0, 5))
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    shown = table_files(chain.append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2).inspected())
    assert [(file.partition, file.first_key, file.last_key) for file in shown if file.kind is FileKind.FINAL] == [("a", "-5, a", "7, a")]
    assert "partition" in [cell.title for cell in views.files(shown).cells]
    assert "partition" not in [cell.title for cell in views.files([file for file in shown if file.partition is None]).cells]
