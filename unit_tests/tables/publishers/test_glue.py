"""Tables in moto's Glue: what is registered after each kind of change, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.glue import GlueTables
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import rules
from destination_s3_spark.tables.publishers.glue import GlueTable, delta_definition, symlink_definition
from destination_s3_spark.tables.publishers.publication import publication_of
from destination_s3_spark.tables.publishers.registry import check_publishers, publishers_of, require_publishable
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from unit_tests.cases import each
from unit_tests.http_server import serving

ID = [("id", pa.int64())]
TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 0)
OWN = ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"]


@pytest.fixture
def database() -> str:
    """A database that no other test uses."""
    return f"lake_{uuid4().hex}"


@pytest.fixture
def glue(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Glue as another program sees it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_endpoint)
    return boto3.client("glue", "us-east-1", endpoint_url=moto_endpoint, aws_access_key_id="k", aws_secret_access_key="s")


@pytest.fixture
def denied(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The calls of Glue that the connector has no permission for."""
    found: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["X-Amz-Target"].removeprefix("AWSGlue.") in found:
                self._answer(400, b'{"__type": "AccessDeniedException", "Message": "no"}')
                return
            with suppress(HTTPError), urlopen(Request(moto_endpoint, content, dict(self.headers), method="POST")) as reply:
                self._answer(200, reply.read())
                return
            self._answer(400, b'{"__type": "EntityNotFoundException", "Message": "none"}')

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", endpoint)
        yield found


@pytest.fixture
def table(make_table: Callable[..., Any], glue: Any) -> Any:
    return make_table()


def publisher(table: Any, database: str, **more: Any) -> GlueTable:
    return GlueTable(GlueTables(table.settings), (database, "users"), table.table.folder, **more)


def synced(table: Any, sync_id: int, shown: GlueTable, columns: Any = ID, schema_id: int = 0, **schema: object) -> Any:
    writer = table.writer(sync_id, publishers=[SymlinkManifest(table.settings.bucket), shown])
    made = table.set_schema(writer, schema_id, columns, **schema)
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(made, {"id": sync_id})))
    writer.close()
    return writer


def registered(glue: Any, database: str) -> dict[str, Any]:
    found: dict[str, Any] = glue.get_table(DatabaseName=database, Name="users")["Table"]
    return found


def types(found: dict[str, Any]) -> dict[str, str]:
    return {column["Name"]: column["Type"] for column in found["StorageDescriptor"]["Columns"] if column["Name"] not in OWN}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "airbyte"]


def test_a_table_is_registered_with_its_manifest(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database))
    found = registered(glue, database)

    bucket = table.settings.bucket
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert found["PartitionKeys"] == []
    assert found["Parameters"]["airbyte.table-id"] == f"s3://{bucket}/{table.table.folder}"
    storage = found["StorageDescriptor"]
    assert storage["Location"] == f"s3://{bucket}/lake/shop/users/_symlink_format_manifest/"
    assert storage["InputFormat"] == "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
    assert storage["SerdeInfo"]["SerializationLibrary"].endswith("ParquetHiveSerDe")
    assert [column["Name"] for column in storage["Columns"]] == [*OWN, "id"]
    meta = "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>"
    assert [column["Type"] for column in storage["Columns"]] == ["string", "timestamp", meta, "bigint", "bigint"]


def test_columns_have_the_types_of_hive(table: Any, glue: Any, database: str, caplog: pytest.LogCaptureFixture) -> None:
    columns = [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("opens", pa.time64("us")),
        ("odd", pa.struct([("a:b", pa.string())])),
        ("open_days", pa.list_(pa.struct([("from", pa.time64("us"))]))),
        ("order no", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("tree", pa.struct([("leaves", pa.list_(pa.float64()))])),
    ]
    synced(table, 1, publisher(table, database), columns)
    synced(table, 2, publisher(table, database), columns)

    assert types(registered(glue, database)) == {
        "id": "bigint",
        "flag": "boolean",
        "day": "date",
        "moment": "timestamp",
        "order no": "string",
        "price": "decimal(12,2)",
        "tree": "struct<leaves:array<double>>",
    }
    (warning,) = warnings(caplog)
    assert warning == f"columns that Athena has no type for are not registered in Glue for {database}.users: opens, odd, open_days"


def test_times_of_day_as_integers_are_registered(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database), [*ID, ("opens", pa.time64("us"))], encodings={"extractedAt": "millis", "time": "int64"})

    assert types(registered(glue, database)) == {"id": "bigint", "opens": "bigint"}


def test_new_columns_are_registered_and_what_others_added_stays(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database))
    found = registered(glue, database)
    found["StorageDescriptor"]["Columns"][-1]["Comment"] = "the number"
    theirs = {"Description": "ours", "Parameters": {**found["Parameters"], "team": "shop"}}
    glue.update_table(
        DatabaseName=database,
        TableInput={"Name": "users", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": found["StorageDescriptor"], **theirs},
    )
    synced(table, 2, publisher(table, database), [*ID, ("more", pa.struct([("text", pa.string())]))], schema_id=1)

    found = registered(glue, database)
    assert types(found) == {"id": "bigint", "more": "struct<text:string>"}
    assert (found["Description"], found["Parameters"]["team"]) == ("ours", "shop")
    assert [column.get("Comment") for column in found["StorageDescriptor"]["Columns"]][-2:] == ["the number", None]


def test_a_table_whose_columns_stay_is_not_written_again(table: Any, glue: Any, database: str) -> None:
    columns = [*ID, ("orderNo", pa.struct([("theirNo", pa.string())]))]  # Glue stores names of columns, not of members, in small letters
    synced(table, 1, publisher(table, database), columns)
    found = registered(glue, database)
    synced(table, 2, publisher(table, database), columns)

    assert types(found) == {"id": "bigint", "orderno": "struct<theirNo:string>"}
    assert registered(glue, database)["Parameters"]["airbyte.block"] == found["Parameters"]["airbyte.block"]


@pytest.mark.parametrize("owner", [{}, {"airbyte.table-id": "s3://other/x/"}], ids=["nobody", "another"])
def test_a_table_that_is_not_ours_is_never_changed(
    table: Any, glue: Any, database: str, owner: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    glue.create_database(DatabaseInput={"Name": database})
    glue.create_table(DatabaseName=database, TableInput={"Name": "users", "Parameters": owner, "StorageDescriptor": {"Columns": []}})
    synced(table, 1, publisher(table, database))
    table.writer(2, publishers=[publisher(table, database)]).close()

    assert registered(glue, database)["StorageDescriptor"] == {"Columns": []}
    assert len(warnings(caplog)) == 2
    assert f"There is a table {database}.users in AWS Glue already, and it " in warnings(caplog)[0]


def test_an_idle_sync_registers_a_dropped_table_and_outdated_columns(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database))
    glue.delete_table(DatabaseName=database, Name="users")
    table.writer(2, publishers=[publisher(table, database)]).close()
    assert types(registered(glue, database)) == {"id": "bigint"}

    writer = synced(table, 3, publisher(table, "other_" + database), [*ID, ("more", pa.string())], schema_id=1)
    shown = publisher(table, database)
    found = publication_of(shown, table.store, writer.state, writer.live_files())
    assert found.is_behind(writer.state.last_data)
    table.writer(4, publishers=[shown]).close()
    assert types(registered(glue, database)) == {"id": "bigint", "more": "string"}


def test_while_files_have_an_older_type_the_columns_stay(table: Any, glue: Any, database: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = publisher(table, database)
    synced(table, 1, shown)
    writer = table.writer(2, publishers=[shown])
    schema = table.set_schema(writer, 1, [("id", pa.string())], retyped=["id"])
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": "x"})))
    found = publication_of(shown, table.store, writer.state, writer.live_files())
    assert found.refusal is not None
    writer.merge([table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": "1"}))], writer.live_files().of(FileKind.FINAL), None)
    writer.close()

    assert types(registered(glue, database)) == {"id": "string"}
    assert warnings(caplog) == []


def test_a_later_session_is_not_overwritten(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database))
    first = table.writer(2, publishers=[publisher(table, database)])
    table.set_schema(first, 0, ID)
    state, live = first.state, first.live_files()
    synced(table, 3, publisher(table, database), [*ID, ("more", pa.string())], schema_id=1)
    publisher(table, database).publish(table.store, state, live, None)

    assert types(registered(glue, database)) == {"id": "bigint", "more": "string"}


@pytest.mark.parametrize("block", ["9999", "x", "1" * 5000, "-1"])
def test_a_definition_of_no_block_does_not_stay(table: Any, glue: Any, database: str, block: str) -> None:
    synced(table, 1, publisher(table, database))
    found = registered(glue, database)
    kept = {name: found[name] for name in ("Name", "StorageDescriptor", "TableType", "Parameters") if name in found}
    kept["Parameters"] = {**kept["Parameters"], "airbyte.block": block}
    glue.update_table(DatabaseName=database, TableInput=kept)
    synced(table, 2, publisher(table, database), [*ID, ("more", pa.string())], schema_id=1)

    assert types(registered(glue, database)) == {"id": "bigint", "more": "string"}


def test_a_delta_table_is_registered_by_its_folder_alone(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database, define=delta_definition))
    found = registered(glue, database)

    assert found["StorageDescriptor"]["Location"] == f"s3://{table.settings.bucket}/lake/shop/users/"
    assert found["StorageDescriptor"]["Columns"] == []
    serde = found["StorageDescriptor"]["SerdeInfo"]
    assert serde["Parameters"] == {"path": found["StorageDescriptor"]["Location"], "serialization.format": "1"}
    assert (found["Parameters"]["table_type"], found["Parameters"]["spark.sql.sources.provider"]) == ("DELTA", "delta")
    synced(table, 2, publisher(table, database))
    manifest = registered(glue, database)
    assert manifest["StorageDescriptor"]["Location"].endswith("_symlink_format_manifest/")
    assert "table_type" not in manifest["Parameters"], "or Athena would look for a Delta log there"
    synced(table, 3, publisher(table, database, define=delta_definition))
    assert registered(glue, database)["Parameters"].keys() == found["Parameters"].keys()


def test_a_delta_table_that_was_registered_without_the_path_is_put_right(table: Any, glue: Any, database: str) -> None:
    """Trino reads no table without it."""
    shown = publisher(table, database, define=delta_definition)
    synced(table, 1, shown)
    found = registered(glue, database)
    kept = {key: found[key] for key in ("Name", "TableType", "Parameters")}
    bare = {"Columns": [], "Location": found["StorageDescriptor"]["Location"]}
    for storage in (bare, {**bare, "SerdeInfo": {}}, {**found["StorageDescriptor"], "SerdeInfo": {"Parameters": {"path": "s3://other/"}}}):
        glue.update_table(DatabaseName=database, TableInput={**kept, "StorageDescriptor": storage})
        writer = table.writer(2, publishers=[shown])
        assert publication_of(shown, table.store, writer.state, writer.live_files()).block is None
        writer.close()  # a sync without records for the table

        assert registered(glue, database)["StorageDescriptor"] == found["StorageDescriptor"]


def test_an_idle_sync_registers_the_manifest_after_the_delta_log_is_gone(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database, define=delta_definition))
    table.writer(2, publishers=[publisher(table, database)]).close()

    assert registered(glue, database)["StorageDescriptor"]["Location"].endswith("_symlink_format_manifest/")


def test_columns_that_an_engine_adds_to_a_delta_table_stay(table: Any, glue: Any, database: str) -> None:
    synced(table, 1, publisher(table, database, define=delta_definition))
    found = registered(glue, database)
    kept = {key: found[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    kept["StorageDescriptor"]["Columns"] = [{"Name": "id", "Type": "bigint"}]
    glue.update_table(DatabaseName=database, TableInput=kept)
    synced(table, 2, publisher(table, database, define=delta_definition))

    assert types(registered(glue, database)) == {"id": "bigint"}


def test_delta_tables_are_registered_if_there_are_some(table: Any) -> None:
    roots = {StreamId(None, "a"): "lake/a/"}
    cases = [({"delta": True}, delta_definition), ({"delta": True, "symlink": False}, delta_definition), ({}, symlink_definition)]
    for publish, definition in cases:
        made = config(table, "lake", publish={"glue": {"database": "lake"}, **publish})
        require_publishable(made, roots, TEMPLATE)
        (found,) = (one for one in publishers_of(made, roots, TEMPLATE, rules(made))[StreamId(None, "a")] if isinstance(one, GlueTable))
        assert found.define is definition


def test_glue_that_cannot_be_reached_is_a_warning(table: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    writer = synced(table, 1, publisher(table, "lake"))

    assert writer.state.closed
    (warning,) = warnings(caplog)
    assert "table shop.users is not published for glue: AWS Glue could not be reached or did not answer GetTable" in warning


def config(table: Any, database: str | None, **options: Any) -> Config:
    return Config.parse(table.config(**{"publish": {"glue": {"database": database}} if database else {}, **options}))


@each(
    ("database", "stream", "name"),
    [
        ("lake", StreamId("Shop", "Users-2"), ("lake", "users_2")),
        ("lake_${NAMESPACE}", StreamId("Shop", "users"), ("lake_shop", "users")),
        ("${NAMESPACE}", StreamId(None, "users"), ("default", "users")),
    ],
)
def test_tables_are_named_after_their_streams(table: Any, database: str, stream: StreamId, name: tuple[str, str]) -> None:
    found = publishers_of(config(table, database), {stream: "lake/a/"}, TEMPLATE, rules(config(table, database)))[stream]

    assert [one.identifier for one in found if isinstance(one, GlueTable)] == [name]


def test_streams_with_the_same_name_are_refused(table: Any) -> None:
    roots = {StreamId("a", "users"): "lake/a/users/", StreamId("b", "users"): "lake/b/users/"}
    found = publishers_of(config(table, "lake"), roots, TEMPLATE, rules(config(table, "lake")))
    assert [one.rival for of in found.values() for one in of if isinstance(one, GlueTable)] == list(reversed(roots))


def test_glue_without_manifests_is_refused(table: Any) -> None:
    without = {"publish": {"glue": {"database": "lake"}, "symlink": False}}
    for options in (without, {"format": {"format_type": "Avro"}}):
        made = config(table, "lake", **options)
        with pytest.raises(ConfigError, match=r"publish\.glue registers the Delta tables or the symlink manifests of Parquet tables"):
            require_publishable(made, {}, TEMPLATE)
        with pytest.raises(ConfigError, match=r"publish\.glue registers"):
            check_publishers(made, S3Store(table.settings), TEMPLATE)
        found = publishers_of(made, {StreamId(None, "a"): "lake/a/"}, TEMPLATE, rules(made))
        assert found == {StreamId(None, "a"): ()}


def test_check_tries_glue_and_leaves_nothing_behind(table: Any, glue: Any, database: str) -> None:
    check_publishers(config(table, database), S3Store(table.settings), TEMPLATE)
    assert database not in {found["Name"] for found in glue.get_databases()["DatabaseList"]}

    glue.create_database(DatabaseInput={"Name": database})
    check_publishers(config(table, database), S3Store(table.settings), TEMPLATE)
    assert glue.get_tables(DatabaseName=database)["TableList"] == []


@pytest.mark.parametrize("refused", [("CreateTable",), ("UpdateTable",), ("UpdateTable", "DeleteTable")])
def test_check_names_the_first_call_that_glue_refuses(
    table: Any, glue: Any, database: str, denied: set[str], refused: tuple[str, ...]
) -> None:
    denied |= set(refused)
    with pytest.raises(ConfigError, match=f"{refused[0]}"):
        check_publishers(config(table, database), S3Store(table.settings), TEMPLATE)
    assert database not in {found["Name"] for found in glue.get_databases()["DatabaseList"]}


def test_check_names_what_glue_refuses(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"Tables cannot be registered in the database '.*' in AWS Glue: AWS Glue could not be reached"):
        check_publishers(config(table, "lake"), S3Store(table.settings), TEMPLATE)
