from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.manifest import LogFile, LogKind, Manifest, manifest_of
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.errors import DataError
from unit_tests.cases import each


@pytest.fixture
def manifest(log: Callable[..., Any]) -> Manifest:
    columns = log([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string()))], ["id"]).columns
    files = [LogFile("a-00000-changes.jsonl.gz", 2), LogFile("a-00001-changes.jsonl.gz", 1)]
    before, after = OperationCount(5, 1), OperationCount(6, 2, 1)
    return manifest_of(columns, ChangeLogOptions(ChangeLogFormat.JSONL), LogKind.CHANGES, (3, 7), files, before, after)


def test_a_manifest_says_all_one_needs_to_read_its_files(manifest: Manifest) -> None:
    assert json.loads(manifest.to_bytes()) == {
        "formatVersion": 1,
        "format": "jsonl",
        "kind": "changes",
        "stream": {"namespace": "shop", "name": "users"},
        "generationId": 3,
        "schemaId": 7,
        "primaryKey": ["id"],
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "at", "type": "timestamp[us, tz=UTC]"},
            {"name": "tags", "type": "list<item: string>"},
        ],
        "beforeImage": "KEY",
        "afterImage": "UPDATED",
        "includeHeader": False,
        "files": [{"key": "a-00000-changes.jsonl.gz", "rows": 2}, {"key": "a-00001-changes.jsonl.gz", "rows": 1}],
        "operationCountBefore": {"insertCount": 5, "updateCount": 1, "deleteCount": 0, "replaceCount": 0},
        "operationCount": {"insertCount": 6, "updateCount": 2, "deleteCount": 1, "replaceCount": 0},
    }


def test_a_manifest_reads_back(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.to_bytes(), "key") == manifest


def test_rows_keep_the_place_that_they_had_before_others_were_forgotten() -> None:
    file = LogFile("a", 6).redacted_to("b", {1, 4}, numbered=False)
    assert file == LogFile("b", 4, 2, (1, 4))
    assert list(islice(file.places(), 4)) == [0, 2, 3, 5]
    assert file.redacted_to("c", {1, 3}, numbered=False) == LogFile("c", 2, 4, (1, 2, 4, 5))
    assert file.redacted_to("c", (), numbered=False) == LogFile("c", 4, 2, (1, 4))
    assert LogFile("a", 6).redacted_to("b", {1, 4}, numbered=True) == LogFile("b", 4, 2)


def test_members_of_newer_versions_are_passed_over(manifest: Manifest) -> None:
    newer = {**json.loads(manifest.to_bytes()), "signature": "x"}

    assert Manifest.from_bytes(json.dumps(newer).encode(), "key") == manifest


@each("spoilt", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_manifest_is_named(spoilt: bytes) -> None:
    with pytest.raises(DataError, match=r"lake/x-manifest\.json"):
        Manifest.from_bytes(spoilt, "lake/x-manifest.json")


@each("different", [{"format": "avro"}, {"formatVersion": 2}])
def test_a_manifest_of_a_newer_version_is_refused(manifest: Manifest, different: dict[str, Any]) -> None:
    newer = {**json.loads(manifest.to_bytes()), **different}

    with pytest.raises(DataError, match="newer version"):
        Manifest.from_bytes(json.dumps(newer).encode(), "key")
