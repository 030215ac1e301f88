"""Delta tables as Delta readers see them: values and filters after every kind of change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.tables.publishers.delta import DeltaTable

COLUMNS = [("id", pa.int64())]


@pytest.fixture
def table(make_table: Callable[..., Any]) -> Any:
    return make_table()


def session(table: Any, sync_id: int) -> Any:
    return table.writer(sync_id, publishers=[DeltaTable()])


def append(table: Any, writer: Any, *ids: int) -> None:
    schema = table.set_schema(writer, 0, COLUMNS)
    rows = table.rows(schema, *({"id": number} for number in ids))
    table.commit(writer, table.stage(writer, FileKind.FINAL, rows), table.stage(writer, FileKind.RAW, rows))


def storage_options(table: Any) -> dict[str, str]:
    settings = table.settings
    return {
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_ACCESS_KEY_ID": settings.credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": settings.credentials.secret_access_key,
        "AWS_REGION": settings.region,
        "AWS_ALLOW_HTTP": "true",
    }


def uri(table: Any) -> str:
    return f"s3://{table.settings.bucket}/{table.table.final_root}"


def ids(table: Any) -> list[int]:
    found = deltalake.DeltaTable(uri(table), storage_options=storage_options(table)).to_pyarrow_table()
    polars = pl.scan_delta(uri(table), storage_options=storage_options(table)).collect()
    assert sorted(polars["id"].to_list()) == sorted(found["id"].to_pylist())
    return sorted(found["id"].to_pylist())


def test_appends_are_seen(table: Any) -> None:
    for sync_id in range(1, 13):
        writer = session(table, sync_id)
        append(table, writer, sync_id)
        writer.close()
        if sync_id in (1, 2, 10, 11, 12):
            assert ids(table) == list(range(1, sync_id + 1))
