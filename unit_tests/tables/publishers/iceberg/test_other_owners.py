"""The Iceberg table of a table beside other programs: what they commit is undone, and what is theirs is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.publication import NotPublished
from unit_tests.tables.publishers.iceberg.lake import NAME, Lake, warnings

ID = [("id", pa.int64())]


@pytest.fixture
def lake(make_table: Callable[..., Any], tmp_path: Path) -> Lake:
    return Lake(make_table(), tmp_path)


def test_what_others_commit_is_undone_by_the_next_sync(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1}, {"id": 2})
    table = lake.iceberg()
    table.append(foreign(table))
    assert len(lake.rows("id")) == 3
    lake.session(2).close()
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]
    assert lake.paths() == lake.live()

    lake.iceberg().delete("id = 1")
    assert lake.rows("id") == [{"id": 2}]
    lake.session(3).close()
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]

    first = lake.iceberg().metadata.snapshots[0]
    lake.synced(4, ID, {"id": 3})
    lake.iceberg().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    lake.session(5).close()
    assert lake.rows("id") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_publication_that_another_name_kept_from_beginning_does_not_begin_anew(lake: Lake) -> None:
    writer = lake.table.writer(1)
    lake.set_schema(writer, 0, ID)
    rival = replace(lake.publisher(), rival=StreamId("shop", "Users"))
    rival.begin_anew(lake.table.store, writer.state)
    lake.synced(2, ID, {"id": 1})
    with pytest.raises(NotPublished, match=r"Stream 'shop\.Users' would have the same name"):
        rival.begin_anew(lake.table.store, writer.state)
    assert lake.rows("id") == [{"id": 1}]


def foreign(table: Table) -> pa.Table:
    """One row that somebody else would insert."""
    return pa.Table.from_pylist([{"id": 99}], schema=table.schema().as_arrow())


def test_a_foreign_column_goes_with_the_next_publish(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1})
    lake.iceberg().update_schema().add_column("theirs", LongType()).commit()
    lake.synced(2, ID, {"id": 2})

    assert "theirs" not in lake.iceberg().schema().column_names
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("owner", [{}, {"airbyte.table-id": "s3://other/lake/airbyte_internal/users/"}], ids=["nobody", "another"])
def test_a_table_that_is_not_ours_is_never_changed(lake: Lake, owner: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "theirs", LongType(), required=False))
    folder = f"s3://{lake.table.settings.bucket}/lake/shop/users"
    theirs = catalog.create_table(NAME, schema, folder, properties={**owner, "write.metadata.path": f"{folder}/_iceberg"})
    lake.synced(1, ID, {"id": 1})
    lake.session(2).close()

    assert lake.iceberg().metadata == theirs.metadata
    assert len(warnings(caplog)) == 2
    whose = "it belongs to the table under 's3://other/lake/airbyte_internal/users/'" if owner else "it was not made by this connector"
    assert f"There is an Iceberg table shop.users already, and {whose}. " in warnings(caplog)[0]
    assert "drop the table if nobody needs it" in warnings(caplog)[0]


@pytest.mark.parametrize("scheme", ["s3", "file"])
def test_a_table_whose_metadata_is_elsewhere_is_not_ours_either(
    lake: Lake, scheme: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("shop")
    place = f"s3://{lake.table.settings.bucket}/theirs" if scheme == "s3" else f"file://{tmp_path}/theirs"
    catalog.create_table(NAME, Schema(NestedField(1, "theirs", LongType(), required=False)), place)
    lake.synced(1, ID, {"id": 1})

    (warning,) = warnings(caplog)
    assert f"The Iceberg table names '{place}/metadata/0000" in warning
    assert "choose another publish.iceberg.namespace" in warning


def test_a_table_whose_metadata_is_gone_can_be_dropped(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.synced(1, ID, {"id": 1})
    lake.table.store.delete([found.key for found in lake.table.store.list("lake/shop/users/_iceberg/")])
    lake.synced(2, ID, {"id": 2})
    assert "The metadata of the Iceberg table shop.users is gone from the bucket" in warnings(caplog)[0]

    lake.catalog().drop_table(NAME)
    lake.synced(3, ID, {"id": 3})
    assert lake.rows("id") == [{"id": 1}, {"id": 2}, {"id": 3}]
