"""What a hint says is confirmed by blocks before it is a reason to delete anything; damaged and oversized objects are not read."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from destination_s3_spark.chain import hint as hints
from destination_s3_spark.chain import log
from destination_s3_spark.chain.blocks import UnreadableBlock, block_name, canonical, decode
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import BadHint, decode_hint
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import DataError
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.retention import delete_expired_raw
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.hourly_syncs import KEEP, chain_of, sync_at, writer_at
from unit_tests.chain.one_table import CHAIN, FIRST, SECOND, TABLE, crashed, land

HINT = f"{CHAIN}hint.json"
DEEP = b"[" * 200_000 + b"]" * 200_000


def changed(store: Bucket, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the state and the files of the hint, and give it a fresh checksum."""
    hint = json.loads(store.objects[HINT])
    change(hint["known"]["state"], hint["known"]["live"])
    hint["checksum"] = hashlib.sha256(canonical(hint["known"])).hexdigest()
    store.objects[HINT] = canonical(hint)


def data(store: Bucket) -> set[str]:
    return {key for key in store.objects if not key.startswith(CHAIN)}


def with_kept_files() -> Bucket:
    store = Bucket()
    sync_at(store, 0)
    sync_at(store, 1)
    store.forget()
    return store


def test_kept_files_that_a_hint_names_take_one_get_of_their_block() -> None:
    store = with_kept_files()
    (first, second) = chain_of(store).head.contents.leaving
    store.forget()
    writer_at(store, 2).close()

    assert not set(first.keys) & set(store.objects)
    assert set(second.keys) < set(store.objects)
    assert store.calls.count(("get", f"{CHAIN}{block_name(first.block)}")) == 1


def test_files_that_the_block_did_not_replace_are_not_deleted() -> None:
    store = with_kept_files()
    live = [file.key for file in chain_of(store).live_files().files]
    changed(store, lambda state, _: state["contents"]["leaving"][0].update(keys=live))
    before = data(store)
    with pytest.raises(DataError, match="contradicts its chain about the files that block 3 replaced, so nothing was deleted"):
        writer_at(store, 2).close()

    assert data(store) == before
    del store.objects[HINT]
    writer_at(store, 2).close()
    assert {file.key for file in chain_of(store).live_files().files} == set(live) <= data(store) < before


def test_a_hint_alone_gives_no_file_up() -> None:
    store = Bucket()
    sync_at(store, 0)
    live = chain_of(store).live_files()

    def give_up(_: dict[str, Any], files: dict[str, Any]) -> None:
        files["dropped"] = [file for file in files["files"] if file["kind"] == "raw"]
        files["files"] = [file for file in files["files"] if file["kind"] != "raw"]

    changed(store, give_up)
    with pytest.raises(DataError, match="contradicts its chain about the table's files, so nothing was deleted"):
        sync_at(store, 1)

    assert {file.key for file in live.files} <= data(store)


def test_a_hint_alone_does_not_make_a_raw_file_old() -> None:
    store = Bucket()
    sync_at(store, 0)
    raw = chain_of(store).live_files().of(FileKind.RAW)

    def forget(_: dict[str, Any], files: dict[str, Any]) -> None:
        for file in files["files"]:
            file.update(landedOn=0)

    changed(store, forget)
    made = writer_at(store, 1)
    made.open()
    with pytest.raises(DataError, match="contradicts its chain"):
        delete_expired_raw(made, 1)

    assert {file.key for file in raw} <= data(store)


def test_a_hint_of_a_session_that_did_not_settle_its_last_block_is_none_of_ours() -> None:
    store = Bucket()
    crashed(store, FIRST, SECOND)
    head = chain_of(store).head
    made = writer_at(store, 1)
    made.close()
    keys = [file.key for file in chain_of(store).live_files().files]
    undo = {
        "sequenceNumber": head.sequence_number,
        "voided": False,
        "files": [],
        "removed": keys,
        "checkpoints": 0,
        "before": json.loads(store.objects[HINT])["known"]["state"]["contents"],
    }
    changed(store, lambda state, _: state.update(closed=False, settled=None, unsettled=undo))
    writer_at(store, 2).close()

    assert set(keys) <= data(store)


@each("offset", [-1, 0, 2**60 + 1, 2**63 - 1, 2**70])
def test_offsets_that_cannot_be_are_not_believed(offset: int) -> None:
    store = Bucket()
    sync_at(store, 0)
    whole = chain_of(store).state
    changed(store, lambda state, _: state["contents"].update(nextOffset=offset))

    assert chain_of(store).state == whole


def bomb(size: int) -> bytes:
    hint = json.loads(_hint())
    known = hint["known"] | {"live": None, "compressed": base64.b64encode(zlib.compress(b" " * size, 9)).decode()}
    return canonical(hint | {"known": known, "checksum": hashlib.sha256(canonical(known)).hexdigest()})


def _hint() -> bytes:
    store = Bucket()
    sync_at(store, 0)
    return store.objects[HINT]


def test_a_list_that_grows_beyond_all_bounds_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "MOST_LIST_BYTES", 2**20)
    body = bomb(200 * 2**20)
    assert len(body) < 2**20
    tracemalloc.start()
    with pytest.raises(BadHint):
        decode_hint(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * 2**20


def test_a_hint_that_is_too_large_is_ignored_and_such_a_block_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket()
    sync_at(store, 0)
    whole = chain_of(store).state
    monkeypatch.setattr(hints, "MOST_HINT_BYTES", 100)
    assert chain_of(store).state == whole

    monkeypatch.setattr(log, "MOST_BLOCK_BYTES", 100)
    with pytest.raises(DataError, match=r"bytes, and such an object may have 100 at most, so it was not read"):
        chain_of(store)


@each("body", [DEEP, b'{"a":' * 100_000, canonical({"known": {}}) + DEEP])
def test_a_hint_of_any_depth_is_ignored(body: bytes) -> None:
    store = Bucket()
    sync_at(store, 0)
    whole = chain_of(store).state
    store.objects[HINT] = body

    assert chain_of(store).state == whole


def test_a_deep_value_where_a_hint_is_sound_is_ignored_too() -> None:
    store = Bucket()
    sync_at(store, 0)
    whole = chain_of(store).state
    known = store.objects[HINT].partition(b'"known":')[2].partition(b',"sequenceNumber"')[0][:-1] + b',"more":' + DEEP + b"}"
    digest = hashlib.sha256(known).hexdigest().encode()
    store.objects[HINT] = b'{"blockHash":"","checksum":"' + digest + b'","known":' + known + b',"sequenceNumber":1}'

    assert chain_of(store).state == whole


def test_a_block_of_any_depth_is_a_damaged_one() -> None:
    store = Bucket()
    sync_at(store, 0)
    del store.objects[HINT]
    key = f"{CHAIN}{block_name(1)}"
    store.objects[key] = store.objects[key].replace(b'"event":{', b'"event":{"more":' + DEEP + b",")
    with pytest.raises(UnreadableBlock):
        decode(store.objects[key])

    with pytest.raises(DataError, match="block 1 cannot be read"):
        chain_of(store)


def test_a_writer_keeps_its_promises_with_confirmation_at_every_step() -> None:
    """The same work as without a hint: confirmation never stands in the way of a table that is as it should be."""
    with_hint, without = Bucket(), Bucket()
    for store in (with_hint, without):
        for hour in range(6):
            if store is without:
                store.objects.pop(HINT, None)
            sync_at(store, hour, KEEP)
            made: TableWriter = writer_at(store, hour)
            made.open()
            delete_expired_raw(made, 0)
            made.close()
            land(made := writer_at(store, hour), store, 0, 100)
            made.abandon()

    assert data(with_hint) == data(without)
    assert Chain(with_hint, TABLE).table == TABLE
    assert timedelta(0) < KEEP
