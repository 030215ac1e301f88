"""Why blocks are never deleted: a writer that slept for however long is fenced by the block after its head, and by nothing else."""

from __future__ import annotations

import pytest

from destination_s3_spark.chain.blocks import block_name
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import Fenced
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import CHAIN, FIRST, SECOND, TABLE, land, synced, writer

LATER_SYNCS = 60


def live_keys(store: Bucket) -> set[str]:
    chain = Chain(store, TABLE)
    chain.catch_up()
    return {file.key for file in chain.live_files().of(FileKind.FINAL)}


@each("commits", [0, 1])
def test_a_writer_that_slept_through_many_syncs_commits_nothing(commits: int) -> None:
    store = Bucket()
    synced(store)
    asleep = writer(store, sync_id=2)
    asleep.open()
    if commits:
        land(asleep, store, 0, 100)
        asleep.commit([FIRST])
    for number in range(LATER_SYNCS):
        synced(store, 3 + number)
    before = live_keys(store)
    land(asleep, store, 100 * commits, 100 * commits + 100)
    with pytest.raises(Fenced):
        asleep.commit([SECOND if commits else FIRST])
    asleep.abandon()

    assert live_keys(store) == before == {key for key in store.objects if key.startswith(TABLE.final_root) and key.endswith(".parquet")}


def test_a_sync_that_slept_before_it_opened_the_table_goes_on_from_the_newest_block() -> None:
    store = Bucket()
    synced(store)
    asleep = writer(store, sync_id=2)
    for number in range(LATER_SYNCS):
        synced(store, 3 + number)
    land(asleep, store, 0, 100)
    asleep.commit([FIRST])
    asleep.close()

    assert len(live_keys(store)) == 1 + LATER_SYNCS + 1


def test_without_the_block_after_its_head_it_would_lose_rows_silently() -> None:
    """What deleting old blocks would do, however old they are. The connector never does it."""
    store = Bucket()
    synced(store)
    asleep = writer(store, sync_id=2)
    head = asleep.open().sequence_number
    for number in range(LATER_SYNCS):
        synced(store, 3 + number)
    for number in range(head + 1, head + 100):
        store.objects.pop(CHAIN + block_name(number))
    land(asleep, store, 0, 100)
    result = asleep.commit([FIRST])

    assert result.rows == 10, "the writer believes it, and its STATE goes out"
    chain = Chain(store, TABLE)
    chain.read()
    chain.catch_up()
    lost = [
        key
        for key in store.objects
        if key.startswith(TABLE.final_root) and key.endswith(".parquet") and key not in {file.key for file in chain.live_files().files}
    ]
    assert len(lost) == 1
