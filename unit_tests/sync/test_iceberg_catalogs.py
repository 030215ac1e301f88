"""Tables in Iceberg catalogs that are here for tests, AWS Glue (moto) and a database, read by another program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.buckets import REGION
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import USERS_SCHEMA, catalog
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.sync.registered import Registered, connected, first_rows, refresh_and_take_back


@pytest.fixture
def lake(served_settings: S3Settings, tmp_path: Path) -> Lake:
    """An empty bucket on a server, where the library reads files by itself."""
    return Lake(served_settings, tmp_path)


@pytest.mark.slow
def test_glue_shows_the_rows_a_refresh_and_what_is_taken_back_from_others(lake: Lake, moto_endpoint: str) -> None:
    server = lake.bucket.server
    keys = {"glue.access-key-id": server.access_key, "glue.secret-access-key": server.secret_key}
    reader = {"type": "glue", "glue.endpoint": moto_endpoint, "glue.region": REGION, **keys}
    registered = Registered(lake, {"type": "glue"}, reader, {"AWS_ENDPOINT_URL_GLUE": moto_endpoint})
    connector = connected(registered)
    first_rows(registered, connector)
    refresh_and_take_back(registered, connector, USERS_SCHEMA["properties"], "user 1")
    for name in registered.catalog().list_tables("shop"):
        registered.catalog().drop_table(name)  # other tests have the same server


def test_a_catalog_that_is_down_ends_no_sync(lake: Lake, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    registered = Registered(lake, {"type": "sql", "database_uri": uri, "catalog_name": "lake"}, {"type": "sql", "uri": uri})
    connector = registered.connector()
    connector.write(catalog(stream()), [*users(range(3)), state(1), complete()]).expect_success()
    down: dict[str, Any] = {"publish": {"iceberg": {"type": "rest", "uri": "http://127.0.0.1:9"}}}
    outcome = connector.write(catalog(stream()), [*users(range(3, 6)), state(2), complete()], **down).expect_success()
    assert len(outcome.states) == 1
    assert "table shop.users is not published for iceberg: The Iceberg catalog could not be reached" in outcome.warnings
    assert registered.ids() == [0, 1, 2]
    refused = connector.check(**down).connection_status
    assert refused["status"] == "FAILED"
    assert "Tables cannot be published for Iceberg" in refused["message"]

    connector.write(catalog(stream()), [complete()]).expect_success()
    assert registered.ids() == [*range(6)]
    registered.lake.verify_at_rest()
