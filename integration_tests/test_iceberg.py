"""Tables in real Iceberg catalogs, read by another program: Iceberg's REST server, AWS Glue (moto) and a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from integration_tests.connector import Connector
from integration_tests.iceberg_rest_server import POM, rest_catalog_server
from integration_tests.lake import ProcessLake
from integration_tests.maven import NoMavenError, class_path
from unit_tests.lake.buckets import REGION
from unit_tests.lake.messages import EMITTED_AT_MS, USERS_SCHEMA, JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream, users
from unit_tests.rotation import taken

NAME = ("shop", "users")
VERSIONS = {"history": [{"stream": "*"}]}
EXTRACTED = "_airbyte_extracted_at = '2023-11-14T22:13:20+00:00'"


@dataclass(frozen=True)
class Registered:
    """A lake, the catalog that the connector is to publish to, and what a reader needs to open it."""

    lake: ProcessLake
    options: dict[str, Any]
    properties: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def connector(self, **options: Any) -> Connector:
        return self.lake.connector(environment=self.environment, publish={"iceberg": self.options}, **options)

    def catalog(self) -> Catalog:
        server = self.lake.bucket.server
        store = {
            "s3.endpoint": server.endpoint,
            "s3.access-key-id": server.access_key,
            "s3.secret-access-key": server.secret_key,
            "s3.region": REGION,
        }
        return load_catalog("lake", **self.properties, **store)

    def table(self) -> Table:
        return self.catalog().load_table(NAME)

    def ids(self, condition: str = "id >= 0") -> list[int]:
        return sorted(self.table().scan(condition).to_arrow()["id"].to_pylist())

    def matches_the_chain(self) -> bool:
        """Whether the table and its newest history have the files that they have in the chain."""
        chain = self.lake.chains()[NAME]
        versions = chain.files("current", "closed")
        newest = max((file["history"] for file in versions), default=None)
        history = {file["key"] for file in versions if file["history"] == newest}
        return self._shown("users") == set(chain.final_keys) and (not history or self._shown("users_history") == history)

    def _shown(self, name: str) -> set[str]:
        table = self.catalog().load_table(("shop", name))
        return {task.file.file_path.removeprefix(f"s3://{self.lake.bucket.name}/") for task in table.scan().plan_files()}

    def versions(self, condition: str) -> list[tuple[int, bool]]:
        """The versions of rows, as id and whether it is valid."""
        rows = self.catalog().load_table(("shop", "users_history")).scan(condition).to_arrow().to_pylist()
        return sorted((row["id"], row["_is_current"]) for row in rows)


@pytest.fixture(scope="session")
def rest_jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return class_path(POM, tmp_path_factory.mktemp("iceberg-rest"))
    except NoMavenError as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=taken(["rest", "glue"], 2))
def registered(request: pytest.FixtureRequest, moto_lake: ProcessLake, tmp_path: Path) -> Iterator[Registered]:
    """Each catalog that is a server; unit tests publish to a database."""
    server = moto_lake.bucket.server
    match request.param:
        case "rest":
            with rest_catalog_server(tmp_path, request.getfixturevalue("rest_jars"), moto_lake.bucket) as uri:
                yield Registered(moto_lake, {"type": "rest", "uri": uri}, {"type": "rest", "uri": uri})
        case "glue":
            reader = {"type": "glue", "glue.endpoint": server.endpoint, "glue.region": REGION}
            keys = {"glue.access-key-id": server.access_key, "glue.secret-access-key": server.secret_key}
            made = Registered(moto_lake, {"type": "glue"}, {**reader, **keys}, {"AWS_ENDPOINT_URL_GLUE": server.endpoint})
            yield made
            for name in made.catalog().list_tables("shop"):
                made.catalog().drop_table(name)  # the next test has the same server
        case _:
            uri = f"sqlite:///{tmp_path}/catalog.db"
            yield Registered(moto_lake, {"type": "sql", "database_uri": uri, "catalog_name": "lake"}, {"type": "sql", "uri": uri})


def test_a_table_grows_changes_its_columns_is_refreshed_and_is_taken_back_from_others(registered: Registered) -> None:
    connector = registered.connector(tables={"schema_change": "rewrite", **VERSIONS})
    assert connector.check().connection_status["status"] == "SUCCEEDED"
    dedup: dict[str, Any] = {"mode": "append_dedup", "primary_key": [["id"]]}
    first = connector.write(catalog(stream(**dedup)), [*users(range(10)), state(1), complete()]).expect_success()
    assert "iceberg" not in first.warnings
    assert registered.ids() == [*range(10)] == registered.ids(EXTRACTED)
    assert registered.matches_the_chain()

    if registered.options["type"] == "glue":  # AWS Glue: what comes in between is the same by every catalog
        refresh_and_take_back(registered, connector, USERS_SCHEMA["properties"], "user 1")
        return
    columns = {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    grown = catalog(stream(schema={"type": "object", "properties": columns}, **dedup))
    connector.write(
        grown,
        [record({"id": 5, "name": "x", "address": {"city": "Bern"}}, emitted_at=EMITTED_AT_MS + 1), *users([10]), state(2), complete()],
    ).expect_success()
    assert registered.ids() == [*range(11)]
    assert registered.ids("address.city = 'Bern'") == [5]
    assert registered.ids("name = 'user 9'") == [9]
    assert registered.matches_the_chain()

    assert registered.versions("id = 5") == [(5, False), (5, True)]

    rarely: dict[str, Any] = {"tables": {"merge": [{"stream": "*", "when_runs_mb": 1000}], **VERSIONS}}
    connector.write(grown, [*users([10]), state(2), complete()], **rarely).expect_success()
    assert registered.table().properties["airbyte.rows-waiting"] == "1"
    assert registered.ids() == [*range(11)]

    retyped = {**columns, "name": {"type": "integer"}}
    changed = catalog(stream(schema={"type": "object", "properties": retyped}, **dedup))
    connector.write(changed, [record({"id": 11, "name": 3}), state(3), complete()]).expect_success()
    assert registered.ids("name = 3") == [11]
    assert registered.versions("name = 3 and _valid_to is null") == [(11, True)], "the type has changed, so this is another history"
    assert "airbyte.rows-waiting" not in registered.table().properties
    assert registered.ids() == [*range(12)]
    assert registered.matches_the_chain()

    refresh_and_take_back(registered, connector, retyped, 1)


def refresh_and_take_back(registered: Registered, connector: Connector, columns: JsonObject, name: Any) -> None:
    """A refresh is shown, and what others then commit is undone by the next sync."""
    dedup: dict[str, Any] = {"mode": "append_dedup", "primary_key": [["id"]]}
    refreshed = catalog(stream(schema={"type": "object", "properties": columns}, generation=2, minimum_generation=2, **dedup))
    last = connector.write(refreshed, [record({"id": 1, "name": name}), state(4), complete()]).expect_success()
    assert "iceberg" not in last.warnings
    assert registered.ids() == [1]
    assert registered.matches_the_chain()

    stale = registered.table()
    registered.table().delete("id = 1")
    assert registered.ids() == []
    with pytest.raises(CommitFailedException):
        stale.delete("id = 1")
    again = catalog(stream(schema={"type": "object", "properties": columns}, generation=2, **dedup))
    connector.write(again, [complete()]).expect_success()
    assert registered.ids() == [1], "what others commit is undone"
    assert registered.matches_the_chain()


@pytest.mark.parametrize("registered", ["sql"], indirect=True)
def test_a_catalog_that_is_down_ends_no_sync(registered: Registered) -> None:
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
