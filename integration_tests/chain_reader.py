"""Reads a table's chain as a stranger would: plain JSON over S3, checked against the published contract.

Nothing of the product is imported here. What this module knows is what the documentation promises readers: the envelope, the hash
links, the order of events, contiguous offsets, and that a block's files count once the block is settled or its files are all there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from integration_tests.connector import BUCKET_PATH
from integration_tests.servers import Bucket

INTERNAL = f"{BUCKET_PATH}/airbyte_internal/"
BLOCK_KEY = re.compile(r"^(?P<table>.+)/chain/(?P<number>\d{20})\.json$")
EVENTS = {"Seed", "OpenEpoch", "SetDataSchema", "AddData", "MergeData", "ReplaceData", "Void", "Close", "Snapshot"}

Json = dict[str, Any]
StreamName = tuple[str | None, str]


@dataclass(slots=True)
class Chain:
    """One table's verified chain. `live` are the data files a reader may trust, in commit order; `rows` the offset after the last one."""

    prefix: str
    blocks: list[Json]
    live: list[Json] = field(default_factory=list)
    rows: int = 0

    @property
    def stream(self) -> StreamName:
        seeded = self.events("Seed")[0]["stream"]
        return seeded.get("namespace"), seeded["name"]

    @property
    def kinds(self) -> list[str]:
        return [block["event"]["kind"] for block in self.blocks]

    def events(self, kind: str) -> list[Json]:
        return [block["event"] for block in self.blocks if block["event"]["kind"] == kind]

    @property
    def schemas(self) -> dict[int, pa.Schema]:
        """The Arrow schema of each schemaId, as the chain carries it."""
        events = self.events("SetDataSchema")
        return {event["schemaId"]: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(event["arrowSchema"]))) for event in events}

    @property
    def raw_keys(self) -> list[str]:
        return [file["key"] for file in self.live if file["key"].startswith(f"{self.prefix}/raw/")]

    @property
    def final_keys(self) -> list[str]:
        return [file["key"] for file in self.live if not file["key"].startswith(INTERNAL)]


def read_chains(bucket: Bucket) -> dict[StreamName, Chain]:
    """Every table's chain in the bucket, verified, by stream."""
    blocks: dict[str, list[tuple[int, bytes]]] = {}
    for key in bucket.list_keys(INTERNAL):
        if match := BLOCK_KEY.match(key):
            blocks.setdefault(match["table"], []).append((int(match["number"]), bucket.read(key)))
    existing = set(bucket.list_keys())
    chains = [_verified(prefix, found, existing) for prefix, found in blocks.items()]
    by_stream = {chain.stream: chain for chain in chains}
    assert len(by_stream) == len(chains), f"one stream has two chains: {sorted(blocks)}"
    return by_stream


def _verified(prefix: str, found: list[tuple[int, bytes]], existing: set[str]) -> Chain:
    assert [number for number, _ in found] == list(range(len(found))), f"{prefix}: numbers are not contiguous from 0"
    blocks = [json.loads(body) for _, body in found]
    _verify_envelopes(prefix, blocks, [body for _, body in found])
    chain = Chain(prefix, blocks)
    _verify_order(chain)
    _fold(chain, existing)
    return chain


def _verify_envelopes(prefix: str, blocks: list[Json], bodies: list[bytes]) -> None:
    previous: Json | None = None
    for number, block in enumerate(blocks):
        where = f"{prefix} block {number}"
        link = None if number == 0 else "f1220" + hashlib.sha256(bodies[number - 1]).hexdigest()
        assert block["sequenceNumber"] == number, where
        assert block["prevBlockHash"] == link, f"{where}: broken hash link"
        assert block["event"]["kind"] in EVENTS, where
        assert isinstance(block["epoch"], int), where
        assert block["nonce"], where
        at = datetime.fromisoformat(block["systemTime"])
        assert at.utcoffset() == timedelta(0), f"{where}: {block['systemTime']} is not UTC"
        settled = block.get("settled")
        assert settled is None or settled < number, f"{where}: settled is {settled}"
        if previous is not None:
            assert at >= datetime.fromisoformat(previous["systemTime"]), f"{where}: time goes backwards"
            step = block["epoch"] - previous["epoch"]
            assert step == (1 if block["event"]["kind"] == "OpenEpoch" else 0), f"{where}: epoch moves by {step}"
        previous = block


def _verify_order(chain: Chain) -> None:
    assert chain.kinds[0] == "Seed", chain.prefix
    assert "Seed" not in chain.kinds[1:], chain.prefix
    known: list[int] = []
    for event in (block["event"] for block in chain.blocks):
        if event["kind"] == "SetDataSchema":
            known.append(event["schemaId"])
            assert len(set(known)) == len(known), f"{chain.prefix}: schema {event['schemaId']} twice"
            assert all(one["name"] and isinstance(one["id"], int) for one in event["fields"]), chain.prefix
        if event["kind"] == "AddData":
            assert event["schemaId"] in known, f"{chain.prefix}: data of schema {event['schemaId']} before its SetDataSchema"
            assert event["files"], f"{chain.prefix}: an AddData without files"
    schemas = list(chain.schemas.values())
    assert all(one != other for one, other in pairwise(schemas)), f"{chain.prefix}: a schema set twice in a row"


def _fold(chain: Chain, existing: set[str]) -> None:
    """Apply the data blocks a reader may trust, checking that offsets are contiguous."""
    voided = {event["voidedSequenceNumber"] for event in chain.events("Void")}
    settled = max((block.get("settled") or 0 for block in chain.blocks), default=0)
    last_end: int | None = None
    for block in chain.blocks:
        event, number = block["event"], block["sequenceNumber"]
        if event["kind"] != "AddData" or number in voided:
            continue
        where = f"{chain.prefix} block {number}"
        start, end = event["offsetInterval"]["start"], event["offsetInterval"]["end"]
        assert event["prevOffset"] == last_end, f"{where}: prevOffset {event['prevOffset']}, expected {last_end}"
        assert start == (0 if last_end is None else last_end + 1), f"{where}: starts at {start}"
        assert end >= start, where
        missing = [file["key"] for file in event["files"] if file["key"] not in existing]
        if missing and number > settled:
            assert number == max(chain_data_blocks(chain)), f"{where}: unsettled, but not the last data block"
            break
        assert not missing, f"{where}: settled, but {missing} do not exist"
        chain.live += event["files"]
        chain.rows, last_end = end + 1, end


def chain_data_blocks(chain: Chain) -> list[int]:
    return [block["sequenceNumber"] for block in chain.blocks if block["event"]["kind"] in ("AddData", "MergeData", "ReplaceData")]
