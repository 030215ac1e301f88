"""The reader of chains that judges what syncs leave: a broken chain is refused."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.buckets import Bucket
from unit_tests.lake.chain_reader import INTERNAL, Json, read_chains
from unit_tests.lake.contents import USERS
from unit_tests.lake.outcome import BUCKET_PATH

PREFIX = f"{INTERNAL}shop_raw__stream_users"
SCHEMA = base64.b64encode(pa.schema([("id", pa.int64())]).serialize().to_pybytes()).decode()


FIRST, RUN, MERGED = f"{BUCKET_PATH}/shop/users/0.parquet", f"{PREFIX}/delta/1.parquet", f"{BUCKET_PATH}/shop/users/2.parquet"


def sound_chain() -> list[Json]:
    """A Seed, a schema, a commit of ten rows to the table and one beside it, the merge of the latter and a Close, not linked yet."""
    data = {"kind": "AddData", "schemaId": 1}
    first, run, merged = ({"kind": kind, "key": key, "rows": 10} for kind, key in (("final", FIRST), ("delta", RUN), ("final", MERGED)))
    events: list[Json] = [
        {"kind": "Seed", "stream": {"namespace": "shop", "name": "users"}, "adopted": []},
        {"kind": "SetDataSchema", "schemaId": 1, "fields": [{"id": 1, "name": "id"}], "arrowSchema": SCHEMA},
        {**data, "prevOffset": None, "offsetInterval": {"start": 0, "end": 9}, "files": [first]},
        {**data, "prevOffset": 9, "offsetInterval": {"start": 10, "end": 19}, "files": [run]},
        {"kind": "MergeData", "schemaId": 1, "consumedOffset": 19, "files": [merged], "filesRemoved": [run]},
        {"kind": "Close"},
    ]
    settled = [None, None, None, 2, 3, 4]
    return [
        {
            "sequenceNumber": number,
            "systemTime": "2026-01-01T00:00:00Z",
            "epoch": 1,
            "nonce": "n",
            "settled": settled[number],
            "event": event,
        }
        for number, event in enumerate(events)
    ]


def store(bucket: Bucket, blocks: list[Json], *files: str) -> None:
    """Link the blocks and put them into the bucket, with these data files."""
    client, link = bucket.server.client(), None
    for block in blocks:
        body = json.dumps({"prevBlockHash": link, **block}).encode()
        link = "f1220" + hashlib.sha256(body).hexdigest()
        client.put_object(Bucket=bucket.name, Key=f"{PREFIX}/chain/{block['sequenceNumber']:020d}.json", Body=body)
    for key in files:
        client.put_object(Bucket=bucket.name, Key=key, Body=b"x")


@pytest.fixture
def bucket(s3_settings: S3Settings) -> Bucket:
    """An empty bucket."""
    return Bucket.of(s3_settings)


def test_a_sound_chain_is_read(bucket: Bucket) -> None:
    store(bucket, sound_chain(), FIRST, MERGED)
    chain = read_chains(bucket)[USERS]
    assert chain.rows == 20
    assert chain.final_keys == [FIRST, MERGED]
    assert chain.keys("delta") == []


def test_an_unsettled_commit_counts_only_with_all_its_files(bucket: Bucket) -> None:
    store(bucket, sound_chain()[:4], FIRST)
    chain = read_chains(bucket)[USERS]
    assert (chain.rows, chain.keys()) == (10, [FIRST])


@pytest.mark.parametrize(("there", "counted"), [((FIRST, RUN), [FIRST, RUN]), ((FIRST, RUN, MERGED), [FIRST, MERGED])])
def test_an_unsettled_merge_counts_only_with_all_its_files(bucket: Bucket, there: tuple[str, ...], counted: list[str]) -> None:
    store(bucket, sound_chain()[:5], *there)
    assert read_chains(bucket)[USERS].keys() == counted


BREAKAGES: dict[str, Callable[[list[Json]], Any]] = {
    "a gap in the numbers": lambda blocks: blocks.pop(1),
    "a wrong link": lambda blocks: blocks[2].update(prevBlockHash="f1220" + "0" * 64),
    "time goes backwards": lambda blocks: blocks[2].update(systemTime="2025-01-01T00:00:00Z"),
    "an epoch without an OpenEpoch": lambda blocks: blocks[2].update(epoch=2),
    "data before its schema": lambda blocks: blocks[1].update(event={"kind": "Close"}),
    "a gap in the offsets": lambda blocks: blocks[3]["event"].update(offsetInterval={"start": 11, "end": 19}),
    "a wrong previous offset": lambda blocks: blocks[3]["event"].update(prevOffset=None),
    "files without the rows": lambda blocks: blocks[3]["event"].update(files=[{"kind": "delta", "key": RUN, "rows": 9}]),
    "settled without its files": lambda blocks: blocks[2]["event"].update(
        files=[{"kind": "final", "key": "lake/gone.parquet", "rows": 10}]
    ),
    "settled and not removed": lambda blocks: blocks[4]["event"].update(filesRemoved=[blocks[2]["event"]["files"][0]]),
    "a merge removes what is not there": lambda blocks: blocks[4]["event"].update(filesRemoved=[{"kind": "delta", "key": "lake/x"}]),
    "a merge adds raw rows": lambda blocks: blocks[4]["event"]["files"][0].update(kind="raw"),
    "a kind nobody promised": lambda blocks: blocks[5].update(event={"kind": "Surprise"}),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_broken_chain_is_refused(bucket: Bucket, breakage: Callable[[list[Json]], Any]) -> None:
    blocks = sound_chain()
    breakage(blocks)
    store(bucket, blocks, FIRST, MERGED)
    with pytest.raises(AssertionError):
        read_chains(bucket)
