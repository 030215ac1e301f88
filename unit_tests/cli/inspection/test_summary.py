from __future__ import annotations

from datetime import timedelta

import msgspec

from destination_s3_spark.chain.events import (
    Close,
    OpenEpoch,
)
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.commits import SyncEnd, commits, syncs
from destination_s3_spark.cli.inspection.summary import summary
from destination_s3_spark.cli.inspection.table import InspectedTable
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, START, HandMadeChain, add_data


def test_the_summary_tells_final_and_raw_files_apart(table: InspectedTable) -> None:
    found = summary(table)

    assert (found.table, found.generation, found.rows, found.columns) == ("shop.orders", 3, 1_200, 6)
    assert (found.files, found.bytes, found.raw_files, found.raw_bytes) == (1, 1_500_000, 1, 1_500_000)
    assert (found.last_sync_id, found.last_sync_started_at, found.last_session_end) == (7, START, SyncEnd.CLEAN)


def test_facts_about_a_table(table: InspectedTable) -> None:
    assert {name: value for name, value in views.facts(summary(table)).items() if value} == {
        "stream": "shop.orders",
        "table": "shop_raw__stream_orders",
        "final root": "lake/shop/orders/",
        "mode": "append",
        "primary key": "id",
        "generation": "3",
        "rows": "1,200",
        "last sync": "7, started 2026-03-01 12:30:00, epoch 1",
        "ended": "cleanly",
        "settled": "all data, up to block 2",
    }


def test_a_block_that_is_not_settled_is_named() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5))
    whole = views.facts(summary(chain.inspected()))
    chain.left_out = 2
    unseen = views.facts(summary(chain.inspected()))

    assert whole["settled"] == "block 2 is written and all its files are there: the next sync or `repair` finishes it"
    assert str(unseen["settled"]).startswith("block 2 is written, its files are not all there and not shown here")
    assert unseen["ended"] == "not yet, or not cleanly"


def test_after_a_repair_the_last_sync_is_the_one_before_it() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Close(), settled=2)
    chain.append(OpenEpoch(0, 3, START + timedelta(hours=1)), settled=2).append(Close(), settled=2)

    repaired = chain.inspected()

    assert str(views.facts(summary(repaired))["last sync"]).startswith("7, started 2026-03-01 12:30:00")
    assert [sync.sync_id for sync in syncs(repaired.blocks)] == [7, None]
    assert commits(repaired)[4].summary == "epoch 2, no sync id, generation 3"


def test_syncs_without_an_id_are_syncs() -> None:
    chain = HandMadeChain().append(msgspec.structs.replace(SEED, sync_id=0)).append(SCHEMA)
    chain.append(msgspec.structs.replace(add_data(0, 5), sync_id=0)).append(Close(), settled=2)

    found = chain.inspected()

    assert [sync.sync_id for sync in syncs(found.blocks)] == [0]
    assert str(views.facts(summary(found))["last sync"]).startswith("no sync id, started 2026-03-01 12:30:00")
    assert commits(found)[0].summary == "table shop.orders begins, no sync id, generation 3"


def test_a_table_of_repairs_alone_has_no_last_sync() -> None:
    chain = HandMadeChain().append(SEED).append(Close()).append(OpenEpoch(0, 3, START))
    table = chain.inspected()
    cut = InspectedTable(table.state, table.readable, table.blocks[2:], table.schemas)

    assert summary(cut).last_sync_id is None
    assert views.facts(summary(cut))["last sync"] == "none among the blocks that were read"
