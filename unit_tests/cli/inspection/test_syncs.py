from __future__ import annotations

from datetime import timedelta

from destination_s3_spark.chain.events import (
    Close,
    OpenEpoch,
)
from destination_s3_spark.cli.inspection.commits import SyncEnd, syncs
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, START, HandMadeChain, add_data, nulled


def test_a_sync_has_its_duration_rows_bytes_and_end() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5, nulled(2)))
    chain.append(add_data(5, 3), settled=2).append(Close(), settled=3)
    chain.append(OpenEpoch(8, 4, START + timedelta(seconds=5)), settled=3).append(add_data(8, 1), settled=3)
    chain.append(OpenEpoch(9, 4, START + timedelta(seconds=7)), settled=6).append(add_data(9, 2), settled=6)

    first, second, third = syncs(chain.blocks)

    assert (first.sync_id, first.started_at, first.duration_s, first.end) == (7, START, 4.0, SyncEnd.CLEAN)
    assert (first.rows, first.commits, first.files, first.bytes, first.values_changed) == (8, 2, 4, 6_000_000, 2)
    assert (second.sync_id, second.rows, second.duration_s, second.end) == (8, 1, 1.0, SyncEnd.UNCLEAN)
    assert (third.sync_id, third.rows, third.end, third.first_block, third.last_block) == (9, 2, SyncEnd.OPEN, 7, 8)


def test_a_sync_that_opens_its_table_twice_is_one() -> None:
    started = START + timedelta(minutes=1)
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5))
    chain.append(OpenEpoch(8, 3, started)).append(OpenEpoch(8, 3, started), settled=2).append(Close(), settled=2)

    assert [(sync.sync_id, sync.first_block, sync.last_block) for sync in syncs(chain.blocks)] == [(7, 0, 2), (8, 3, 5)]


def test_the_rest_of_a_sync_that_began_before_the_blocks_has_no_start() -> None:
    chain = HandMadeChain().append(SEED).append(SCHEMA).append(add_data(0, 5)).append(Close(), settled=2)

    (sync,) = syncs(chain.blocks[2:])

    assert (sync.sync_id, sync.started_at, sync.duration_s, sync.rows, sync.end) == (7, None, None, 5, SyncEnd.CLEAN)
