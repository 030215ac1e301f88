from __future__ import annotations

from msgspec.structs import replace

from destination_s3_spark.chain.events import (
    MergeData,
    Void,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.settle import Readable
from destination_s3_spark.cli.inspection.commits import MERGES_COUNTED, commits, merge_cost, syncs
from destination_s3_spark.cli.inspection.table import InspectedTable, file_totals, table_files
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, HandMadeChain, add_data, nulled


def test_blocks_say_what_they_did(table: InspectedTable) -> None:
    found = commits(table)

    assert [(row.block, row.kind) for row in found] == [(0, "Seed"), (1, "SetDataSchema"), (2, "AddData"), (3, "Close")]
    assert found[0].summary == "table shop.orders begins, sync 7, generation 3"
    assert found[1].summary.startswith("schema 0, version 1-0-0: 2 data columns; KeyAddition /")
    assert found[2].summary == "1,200 rows, 2 files (3.0 MB), 1 checkpoint, 3 values changed"
    assert (found[2].rows, found[2].files_added, found[2].bytes_added, found[2].checkpoints, found[2].values_changed) == (
        1_200,
        2,
        3_000_000,
        1,
        3,
    )
    assert found[3].summary == "the session ended cleanly"


def test_numbers_of_one_have_a_singular() -> None:
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 1, 1_500_000)
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 1, 7, "upload")
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 1, nulled(1)))

    found = commits(chain.append(MergeData(0, 7, 3, 0, (merged,), (removed,)), settled=2).inspected())

    assert found[2].summary == "1 row, 2 files (3.0 MB), 1 checkpoint, 1 value changed"
    assert found[3].summary == "rows come into the final table: 1 file with 1 final row in, 1 file out"
    assert (found[3].rows, found[3].files_removed) == (1, 1)


def test_the_size_of_the_table_is_known_after_each_block() -> None:
    removed = FileEntry(FileKind.FINAL, "final/0.parquet", 5, 1_500_000)
    merged = FileEntry(FileKind.FINAL, "final/1.parquet", 3, 7, "upload")
    chain = (
        HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(MergeData(0, 7, 3, 4, (merged,), (removed,)), settled=2)
    )
    chain.append(add_data(5, 9), settled=3).append(Void(4), settled=3)

    table = chain.inspected()
    cut = InspectedTable(table.state, table.readable, table.blocks[3:], table.schemas)

    sizes = [(row.table_rows, row.table_bytes) for row in commits(table)]
    assert sizes == [(0, 0), (0, 0), (5, 1_500_000), (3, 7), (3, 7), (3, 7)]
    assert [(row.table_rows, row.table_bytes) for row in commits(cut)] == sizes[3:]


def test_a_block_that_readers_do_not_see_does_not_count() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(add_data(5, 9), settled=2)
    assert [row.table_rows for row in commits(chain.inspected())] == [0, 0, 5, 14]

    before = chain.state.unsettled.before  # type: ignore[union-attr]
    table = chain.inspected()
    unseen = InspectedTable(table.state, Readable(before, table.readable.live, 3), table.blocks, table.schemas)
    assert [row.table_rows for row in commits(unseen)] == [0, 0, 5, 5]


def test_a_voided_block_leaves_no_files_and_is_marked() -> None:
    table = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Void(2)).inspected()

    assert (file_totals(table), table_files(table)) == ((), ())
    assert [row.taken_back for row in commits(table)] == [False, False, True, False]
    assert commits(table)[3].summary == "takes back block 2"
    (sync,) = syncs(table.blocks)
    assert (sync.rows, sync.commits, sync.commits_taken_back) == (0, 0, 1)


def test_the_cost_of_merges_is_that_of_the_newest_ones_with_the_runs_that_were_combined_for_them() -> None:
    landed = tuple(FileEntry(FileKind.DELTA, f"run {number}", 1, 10_000, "upload") for number in range(100))
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(replace(add_data(0, 100), files=landed))

    def rewrite(name: str, size: int, runs: int, *, data_change: bool = True, kind: FileKind = FileKind.FINAL) -> None:
        """A block that writes a file and takes in runs of so many bytes."""
        files = (FileEntry(kind, name, 10, size, "upload"), FileEntry(FileKind.CHANGES, f"log {name}", 1, 70, "upload"))
        removed = (FileEntry(FileKind.DELTA, f"run {name}", 1, runs),) if runs else ()
        assert chain.state is not None
        chain.append(MergeData(0, 7, 3, 0, files, removed, data_change=data_change), settled=chain.state.last_data)

    rewrite("first", 5_000, 5_000)
    assert merge_cost(chain.inspected()) is None  # there was nothing to rewrite
    rewrite("joined", 9_000, 0, data_change=False)  # small files, whose joining no setting of merges lowers
    for number in range(MERGES_COUNTED + 2):
        rewrite(f"run {number}", 100, 90, data_change=False, kind=FileKind.DELTA)
        rewrite(f"merge {number}", 1_900, 100)
    rewrite("voided", 1_900, 1)
    assert chain.state is not None
    chain.append(Void(len(chain.blocks) - 1), settled=chain.state.settled)

    cost = merge_cost(chain.inspected())
    assert cost is not None
    assert (cost.merges, cost.bytes_merged, cost.bytes_written) == (10, 1_000, 20_000)
    assert (cost.amplification, cost.advice) == (20, None)
    assert str(cost) == "the last 10 wrote 20.0 kB for 1.0 kB of new rows: 20 bytes for each byte"

    rewrite("larger", 2_100, 100)
    cost = merge_cost(chain.inspected())
    assert cost is not None
    assert str(cost) == (
        "the last 10 wrote 20.1 kB for 1.0 kB of new rows: 20 bytes for each byte. "
        "The setting tables.merge lets new rows wait, so that more of them share a merge"
    )
