"""Streams of files whose files are off: what their records say about the files is synced, the files themselves are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, record, state, stream

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "file_name": {"type": "string"}}}


def file_record(number: int, **more: Any) -> bytes:
    data = {"id": number, "file_name": f"{number}.csv"}
    return record(data, **more)


@pytest.mark.parametrize("configured", [{}, {"include_files": False}, {"include_files": None}])
def test_a_file_based_stream_without_its_files_syncs_like_any_other(
    s3_settings: S3Settings, tmp_path: Path, configured: dict[str, Any]
) -> None:
    lake = Lake(s3_settings, tmp_path)
    staged = {"staging_file_url": "/staging/files/2.csv", "source_file_relative_path": "2.csv", "file_size_bytes": 12}

    described = stream(schema=SCHEMA, **configured)
    described["stream"]["is_file_based"] = True
    lake.sync(catalog(described), [file_record(1), file_record(2, file_reference=staged), state(2), complete()])

    assert lake.ids_in_folder() == [1, 2]
    assert len(lake.acknowledged()) == 1
