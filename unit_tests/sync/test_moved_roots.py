"""Tables that keep their folder when the path options change: they go on, adopted files included, and nobody else's folder is theirs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import GENERATION_METADATA
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables import dataset
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, state, stream, users

ADOPTED = "lake/users/2025_01_01_1700000000000_0.parquet"


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    """A table that adopted a file of destination-s3 under the default path options."""
    body = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([9], pa.int64())}), body)
    S3Store(s3_settings).put(ADOPTED, body.getvalue(), {GENERATION_METADATA: "0"})
    made = Lake(s3_settings, tmp_path)
    sync(made, 1)
    return made


def sync(lake: Lake, number: int) -> None:
    lake.sync(catalog(stream()), [*users([number]), state(number), complete()])


def moved(lake: Lake) -> Lake:
    return replace(lake, options={"s3_path_format": "new/${STREAM_NAME}/", "file_name_pattern": "{date}_{part_number}{format_extension}"})


def test_a_table_stays_where_it_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    folders = S3Store.folders

    def watched(store: S3Store, prefix: str) -> Iterator[str]:
        looked_up.append(prefix)
        return folders(store, prefix)

    monkeypatch.setattr(S3Store, "folders", watched)
    sync(lake, 2)
    assert looked_up == []

    later = moved(lake)
    sync(later, 3)
    assert looked_up == ["lake/airbyte_internal/"]
    assert later.ids_in_folder() == [1, 2, 3, 9]


def test_an_adopted_file_is_read_by_what_its_metadata_says(lake: Lake) -> None:
    store = lake.store
    config = moved(lake).raw_config()
    assert sorted(dataset.read(config, "users").to_table()["id"].to_pylist()) == [1, 9]

    store.put(ADOPTED, store.get(ADOPTED))
    with pytest.raises(Exception, match="is not one of its objects"):
        dataset.read(config, "users")
