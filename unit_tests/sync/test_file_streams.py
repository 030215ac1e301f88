"""Streams of files whose files are off: what their records say about the files is synced, the files themselves are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sync.inline_lake import InlineLake, line, state, status

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "file_name": {"type": "string"}}}


def catalog(**configured: Any) -> bytes:
    described = {"name": "users", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"], "is_file_based": True}
    ids = {"generation_id": 1, "minimum_generation_id": 0, "sync_id": 1}
    stream = {"stream": described, "sync_mode": "full_refresh", "destination_sync_mode": "append", **ids, **configured}
    return json.dumps({"streams": [stream]}).encode()


def file_record(number: int, **more: Any) -> bytes:
    data = {"id": number, "file_name": f"{number}.csv"}
    return line({"type": "RECORD", "record": {"stream": "users", "emitted_at": 1, "data": data, **more}})


@pytest.mark.parametrize("configured", [{}, {"include_files": False}, {"include_files": None}])
def test_a_file_based_stream_without_its_files_syncs_like_any_other(
    s3_settings: S3Settings, tmp_path: Path, configured: dict[str, Any]
) -> None:
    lake = InlineLake(s3_settings, tmp_path)
    staged = {"staging_file_url": "/staging/files/2.csv", "source_file_relative_path": "2.csv", "file_size_bytes": 12}

    lake.sync(parse_catalog(catalog(**configured)), [file_record(1), file_record(2, file_reference=staged), state(2), status("COMPLETE")])

    assert lake.ids() == [1, 2]
    assert len(lake.acknowledged()) == 1
