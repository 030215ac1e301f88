"""The bytes of a block: canonical, hash-linked, readable across versions."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from destination_s3_spark.chain.blocks import Block, UnreadableBlock, block_hash, block_name, canonical, decode, encode
from destination_s3_spark.chain.events import (
    AddData,
    ChangedValues,
    Close,
    Event,
    OffsetInterval,
    OpenEpoch,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.fold import fold
from destination_s3_spark.chain.state import Checkpoint
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

NOON = datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC)
SEED = Seed(StreamId(None, "naïve"), "id", 1234567890, "lake/users/", ("lake/users/old.parquet",), 7, 0, NOON)
FILE = FileEntry(FileKind.FINAL, "lake/users/f-1.parquet", 3, 100, "upload", ("etag-1", "etag-2"))
CHANGED = (ChangedValues("id", "NULLED", "WHY", 2),)
ADD = AddData(0, 7, 0, None, OffsetInterval(0, 2), (FILE,), (Checkpoint("ab" * 32, 3, "0" * 32, 0),), CHANGED)
SCHEMA = SetDataSchema({"schemaId": 0, "fields": [{"id": 1, "name": "é"}], "arrowSchema": "AAAA"})


def block(event: Event, number: int = 1) -> Block:
    return Block(number, "f1220" + "0" * 64, NOON, 1, "nonce", None, event)


STATE = fold(None, Block(0, None, NOON, 1, "n", None, SEED), "f1220" + "1" * 64)
EVENTS = [SEED, OpenEpoch(8, 1, NOON), SCHEMA, ADD, Void(3), Close(), Snapshot(STATE, ("a",), (FILE.visible(),))]


@each("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_block_comes_back_from_its_bytes(event: Event) -> None:
    written = block(event)

    assert decode(encode(written)) == written


@each("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_bytes_are_canonical_json(event: Event) -> None:
    body = encode(block(event))

    assert json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == body


def test_the_envelope_and_the_event_have_the_published_fields() -> None:
    assert json.loads(encode(block(ADD))) == {
        "format": 1,
        "sequenceNumber": 1,
        "prevBlockHash": "f1220" + "0" * 64,
        "systemTime": "2026-03-01T12:00:00.250000Z",
        "epoch": 1,
        "nonce": "nonce",
        "settled": None,
        "event": {
            "kind": "AddData",
            "schemaId": 0,
            "syncId": 7,
            "generationId": 0,
            "prevOffset": None,
            "offsetInterval": {"start": 0, "end": 2},
            "files": [
                {
                    "kind": "final",
                    "key": "lake/users/f-1.parquet",
                    "rows": 3,
                    "bytes": 100,
                    "uploadId": "upload",
                    "partEtags": ["etag-1", "etag-2"],
                }
            ],
            "checkpoints": [{"stateHash": "ab" * 32, "records": 3, "multisetHash": "0" * 32, "generation": 0, "syncId": 0}],
            "changedValues": [{"field": "id", "change": "NULLED", "reason": "WHY", "values": 2}],
            "recordsBarred": 0,
            "snapshotFrom": None,
        },
    }


def test_the_schema_payload_stands_in_the_event_itself() -> None:
    event = json.loads(encode(block(SCHEMA)))["event"]

    assert event == {"kind": "SetDataSchema", "schemaId": 0, "fields": [{"id": 1, "name": "é"}], "arrowSchema": "AAAA"}


def test_the_hash_is_the_multihash_of_the_bytes_and_names_sort_like_numbers() -> None:
    assert block_hash(b"{}") == "f1220" + hashlib.sha256(b"{}").hexdigest()
    assert block_name(42) == "00000000000000000042.json"
    assert sorted([block_name(10), block_name(9)]) == [block_name(9), block_name(10)]


def test_times_are_written_in_utc() -> None:
    assert canonical(NOON.astimezone(timezone(timedelta(hours=5)))) != b""
    local = Block(1, None, NOON.astimezone(timezone(timedelta(hours=5))), 1, "n", None, Close())

    assert decode(encode(local)).system_time == NOON


def with_event(event: dict[str, object], **envelope: object) -> bytes:
    return json.dumps({**json.loads(encode(block(Close()))), "event": event, **envelope}).encode()


def test_unknown_fields_are_ignored() -> None:
    event = {**json.loads(encode(block(ADD)))["event"], "watermark": 1.5}

    assert decode(with_event(event, later={"a": 1})).event == ADD


def test_an_unknown_kind_that_carries_no_data_is_kept_readable() -> None:
    assert decode(with_event({"kind": "SetLicense", "text": "x"})).event == UnknownEvent("SetLicense")


@each(
    "body",
    [
        with_event({"kind": "CompactData", "files": []}),
        with_event({"kind": "DropData", "filesRemoved": []}),
        with_event({"kind": "Close"}, format=2),
        encode(block(SEED)).replace(b'"formatVersion":1', b'"formatVersion":2'),
    ],
)
def test_what_a_newer_version_wrote_is_refused_with_the_remedy(body: bytes) -> None:
    with pytest.raises(ConfigError, match="newer version"):
        decode(body)


@each(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        encode(block(ADD))[:-9],
        with_event({"kind": "AddData"}),
        with_event({"kind": "SetDataSchema"}),
        with_event({"kind": "Close"}, systemTime="2026-01-01T00:00:00"),
        with_event({"kind": "Close"}, sequenceNumber="1"),
        with_event({}),
    ],
)
def test_damaged_bytes_are_not_a_block(body: bytes) -> None:
    with pytest.raises(UnreadableBlock):
        decode(body)
