"""Bytes of a commit: what other programs read of ours, and what is read of theirs."""

from __future__ import annotations

import json

import pytest

from destination_s3_spark.delta_log.actions import (
    Action,
    Add,
    CommitInfo,
    Malformed,
    Metadata,
    Protocol,
    Remove,
    Transaction,
    decode_commit,
    encode_commit,
)
from unit_tests.cases import each

PROTOCOL = Protocol(1, 7, writer_features=["appendOnly"])
METADATA = Metadata("m", '{"type":"struct","fields":[]}', ["day"], {"delta.appendOnly": "false"})
TRANSACTION = Transaction("table", 3, 1_700_000_000_000)
REMOVE = Remove("a=1/gone.parquet", True, 5)
ADD = Add("a=1/new.parquet", {"day": None}, 10, 7, False, '{"numRecords":1}')


def test_each_action_is_a_line_with_the_names_of_the_protocol() -> None:
    body = encode_commit([CommitInfo(1, "WRITE", {"mode": "Append"}, "engine", "x"), PROTOCOL, METADATA, TRANSACTION, REMOVE, ADD])

    assert body.endswith(b"}\n")
    assert [json.loads(text) for text in body.splitlines()] == [
        {
            "commitInfo": {
                "timestamp": 1,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append"},
                "engineInfo": "engine",
                "txnId": "x",
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}},
        {
            "metaData": {
                "id": "m",
                "schemaString": '{"type":"struct","fields":[]}',
                "partitionColumns": ["day"],
                "configuration": {"delta.appendOnly": "false"},
                "format": {"provider": "parquet", "options": {}},
            }
        },
        {"txn": {"appId": "table", "version": 3, "lastUpdated": 1_700_000_000_000}},
        {"remove": {"path": "a=1/gone.parquet", "dataChange": True, "deletionTimestamp": 5}},
        {
            "add": {
                "path": "a=1/new.parquet",
                "partitionValues": {"day": None},
                "size": 10,
                "modificationTime": 7,
                "dataChange": False,
                "stats": '{"numRecords":1}',
            }
        },
    ]


def test_a_commit_is_read_back_but_for_its_provenance() -> None:
    actions: list[Action] = [PROTOCOL, METADATA, TRANSACTION, REMOVE, ADD]
    assert list(decode_commit(encode_commit([CommitInfo(1, "WRITE", {}, "engine", "x"), *actions]))) == actions


def test_what_other_programs_add_is_ignored() -> None:
    body = b"""
{"commitInfo":{"timestamp":1,"isolationLevel":"Serializable"}}
{"cdc":{"path":"_change_data/x.parquet"}}
{"domainMetadata":{"domain":"delta.clustering","configuration":"{}","removed":false}}

{"add":{"path":"x.parquet","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,"tags":{"a":"b"},"baseRowId":5}}
{"remove":{"path":"y.parquet","dataChange":true,"extendedFileMetadata":true,"partitionValues":{},"size":3}}
"""
    assert list(decode_commit(body)) == [Add("x.parquet", {}, 1, 2, True), Remove("y.parquet", True)]


def test_a_deletion_vector_is_noticed() -> None:
    body = b'{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,"deletionVector":{"storageType":"u"}}}'
    (add,) = decode_commit(body)
    assert isinstance(add, Add)
    assert add.deletion_vector == {"storageType": "u"}


@each("body", [b"{", b"[]", b'{"add":{"path":1}}', b'{"txn":{}}', b"\xff", encode_commit([ADD])[:-9], b"[" * 200_000])
def test_bytes_that_are_no_commit_are_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        list(decode_commit(body))
