"""Syncs as PyAirbyte runs them: every stream has 1 for all its ids in each sync, and only STATEs prove that the source finished."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from destination_s3_spark.errors import TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.lake.messages import complete, stream, users
from unit_tests.sync.sources import END

PYAIRBYTE: Mapping[str, str] = {"AIRBYTE_ENTRYPOINT": "/opt/destination-s3-spark", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
PLATFORM: Mapping[str, str] = {"WORKER_JOB_ID": "1"}


def catalog(mode: str, environ: Mapping[str, str] = PYAIRBYTE) -> Catalog:
    described = catalog_of(stream(mode=mode, key="id", generation=1, minimum_generation=1, sync_id=1))
    return parse_catalog(json.dumps(described).encode(), environ)


MODES = [("overwrite", [2, 3]), ("append", [0, 1, 2, 2, 3]), ("append_dedup", [0, 1, 2, 3])]


@pytest.mark.parametrize(("mode", "expected"), MODES)
def test_each_run_does_what_its_mode_says(lake: Lake, mode: str, expected: list[int]) -> None:
    for ids in ([0, 1, 2], [2, 3]):
        lake.sync(catalog(mode), [*users(ids), END])
    assert sorted(lake.ids_in_folder()) == expected


@pytest.mark.parametrize(("mode", "expected"), MODES)
def test_tables_go_on_whose_runs_counted_as_one_generation(lake: Lake, mode: str, expected: list[int]) -> None:
    lake.sync(catalog(mode, PLATFORM), [*users([0, 1, 2]), END, complete()])
    lake.sync(catalog(mode), [*users([2, 3]), END, complete()])
    assert sorted(lake.ids_in_folder()) == expected


def test_on_the_platform_the_first_job_s_retry_goes_on(lake: Lake) -> None:
    with pytest.raises(TransientError):
        lake.sync(catalog("overwrite", PLATFORM), [*users([0, 1]), END])
    lake.sync(catalog("overwrite", PLATFORM), [*users([2]), END, complete()])
    assert lake.ids_in_folder() == [0, 1, 2]


def test_a_source_that_died_replaces_nothing(lake: Lake) -> None:
    lake.sync(catalog("overwrite"), [*users([0, 1, 2]), END])
    with pytest.raises(TransientError, match="sent no STATE after its last record"):
        lake.sync(catalog("overwrite"), [*users([3, 4, 5])])
    assert lake.ids_in_folder() == [0, 1, 2]
