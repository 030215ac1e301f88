"""Tables in real Iceberg catalogs, read by another program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from unit_tests.lake.buckets import REGION
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import EMITTED_AT_MS, JsonObject, catalog
from unit_tests.lake.shop import complete, record, state, stream, users

NAME = ("shop", "users")
DEDUP: dict[str, Any] = {"mode": "append_dedup", "primary_key": [["id"]]}
VERSIONS = {"history": [{"stream": "*"}]}
EXTRACTED = "_airbyte_extracted_at = '2023-11-14T22:13:20+00:00'"


@dataclass(frozen=True)
class Registered:
    """A lake, the catalog that the connector is to publish to, and what a reader needs to open it."""

    lake: Lake
    options: dict[str, Any]
    properties: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def connector(self, **options: Any) -> InlineConnector:
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


def connected(registered: Registered) -> InlineConnector:
    """A connector that rewrites tables whose columns change their types, and keeps versions of rows."""
    return registered.connector(tables={"schema_change": "rewrite", **VERSIONS})


def first_rows(registered: Registered, connector: InlineConnector) -> None:
    """The catalog is found to be good, and shows the first rows."""
    assert connector.check().connection_status["status"] == "SUCCEEDED"
    first = connector.write(catalog(stream(**DEDUP)), [*users(range(10)), state(1), complete()]).expect_success()
    assert "iceberg" not in first.warnings
    assert registered.ids() == [*range(10)] == registered.ids(EXTRACTED)
    assert registered.matches_the_chain()


def change_columns(registered: Registered, connector: InlineConnector) -> JsonObject:
    """Columns come, rows wait, and a column gets another type. Returns the columns."""
    columns = {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    grown = catalog(stream(schema={"type": "object", "properties": columns}, **DEDUP))
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
    changed = catalog(stream(schema={"type": "object", "properties": retyped}, **DEDUP))
    connector.write(changed, [record({"id": 11, "name": 3}), state(3), complete()]).expect_success()
    assert registered.ids("name = 3") == [11]
    assert registered.versions("name = 3 and _valid_to is null") == [(11, True)], "the type has changed, so this is another history"
    assert "airbyte.rows-waiting" not in registered.table().properties
    assert registered.ids() == [*range(12)]
    assert registered.matches_the_chain()

    return retyped


def refresh_and_take_back(registered: Registered, connector: InlineConnector, columns: JsonObject, name: Any) -> None:
    """A refresh is shown, and what others then commit is undone by the next sync."""
    refreshed = catalog(stream(schema={"type": "object", "properties": columns}, generation=2, minimum_generation=2, **DEDUP))
    last = connector.write(refreshed, [record({"id": 1, "name": name}), state(4), complete()]).expect_success()
    assert "iceberg" not in last.warnings
    assert registered.ids() == [1]
    assert registered.matches_the_chain()

    stale = registered.table()
    registered.table().delete("id = 1")
    assert registered.ids() == []
    with pytest.raises(CommitFailedException):
        stale.delete("id = 1")
    again = catalog(stream(schema={"type": "object", "properties": columns}, generation=2, **DEDUP))
    connector.write(again, [complete()]).expect_success()
    assert registered.ids() == [1], "what others commit is undone"
    assert registered.matches_the_chain()
