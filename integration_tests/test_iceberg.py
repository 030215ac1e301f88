"""A table in Iceberg's own REST catalog server, read by another program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.iceberg_rest_server import POM, rest_catalog_server
from integration_tests.maven import NoMavenError, class_path
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.lake import Lake
from unit_tests.sync.registered import Registered, change_columns, connected, first_rows, refresh_and_take_back


@pytest.fixture
def registered(moto: S3Server, tmp_path: Path) -> Iterator[Registered]:
    try:
        jars = class_path(POM, tmp_path)
    except NoMavenError as missing:
        pytest.skip(str(missing))
    lake = Lake(new_bucket(moto).settings, tmp_path)
    with rest_catalog_server(tmp_path, jars, lake.bucket) as uri:
        yield Registered(lake, {"type": "rest", "uri": uri}, {"type": "rest", "uri": uri})


def test_a_table_grows_changes_its_columns_is_refreshed_and_is_taken_back_from_others(registered: Registered) -> None:
    connector = connected(registered)
    first_rows(registered, connector)
    refresh_and_take_back(registered, connector, change_columns(registered, connector), 1)
