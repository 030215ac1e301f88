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
from unit_tests.sync.inline_lake import InlineLake, catalog, records, state, status

ADOPTED = "lake/users/2025_01_01_1700000000000_0.parquet"


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> InlineLake:
    """A table that adopted a file of destination-s3 under the default path options."""
    body = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([9], pa.int64())}), body)
    S3Store(s3_settings).put(ADOPTED, body.getvalue(), {GENERATION_METADATA: "0"})
    made = InlineLake(s3_settings, tmp_path)
    sync(made, 1)
    return made


def sync(lake: InlineLake, number: int) -> None:
    lake.sync(catalog("users"), [records([number]), state(number), status("COMPLETE")])


def moved(lake: InlineLake) -> InlineLake:
    return replace(lake, options={"s3_path_format": "new/${STREAM_NAME}/", "file_name_pattern": "{date}_{part_number}{format_extension}"})


def test_a_table_stays_where_it_is(lake: InlineLake, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert later.ids() == [1, 2, 3, 9]


def test_an_adopted_file_is_read_by_what_its_metadata_says(lake: InlineLake) -> None:
    store, options = S3Store(lake.settings), moved(lake).options
    config = {
        "s3_bucket_name": lake.settings.bucket,
        "s3_bucket_path": "lake",
        "s3_bucket_region": "us-east-1",
        "s3_endpoint": lake.settings.endpoint,
        "access_key_id": "key",
        "secret_access_key": "secret",
        "format": {"format_type": "Parquet"},
        **options,
    }
    assert sorted(dataset.read(config, "users").to_table()["id"].to_pylist()) == [1, 9]

    store.put(ADOPTED, store.get(ADOPTED))
    with pytest.raises(Exception, match="is not one of its objects"):
        dataset.read(config, "users")
