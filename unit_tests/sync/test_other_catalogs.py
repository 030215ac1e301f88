"""Tables of several catalogs in one bucket path: each has a folder of its own, as if they were in one catalog."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.factory import TableFactory
from unit_tests.sync.inline_lake import InlineLake, line

ALIKE = (StreamId("s", "用户"), StreamId("s", "订单"))
"""Names that become the same folder."""
NESTED = (StreamId(None, "shop"), StreamId("shop", "users"))
SHARED = {"s3_path_format": "all/", "publish": {"symlink": False}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    return InlineLake(s3_settings, tmp_path)


def catalog(*streams: StreamId, mode: str) -> Catalog:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    entries = [
        {
            "stream": {"name": of.name, "namespace": of.namespace, "json_schema": schema, "supported_sync_modes": ["incremental"]},
            "sync_mode": "incremental",
            "destination_sync_mode": mode,
            "primary_key": [["id"]],
            "generation_id": 1,
            "minimum_generation_id": 0,
            "sync_id": 1,
        }
        for of in streams
    ]
    return parse_catalog(json.dumps({"streams": entries}).encode())


def sync(lake: InlineLake, streams: Sequence[StreamId], first: int, mode: str = "append_dedup") -> None:
    """Sync one catalog with these streams. Each gets one record, the next id from `first` on."""
    blocks = []
    for number, of in enumerate(streams, start=first):
        names: dict[str, Any] = {"name": of.name, "namespace": of.namespace}
        record = {"stream": of.name, "namespace": of.namespace, "emitted_at": 1, "data": {"id": number}}
        complete = {"stream_descriptor": names, "status": "COMPLETE"}
        state = {"type": "STREAM", "stream": {"stream_descriptor": names, "stream_state": {"cursor": number}}}
        blocks += [
            line({"type": "RECORD", "record": record}),
            line({"type": "STATE", "state": state}),
            line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": complete}}),
        ]
    lake.sync(catalog(*streams, mode=mode), blocks)


def factory(lake: InlineLake) -> TableFactory:
    return TableFactory(lake.config(), S3Store(lake.settings), datetime.now(UTC))


def ids_below(lake: InlineLake, root: str) -> list[int]:
    store = S3Store(lake.settings)
    files = [pq.read_table(pa.BufferReader(store.get(found.key))) for found in store.list(root) if found.key.endswith(".parquet")]
    return sorted(value for file in files for value in file["id"].to_pylist())


@pytest.mark.parametrize("pair", [ALIKE, NESTED, NESTED[::-1]])
def test_a_table_begins_beside_those_of_other_catalogs(lake: InlineLake, pair: tuple[StreamId, StreamId]) -> None:
    published = replace(lake, options={"publish": {"delta": True}})
    sync(published, pair[:1], 1)
    sync(published, pair[1:], 2)

    roots = factory(lake).find().roots
    assert overlaps(roots, factory(lake).template) == {}
    assert [ids_below(lake, roots[of]) for of in pair] == [[1], [2]]
    assert all(S3Store(lake.settings).head(f"{root}_delta_log/{0:020}.json") is not None for root in roots.values())
    assert all(len(of) == 2 for of in factory(published).publishers(factory(lake).find()).values())

    sync(published, pair, 3)
    assert factory(lake).find().roots == roots
    assert [ids_below(lake, roots[of]) for of in pair] == [[1, 3], [2, 4]]


@pytest.mark.parametrize("pair", [NESTED, NESTED[::-1]])
def test_a_table_that_is_added_to_a_catalog_keeps_away_from_those_that_left_it(lake: InlineLake, pair: tuple[StreamId, StreamId]) -> None:
    stays = StreamId("other", "orders")
    sync(lake, [pair[0], stays], 1)
    sync(lake, [stays, pair[1]], 3)
    roots = factory(lake).find().roots
    assert len(roots) == 3
    assert overlaps(roots, factory(lake).template) == {}


def test_a_folder_shared_with_a_table_of_another_catalog_is_refused_with_what_helps(lake: InlineLake) -> None:
    one, other = StreamId("s", "one"), StreamId("s", "other")
    shared = replace(lake, options=SHARED)
    sync(shared, [one], 1, mode="append")
    with pytest.raises(ConfigError, match=r"'s\.other' .* of stream 's\.one'\. Put \$\{NAMESPACE\} and \$\{STREAM_NAME\} into"):
        sync(shared, [other], 2)

    sync(shared, [other], 3, mode="append")
    for lake_of in (shared, lake):
        with pytest.raises(ConfigError, match=r"A table that exists stays in its folder: sync one of the two into another s3_bucket_path"):
            sync(lake_of, [one, other], 4)


def test_tables_of_other_catalogs_that_share_a_folder_concern_nobody_else(lake: InlineLake, caplog: pytest.LogCaptureFixture) -> None:
    sync(replace(lake, options=SHARED), [StreamId("s", "one")], 1, mode="append")
    sync(replace(lake, options=SHARED), [StreamId("s", "other")], 2, mode="append")
    with caplog.at_level(logging.WARNING, "airbyte"):
        sync(lake, [StreamId("shop", "users")], 3)
        sync(replace(lake, options={"publish": {"delta": True}}), [StreamId("shop", "orders")], 4)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    with pytest.raises(ConfigError, match=r"stream 's\.new' and stream 's\.o.*or, if both tables exist"):
        sync(replace(lake, options={**SHARED, "publish": {"delta": True}}), [StreamId("s", "new")], 5, mode="append")
