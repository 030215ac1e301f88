"""A lost hint costs one footer read per file that is needed, and nothing else: keys and statistics come from the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain import hint as hints
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.runs import footers
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, records, schema_of, state, stream

HINT = "lake/airbyte_internal/_raw__stream_users/chain/hint.json"
LOG = "lake/users/_delta_log/"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the files whose footers are read."""
    found: list[str] = []
    read_footer = footers.read_footer

    def counted(store: ObjectStore, file: FileEntry) -> pq.FileMetaData:
        found.append(file.key)
        return read_footer(store, file)

    monkeypatch.setattr(footers, "read_footer", counted)
    return found


def lake_of(settings: S3Settings, directory: Path, file_format: str = "Parquet", **options: Any) -> Lake:
    return Lake(settings, directory, format={"format_type": file_format}, options=options, merge_limits={"least_file_bytes": 60_000})


def sync(lake: Lake, mode: str, ids: Sequence[int]) -> None:
    data = [{"id": one, "name": f"{one}" * 40 if one % 7 else "long" * 2_000, "of": {"x": one / 2}} for one in ids]
    schema = schema_of({"id": {"type": "integer"}, "name": {"type": "string"}, "of": schema_of({"x": {"type": "number"}})})
    described = catalog(stream(schema=schema, mode=mode, key="id", sync_id=1))
    lake.sync(described, [records(data, emitted_at=1), state(max(ids)), complete()])


@pytest.mark.parametrize("file_format", ["JSONL", "Parquet"])
def test_a_merge_reads_the_keys_of_the_tables_files(file_format: str, s3_settings: S3Settings, tmp_path: Path, read: list[str]) -> None:
    lake = lake_of(s3_settings, tmp_path, file_format)
    kind = FileKind.FINAL if file_format == "Parquet" else FileKind.STATE
    sync(lake, "append_dedup", range(3_000))
    sync(lake, "append_dedup", [5])
    before = lake.live(kind)
    assert len(before) > 1
    assert read == []

    lake.store.delete([HINT])
    assert {file.keys for file in lake.live(kind)} == {None}
    sync(lake, "append_dedup", [6])
    assert sorted(read) == sorted(file.key for file in before)
    after = lake.live(kind)
    untouched = {file.key: file.keys for file in before if file in after}
    assert 0 < len(untouched) < len(before)

    read.clear()
    sync(lake, "append_dedup", [7])
    assert read == []
    kept = {file.key: file.keys for file in lake.live(kind) if file.key in untouched}
    assert kept
    assert kept == {key: untouched[key] for key in kept}


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_publisher_reads_the_statistics_of_the_files_that_it_adds(
    mode: str, s3_settings: S3Settings, tmp_path: Path, read: list[str]
) -> None:
    lake = lake_of(s3_settings, tmp_path, publish={"delta": True}, tables={"compaction": "off"})
    for start in (0, 2_000):
        sync(lake, mode, range(start, start + 2_000))
    before, finals, store = statistics(lake), lake.live(FileKind.FINAL), lake.store
    assert before
    assert read == []

    store.delete([HINT, *(found.key for found in store.list(LOG))])
    sync(lake, mode, [9_000])
    assert set(read) <= {file.key for file in finals}
    assert len(read) == len(set(read))
    after = statistics(lake)
    assert {path: after[path] for path in before if path in after} == {path: before[path] for path in after if path in before}
    assert set(after) & set(before)

    read.clear()
    sync(lake, mode, [9_001])
    assert read == []


def statistics(lake: Lake) -> dict[str, Any]:
    """The statistics of each file in the Delta log."""
    store = lake.store
    commits = [store.get(found.key) for found in store.list(LOG) if found.key.endswith(".json")]
    actions = [json.loads(action) for commit in commits for action in commit.splitlines()]
    return {action["add"]["path"]: json.loads(action["add"]["stats"]) for action in actions if "add" in action}


def test_a_hint_that_grows_too_large_leaves_statistics_out_first_then_keys_then_files(
    s3_settings: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(s3_settings, tmp_path, publish={"delta": True})
    sync(lake, "append_dedup", range(3_000))
    chain = lake.own_chain()
    live = chain.live_files()
    bare = live.without_values()
    monkeypatch.setattr(hints, "PLAIN_FILES", 0)
    seen: list[tuple[bool, bool] | None] = []
    for size in range(300, 60_000, 300):
        monkeypatch.setattr(hints, "MAX_BYTES", size)
        known = hints.decode_hint(hints.encode_hint(chain.head, live, {})).live
        assert known is None or known.without_values() == bare
        has = None if known is None else (any(file.keys for file in known.files), any(file.statistics for file in known.files))
        seen += [] if seen and seen[-1] == has else [has]
    assert seen == [None, (False, False), (True, False), (True, True)]
