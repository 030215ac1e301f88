"""REST catalogs that refuse what others do: what is published all the same, and what is said of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg import table as iceberg_table
from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection
from destination_s3_spark.tables.publishers.iceberg.publisher import IcebergCatalog, IcebergTable
from destination_s3_spark.tables.publishers.iceberg.table import CatalogTable
from destination_s3_spark.tables.publishers.publication import NotPublished
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import TABLE, writer
from unit_tests.lake.hostile_catalog import HostileCatalog, Json, served
from unit_tests.tables.publishers.iceberg.chained import SCHEMA, live, staged
from unit_tests.tables.publishers.iceberg.lake import NAME, warnings

Refusal = tuple[int, str, str]
"""Status, type and message of an error."""
TABLES = "/tables"


@dataclass
class Server(HostileCatalog):
    """A catalog that refuses some requests. Its namespaces have to be made."""

    refuse: Callable[[str, str, Json], Refusal | None] = lambda *_: None
    namespaces: set[str] = field(default_factory=set)
    changed: Json = field(default_factory=dict)
    """What every table has in its metadata instead of what it was made with."""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Json]:
        asked: Json = json.loads(body) if body else {}
        if refused := self.refuse(method, path, asked):
            return error(*refused)
        match method, path.strip("/").split("/")[1:]:
            case "POST", ["namespaces"]:
                self.namespaces.add(asked["namespace"][0])
                return 200, {"namespace": asked["namespace"], "properties": {}}
            case _, ["namespaces", name] if name not in self.namespaces:
                return error(404, "NoSuchNamespaceException", "no such namespace")
            case "DELETE", ["namespaces", name]:
                self.namespaces.remove(name)
                return 204, {}
        return super().answer(method, path, body)

    def _told(self, name: str) -> Json:
        told = super()._told(name)
        return {**told, "metadata": told["metadata"] | self.changed}

    def age(self, name: str, by: timedelta) -> None:
        """Make the snapshots of a table older."""
        made = self.tables[name]
        older = [one.model_copy(update={"timestamp_ms": one.timestamp_ms - int(by.total_seconds() * 1000)}) for one in made.snapshots]
        self.tables[name] = made.model_copy(update={"snapshots": older})

    def calls(self, method: str) -> list[str]:
        return [path.partition("?")[0].removeprefix("/v1/") for name, path, _ in self.requests if name == method]


def error(status: int, kind: str, message: str) -> tuple[int, Json]:
    return status, {"error": {"message": message, "type": kind, "code": status}}


@pytest.fixture
def server() -> Iterator[Server]:
    with served(Server()) as running:
        assert isinstance(running, Server)
        yield running


def check(server: Server) -> None:
    store = Bucket()
    with Connection(IcebergRest(uri=server.uri, token="t"), S3Settings("bucket")).calls(store, "t/") as catalog:
        CatalogTable(catalog, store, ("default", "checked"), *["s3://bucket/t"] * 3).try_out()


def synced(server: Server, store: Bucket, sync_id: int) -> None:
    """A sync that replaces all files of the table by one."""
    publisher = IcebergTable(IcebergCatalog(IcebergRest(uri=server.uri), S3Settings("bucket")), NAME, TABLE.folder)
    made = writer(store, sync_id, publishers=[publisher])
    made.open()
    made.ensure_schema(SCHEMA)
    made.merge([staged(made, store)], made.live_files().of(FileKind.FINAL), None)
    made.close()


def shown(server: Server, store: Bucket) -> set[str]:
    """The files that readers of the catalog see."""
    with Connection(IcebergRest(uri=server.uri), S3Settings("bucket")).calls(store, "lake/users/_iceberg/") as catalog:
        return {task.file.file_path.removeprefix("s3://bucket/") for task in catalog.load_table(NAME).scan().plan_files()}


def test_no_request_asks_for_credentials(server: Server) -> None:
    """Polaris and Gravitino refuse it if they have none to hand out."""
    check(server)
    assert server.calls("POST") == ["namespaces", "namespaces/default/tables", "namespaces/default/tables/checked"]
    assert {name for _, _, headers in server.requests for name in headers if "delegation" in name.lower()} == set()


def test_a_check_leaves_nothing_behind(server: Server) -> None:
    check(server)
    assert (server.namespaces, server.tables) == (set(), {})


@pytest.mark.parametrize("made", [True, False])
def test_a_check_that_fails_undoes_what_it_can_and_tells_the_first_error(server: Server, made: bool) -> None:
    def refuse(method: str, path: str, asked: Json) -> Refusal | None:
        if method == "POST" and path.endswith(TABLES):
            if made:
                HostileCatalog.answer(server, method, path, json.dumps(asked).encode())
            return 504, "Timeout", "no answer from the store"
        return (409, "NamespaceNotEmptyException", "not empty") if method == "DELETE" and TABLES not in path else None

    server.refuse = refuse
    with pytest.raises(NotPublished, match="no answer from the store"):
        check(server)
    assert server.calls("DELETE") == ["namespaces/default/tables/checked", "namespaces/default"]
    assert server.tables == {}


def test_a_location_that_is_not_allowed_is_a_refusal_in_the_words_of_the_catalog(server: Server) -> None:
    def refuse(method: str, path: str, _: Json) -> Refusal | None:
        outside = "Invalid locations '[s3://bucket/t]': not in the list of allowed locations: [s3://bucket/default/]"
        return (403, "ForbiddenException", outside) if method == "POST" and path.endswith(TABLES) else None

    server.refuse = refuse
    with pytest.raises(NotPublished) as refused:
        check(server)
    assert "not in the list of allowed locations: [s3://bucket/default/])" in str(refused.value)
    assert "their permissions on the namespace, or the locations that it allows." in str(refused.value)


def test_a_conflict_without_a_table_is_told_in_the_words_of_the_catalog(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(method: str, path: str, _: Json) -> Refusal | None:
        unsupported = "Properties contain unsupported property: 'write.metadata.path'"
        return (409, "FailedToSetProperties", unsupported) if method == "POST" and path.endswith(TABLES) else None

    server.refuse = refuse
    synced(server, Bucket(), 1)
    (warning,) = warnings(caplog)
    assert "FailedToSetProperties: Properties contain unsupported property: 'write.metadata.path'" in warning


def test_a_table_is_made_in_the_newest_format_that_can_be_written(server: Server) -> None:
    asked = []

    def noted(method: str, path: str, body: Json) -> None:
        if method == "POST" and path.endswith(TABLES):
            asked.append(body["properties"]["format-version"])

    server.refuse = noted
    synced(server, Bucket(), 1)
    assert asked == ["2"]
    assert server.tables["users"].format_version == 2
    assert "format-version" not in server.tables["users"].properties


def test_a_table_in_a_later_format_is_not_published(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    store = Bucket()
    synced(server, store, 1)
    server.changed = {"format-version": 3, "next-row-id": 0}
    synced(server, store, 2)
    (warning,) = warnings(caplog)
    assert "The Iceberg table shop.users has version 3 of Iceberg's format" in warning
    assert "Drop the table in the catalog, without its files" in warning


def test_a_catalog_that_removes_no_snapshots_gets_every_publish(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nessie keeps its own history."""
    asked = []

    def refuse(_: str, __: str, body: Json) -> Refusal | None:
        removes = any(update["action"] == "remove-snapshots" for update in body.get("updates", ()))
        asked.append(removes)
        return (400, "UnsupportedOperationException", "Nessie does not support removing snapshots") if removes else None

    server.refuse = refuse
    monkeypatch.setattr(iceberg_table, "SNAPSHOTS_KEPT", timedelta(0))
    store = Bucket()
    for sync_id in (1, 2, 3):
        synced(server, store, sync_id)

    assert any(asked)
    assert warnings(caplog) == []
    assert shown(server, store) == live(store)


def test_snapshots_of_a_day_go_together(server: Server) -> None:
    store = Bucket()
    for sync_id, hours in enumerate((20, 10, 10, 0), 1):
        synced(server, store, sync_id)
        server.age("users", timedelta(hours=hours))
    assert len(server.tables["users"].snapshots) == 4, "of 40, 20, 10 hours and now"
    server.age("users", timedelta(hours=13))
    synced(server, store, 5)

    assert len(server.tables["users"].snapshots) == 3, "of 23, 13 hours and now"
    assert shown(server, store) == live(store)
