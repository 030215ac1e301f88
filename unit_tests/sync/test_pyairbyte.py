"""Syncs as PyAirbyte runs them: every stream has 1 for all its ids in each sync, and only STATEs prove that the source finished."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from destination_s3_spark.errors import TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sync.inline_lake import InlineLake, records, status
from unit_tests.sync.test_installations import END

PYAIRBYTE: Mapping[str, str] = {"AIRBYTE_ENTRYPOINT": "/opt/destination-s3-spark", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
PLATFORM: Mapping[str, str] = {"WORKER_JOB_ID": "1"}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path)


def catalog(mode: str, environ: Mapping[str, str] = PYAIRBYTE) -> Catalog:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    stream = {
        "stream": {"name": "users", "json_schema": schema, "supported_sync_modes": ["full_refresh"]},
        "sync_mode": "full_refresh",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "generation_id": 1,
        "minimum_generation_id": 1,
        "sync_id": 1,
    }
    return parse_catalog(json.dumps({"streams": [stream]}).encode(), environ)


MODES = [("overwrite", [2, 3]), ("append", [0, 1, 2, 2, 3]), ("append_dedup", [0, 1, 2, 3])]


@pytest.mark.parametrize(("mode", "expected"), MODES)
def test_each_run_does_what_its_mode_says(lake: InlineLake, mode: str, expected: list[int]) -> None:
    for ids in ([0, 1, 2], [2, 3]):
        lake.sync(catalog(mode), [records(ids), END])
    assert sorted(lake.ids()) == expected


@pytest.mark.parametrize(("mode", "expected"), MODES)
def test_tables_go_on_whose_runs_counted_as_one_generation(lake: InlineLake, mode: str, expected: list[int]) -> None:
    lake.sync(catalog(mode, PLATFORM), [records([0, 1, 2]), END, status("COMPLETE")])
    lake.sync(catalog(mode), [records([2, 3]), END, status("COMPLETE")])
    assert sorted(lake.ids()) == expected


def test_on_the_platform_the_first_job_s_retry_goes_on(lake: InlineLake) -> None:
    with pytest.raises(TransientError):
        lake.sync(catalog("overwrite", PLATFORM), [records([0, 1]), END])
    lake.sync(catalog("overwrite", PLATFORM), [records([2]), END, status("COMPLETE")])
    assert lake.ids() == [0, 1, 2]


def test_a_source_that_died_replaces_nothing(lake: InlineLake) -> None:
    lake.sync(catalog("overwrite"), [records([0, 1, 2]), END])
    with pytest.raises(TransientError, match="sent no STATE after its last record"):
        lake.sync(catalog("overwrite"), [records([3, 4, 5])])
    assert lake.ids() == [0, 1, 2]
