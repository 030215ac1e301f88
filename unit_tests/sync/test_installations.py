"""A connection that changes from a custom connector to one of the registry and back: its tables stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sync.inline_lake import InlineLake, line, records, status

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
END = line(
    {
        "type": "STATE",
        "state": {
            "type": "STREAM",
            "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {"__ab_no_cursor_state_message": True}},
        },
    }
)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path)


def catalog(mode: str, generation: int | None, minimum: int | None) -> Catalog:
    stream = {
        "stream": {"name": "users", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]},
        "sync_mode": "full_refresh",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": None if generation is None else 1,
    }
    return parse_catalog(json.dumps({"streams": [stream]}).encode())


def as_custom(lake: InlineLake, mode: str, ids: list[int]) -> list[int]:
    """The table's ids after a sync as Airbyte runs it with a custom connector."""
    lake.sync(catalog(mode, None, None), [records(ids), END])
    return lake.ids()


def as_registered(lake: InlineLake, mode: str, ids: list[int], generation: int, minimum: int) -> list[int]:
    """The table's ids after a sync as Airbyte runs it with a connector of the registry."""
    lake.sync(catalog(mode, generation, minimum), [records(ids), END, status("COMPLETE")])
    return lake.ids()


@pytest.mark.parametrize("generation", [0, 4])
@pytest.mark.parametrize(("mode", "again"), [("append", []), ("append_dedup", [2])])
def test_rows_stay(lake: InlineLake, mode: str, again: list[int], generation: int) -> None:
    assert as_custom(lake, mode, [1, 2]) == [1, 2]
    assert as_registered(lake, mode, [*again, 3], generation, 0) == [1, 2, 3]
    assert as_custom(lake, mode, [*again, 4]) == [1, 2, 3, 4]


def test_overwritten_tables_go_on_to_be_overwritten(lake: InlineLake) -> None:
    assert as_custom(lake, "overwrite", [1, 2]) == [1, 2]
    assert as_registered(lake, "overwrite", [3, 4], 1, 1) == [3, 4]
    assert as_custom(lake, "overwrite", [5, 6]) == [5, 6]
    assert as_registered(lake, "overwrite", [7], 3, 3) == [7]


def test_overwrite_becomes_overwrite_and_deduped(lake: InlineLake) -> None:
    """What Airbyte sends a custom connector as `overwrite` keeps duplicates; as a connector of the registry it does not."""
    assert as_custom(lake, "overwrite", [1, 1]) == [1, 1]
    assert as_registered(lake, "append_dedup", [2, 2], 1, 1) == [2]
    assert as_custom(lake, "overwrite", [3, 3]) == [3, 3]
