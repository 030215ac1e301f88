"""Reads a table's chain as a stranger would: plain JSON over S3, checked against the published contract.

Nothing of the product is imported here. What this module knows is what the documentation promises readers: the envelope, the hash
links, the order of events, contiguous offsets, which files each kind of block adds and removes, and that a block counts once it is
settled or its files are all there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from unit_tests.lake.buckets import Bucket
from unit_tests.lake.outcome import BUCKET_PATH

INTERNAL = f"{BUCKET_PATH}/airbyte_internal/"
BLOCK_KEY = re.compile(r"^(?P<table>.+)/chain/(?P<number>\d{20})\.json$")
EVENTS = {"Seed", "OpenEpoch", "SetDataSchema", "BarKeys", "AddData", "MergeData", "ReplaceData", "Void", "Close", "Snapshot"}

DATA_EVENTS = ("AddData", "MergeData", "ReplaceData")
ADDED_BY = {
    "AddData": {"raw", "final", "delta"},
    "MergeData": {"final", "state", "tombstone", "changes", "current", "closed"},
    "ReplaceData": {"final", "state", "tombstone", "changes", "current", "closed"},
}
"""The kinds of files each event may add."""

Json = dict[str, Any]
StreamName = tuple[str | None, str]


@dataclass(slots=True)
class Contents:
    """What the data blocks add up to. `files` are live, `dropped` are those of a generation that was given up, still to be removed.

    `rows`: the offset after the last row that landed. `landed`: rows that landed since the table was last replaced, `waiting` those of the
    `pending` generation. `merged`: a merge may have dropped rows since then, because the table is or was deduplicated.
    """

    files: list[Json] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    dropped: list[Json] = field(default_factory=list)
    pending: Json | None = None
    rows: int = 0
    landed: int = 0
    waiting: int = 0
    merged: bool = False

    def is_pending(self, file: Json) -> bool:
        return self.pending is not None and file.get("offset") is not None and bool(file["offset"] >= self.pending["fromOffset"])


@dataclass(slots=True)
class Chain:
    """One table's verified chain. `contents` is what a reader may trust; `unsure` the keys of a last block that is not settled."""

    prefix: str
    blocks: list[Json]
    contents: Contents = field(default_factory=Contents)
    unsure: set[str] = field(default_factory=set)

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
    def closed(self) -> bool:
        """Whether the last session ended cleanly."""
        return self.kinds[-1] == "Close"

    @property
    def final_root(self) -> str:
        root: str = self.events("Seed")[0]["finalRoot"]
        return root

    @property
    def schema(self) -> Json | None:
        """The last SetDataSchema."""
        return next(reversed(self.events("SetDataSchema")), None)

    @property
    def schemas(self) -> dict[int, pa.Schema]:
        """The Arrow schema of each schemaId, as the chain carries it."""
        events = self.events("SetDataSchema")
        return {event["schemaId"]: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(event["arrowSchema"]))) for event in events}

    @property
    def rows(self) -> int:
        """The offset after the last row that landed."""
        return self.contents.rows

    def files(self, *kinds: str) -> list[Json]:
        """The live files of these kinds (or all) in commit order, those of a pending generation included."""
        return [file for file in self.contents.files if not kinds or file["kind"] in kinds]

    def keys(self, *kinds: str) -> list[str]:
        return [file["key"] for file in self.files(*kinds)]

    @property
    def raw_keys(self) -> list[str]:
        """Raw files of the rows that count: not those of a pending generation."""
        return [file["key"] for file in self.files("raw") if not self.contents.is_pending(file)]

    @property
    def final_keys(self) -> list[str]:
        return self.keys("final")

    @property
    def key_columns(self) -> list[str]:
        """The columns of the primary key of a deduplicated table; empty for others."""
        schema = self.schema
        if schema is None or schema["mode"] != "append_dedup":
            return []
        names = {one["source"]: one["name"] for one in schema["fields"] if one.get("present", True)}
        return [names[path[0]] for path in schema["primaryKey"]]


def lost_uploads(bucket: Bucket) -> list[str]:
    """The keys of open uploads that no sync will ever look for: those of tables whose last session ended cleanly, and of no table."""
    uploads = bucket.open_uploads()
    if not uploads:
        return []
    unclean = [str(chain.events("Seed")[0]["tableNumber"]) for chain in read_chains(bucket).values() if not chain.closed]
    return [key for key in uploads if not any(f"{number}" in key for number in unclean)]


def read_chains(bucket: Bucket) -> dict[StreamName, Chain]:
    """Every table's chain in the bucket, verified, by stream."""
    blocks: dict[str, list[tuple[int, bytes]]] = {}
    existing = bucket.list_etags()
    for key, etag in existing.items():
        if key.startswith(INTERNAL) and (match := BLOCK_KEY.match(key)):
            blocks.setdefault(match["table"], []).append((int(match["number"]), bucket.read_version(key, etag)))
    chains = [_verified(prefix, found, set(existing)) for prefix, found in blocks.items()]
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
        if event["kind"] in DATA_EVENTS:
            assert event["schemaId"] in [*known, None], f"{chain.prefix}: data of schema {event['schemaId']} before its SetDataSchema"
            kinds = {file["kind"] for file in event["files"]}
            allowed = ADDED_BY[event["kind"]] if event.get("dataChange", True) else {"final", "raw"}
            if event["kind"] == "MergeData":  # one that forgets rows exchanges such files for others without them
                allowed = allowed | ({"raw", "delta", "adopted"} & {file["kind"] for file in event["filesRemoved"]})
            assert kinds <= allowed, f"{chain.prefix}: a {event['kind']} adds {kinds}"
            assert event["files"] or event["kind"] != "AddData", f"{chain.prefix}: an AddData without files"
    schemas = [{**event, "schemaId": 0, "version": "", "changes": [], "retyped": []} for event in chain.events("SetDataSchema")]
    assert all(one != other for one, other in pairwise(schemas)), f"{chain.prefix}: a schema set twice in a row"


def _fold(chain: Chain, existing: set[str]) -> None:
    """Apply the blocks a reader may trust, checking that each is one that can follow."""
    voided = {event["voidedSequenceNumber"] for event in chain.events("Void")}
    settled = max((block.get("settled") or 0 for block in chain.blocks), default=0)
    numbers = [block["sequenceNumber"] for block in chain.blocks if block["event"]["kind"] in DATA_EVENTS]
    for block in chain.blocks:
        event, number = block["event"], block["sequenceNumber"]
        where = f"{chain.prefix} block {number}"
        if event["kind"] in ("Seed", "OpenEpoch"):
            chain.contents = _opened(chain.contents, event, where)
        if event["kind"] == "Close" and event.get("holdsBack") and chain.contents.pending is not None:
            chain.contents = replace(chain.contents, pending={**chain.contents.pending, "heldBack": True})
        if event["kind"] not in DATA_EVENTS or number in voided:
            continue
        removed = {file["key"] for file in event.get("filesRemoved", ())}
        missing = [file["key"] for file in event["files"] if file["key"] not in existing | _removed_later(chain, number, voided)]
        if number > settled:
            assert number == max(numbers), f"{where}: unsettled, but not the last data block"
            chain.unsure = {file["key"] for file in event["files"]} | removed
            if missing:
                continue
        else:
            assert not removed & existing, f"{where}: settled, but {removed & existing} are still there"
        assert not missing, f"{where}: settled, but {missing} do not exist"
        chain.contents = _applied(chain.contents, event, where)


def partition(file: Json) -> str | None:
    """The value in the name of the file's folder."""
    return file["key"].rpartition("/")[0].rpartition("=")[2] if file.get("inPartition") else None


def _removed_later(chain: Chain, number: int, voided: set[int]) -> set[str]:
    later = [block for block in chain.blocks[number + 1 :] if block["sequenceNumber"] not in voided]
    return {file["key"] for block in later for file in block["event"].get("filesRemoved", ())}


def _same(pending: Json, before: Json | None) -> bool:
    """Whether it is the same generation."""
    return pending == before


def _opened(before: Contents, event: Json, where: str) -> Contents:
    """What a session begins with: a generation that is pending may go on, become the table's, or be given up."""
    if event["kind"] == "Seed":
        before = Contents(adopted=list(event["adopted"]))
    pending = event.get("pending")
    discards = event.get("discards", False)
    if discards or (pending is not None and not _same(pending, before.pending)):
        assert pending is None or pending["fromOffset"] == before.rows, f"{where}: a pending generation begins at {pending}"
        given_up = [file for file in before.files if before.is_pending(file)]
        left = [file for file in before.files if file not in given_up]
        return replace(before, files=left, dropped=[*before.dropped, *given_up], pending=pending, waiting=0)
    if pending is None:
        return replace(before, pending=None, landed=before.landed + before.waiting, waiting=0)
    return before


def _applied(before: Contents, event: Json, where: str) -> Contents:
    if event["kind"] == "AddData":
        return _added(before, event, where)
    if not event.get("dataChange", True):
        return _compacted(before, event, where)
    removed = [file["key"] for file in event["filesRemoved"]]
    named = [*(file["key"] for file in (*before.files, *before.dropped)), *before.adopted]
    assert len(set(removed)) == len(removed), f"{where}: removes a file twice"
    assert set(removed) <= set(named), f"{where}: removes {set(removed) - set(named)}, which are not there"
    after = replace(
        before,
        files=[*(file for file in before.files if file["key"] not in removed), *(file for file in event["files"] if not _adopted(file))],
        dropped=[file for file in before.dropped if file["key"] not in removed],
        adopted=[*(key for key in before.adopted if key not in removed), *(file["key"] for file in event["files"] if _adopted(file))],
    )
    deltas = [file for file in event["filesRemoved"] if file["kind"] == "delta"]
    if event["kind"] == "MergeData":
        only_removes = not (event["files"] or before.dropped)
        waiting = before.waiting - event.get("pendingRowsForgotten", 0)
        after = replace(after, landed=before.landed - event.get("rowsForgotten", 0), waiting=waiting)
        return replace(after, merged=before.merged or any("sortedBy" in file for file in event["files"]) or only_removes)
    left = [file for file in after.files if file not in event["files"] and "history" not in file]
    kept = [file for file in left if not before.is_pending(file)]
    assert all(file["kind"] in ("raw", "final") for file in left), f"{where}: a replaced table keeps {left}"
    assert all(file["generationId"] == event["generationId"] for file in kept), f"{where}: rows of another generation are kept: {kept}"
    rows_kept = event.get("rowsKept", 0)
    assert sum(file["rows"] for file in kept if file["kind"] == "raw") in (0, rows_kept), f"{where}: {rows_kept} rows are kept in {kept}"
    sorted_ = any("sortedBy" in file for file in (*event["files"], *deltas))
    return replace(after, pending=None, landed=before.waiting + rows_kept, waiting=0, merged=sorted_)


def _adopted(file: Json) -> bool:
    """Whether it takes the place of a file of destination-s3."""
    return bool(file["kind"] == "adopted")


def _compacted(before: Contents, event: Json, where: str) -> Contents:
    """The same rows in other files: each new file holds those of the removed ones that follow each other from its offset on.

    A new file of a partition holds those of the removed files of the partition, between which rows of other partitions landed.
    """
    files = list(before.files)
    removed = {file["key"]: file for file in event["filesRemoved"]}
    for made in event["files"]:
        end = made["offset"]
        parts = [file for file in files if file["key"] in removed and file["kind"] == made["kind"]]
        divided = made.get("inPartition", False)
        parts = [file for file in parts if partition(file) == partition(made)]
        parts = [file for file in parts if divided or made["offset"] <= file["offset"] < made["offset"] + made["rows"]]
        for part in sorted(parts, key=lambda file: file["offset"]):
            assert divided or part["offset"] == end, f"{where}: rows from {end} on are in none of the joined files"
            end += part["rows"]
        assert min(part["offset"] for part in parts) == made["offset"], where
        assert end == made["offset"] + made["rows"], f"{where}: {made['key']} has other rows than the files it replaces"
        assert {(part["schemaId"], part["generationId"]) for part in parts} == {(made["schemaId"], made["generationId"])}, where
        files[files.index(parts[0])] = made
        for part in parts:
            del removed[part["key"]]
            files = [file for file in files if file["key"] != part["key"]]
    assert not removed, f"{where}: {set(removed)} are removed, and nothing has their rows"
    return replace(before, files=files)


def _added(before: Contents, event: Json, where: str) -> Contents:
    last_end = before.rows - 1 if before.rows else None
    start, end = event["offsetInterval"]["start"], event["offsetInterval"]["end"]
    assert event["prevOffset"] == last_end, f"{where}: prevOffset {event['prevOffset']}, expected {last_end}"
    assert start == before.rows, f"{where}: starts at {start}"
    assert end >= start, where
    added, next_offset = [], {"raw": start, "final": start, "delta": start}
    for file in event["files"]:
        added.append(
            {"schemaId": event["schemaId"], "generationId": event.get("generationId"), **file, "offset": next_offset[file["kind"]]}
        )
        next_offset[file["kind"]] += file["rows"]
    assert set(next_offset.values()) <= {start, end + 1}, f"{where}: its files do not hold its rows"
    kinds = {file["kind"] for file in added}
    assert not {"final", "delta"} <= kinds, f"{where}: a row is added twice"
    assert "final" not in kinds or before.pending is None, f"{where}: a final file while a generation is pending"
    count = {"landed": before.landed + end + 1 - start} if before.pending is None else {"waiting": before.waiting + end + 1 - start}
    return replace(before, files=[*before.files, *added], rows=end + 1, **count)
