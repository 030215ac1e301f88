"""Tables of several catalogs in one bucket path: each has a folder of its own, as if they were in one catalog."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, record, state, stream
from unit_tests.lake.messages import catalog as catalog_of

ALIKE = (StreamId("s", "用户"), StreamId("s", "订单"))
"""Names that become the same folder."""
NESTED = (StreamId(None, "shop"), StreamId("shop", "users"))
SHARED = {"s3_path_format": "all/", "publish": {"symlink": False}}


def catalog(*streams: StreamId, mode: str) -> JsonObject:
    return catalog_of(*(stream(of.name, of.namespace, mode=mode, key="id", sync_id=1) for of in streams))


def sync(lake: Lake, streams: Sequence[StreamId], first: int, mode: str = "append_dedup") -> None:
    """Sync one catalog with these streams. Each gets one record, the next id from `first` on."""
    blocks: list[bytes] = []
    for number, of in enumerate(streams, start=first):
        names: dict[str, Any] = {"name": of.name, "namespace": of.namespace}
        blocks += [record({"id": number}, **names), state(number, **names), complete(**names)]
    lake.sync(catalog(*streams, mode=mode), blocks)


def ids_below(lake: Lake, root: str) -> list[int]:
    store = lake.store
    files = [pq.read_table(pa.BufferReader(store.get(found.key))) for found in store.list(root) if found.key.endswith(".parquet")]
    return sorted(value for file in files for value in file["id"].to_pylist())


@pytest.mark.parametrize("pair", [ALIKE, NESTED, NESTED[::-1]])
def test_a_table_begins_beside_those_of_other_catalogs(lake: Lake, pair: tuple[StreamId, StreamId]) -> None:
    published = replace(lake, options={"publish": {"delta": True}})
    sync(published, pair[:1], 1)
    sync(published, pair[1:], 2)

    roots = lake.factory().find().roots
    assert overlaps(roots, lake.factory().template) == {}
    assert [ids_below(lake, roots[of]) for of in pair] == [[1], [2]]
    assert all(lake.store.head(f"{root}_delta_log/{0:020}.json") is not None for root in roots.values())
    assert all(len(of) == 2 for of in published.factory().publishers(lake.factory().find()).values())

    sync(published, pair, 3)
    assert lake.factory().find().roots == roots
    assert [ids_below(lake, roots[of]) for of in pair] == [[1, 3], [2, 4]]


@pytest.mark.parametrize("pair", [NESTED, NESTED[::-1]])
def test_a_table_that_is_added_to_a_catalog_keeps_away_from_those_that_left_it(lake: Lake, pair: tuple[StreamId, StreamId]) -> None:
    stays = StreamId("other", "orders")
    sync(lake, [pair[0], stays], 1)
    sync(lake, [stays, pair[1]], 3)
    roots = lake.factory().find().roots
    assert len(roots) == 3
    assert overlaps(roots, lake.factory().template) == {}


def test_a_folder_shared_with_a_table_of_another_catalog_is_refused_with_what_helps(lake: Lake) -> None:
    one, other = StreamId("s", "one"), StreamId("s", "other")
    shared = replace(lake, options=SHARED)
    sync(shared, [one], 1, mode="append")
    with pytest.raises(ConfigError, match=r"'s\.other' .* of stream 's\.one'\. Put \$\{NAMESPACE\} and \$\{STREAM_NAME\} into"):
        sync(shared, [other], 2)

    sync(shared, [other], 3, mode="append")
    for lake_of in (shared, lake):
        with pytest.raises(ConfigError, match=r"A table that exists stays in its folder: sync one of the two into another s3_bucket_path"):
            sync(lake_of, [one, other], 4)


def test_tables_of_other_catalogs_that_share_a_folder_concern_nobody_else(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    sync(replace(lake, options=SHARED), [StreamId("s", "one")], 1, mode="append")
    sync(replace(lake, options=SHARED), [StreamId("s", "other")], 2, mode="append")
    with caplog.at_level(logging.WARNING, "airbyte"):
        sync(lake, [StreamId("shop", "users")], 3)
        sync(replace(lake, options={"publish": {"delta": True}}), [StreamId("shop", "orders")], 4)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    with pytest.raises(ConfigError, match=r"stream 's\.new' and stream 's\.o.*or, if both tables exist"):
        sync(replace(lake, options={**SHARED, "publish": {"delta": True}}), [StreamId("s", "new")], 5, mode="append")
