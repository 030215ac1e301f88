"""Which tables are published under which names, what a configuration is refused for, and what `check` tries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import rules
from destination_s3_spark.tables.publishers.iceberg import catalogs
from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection
from destination_s3_spark.tables.publishers.iceberg.publisher import IcebergTable
from destination_s3_spark.tables.publishers.publication import NotPublished
from destination_s3_spark.tables.publishers.registry import check_publishers, publishers_of, require_publishable
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.http_server import serving
from unit_tests.tables.publishers.iceberg.lake import reader

TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 0)
SQL = {"type": "sql", "database_uri": "sqlite://"}


def config(iceberg: dict[str, Any] | None, **options: Any) -> Config:
    base = {"s3_bucket_name": "b", "s3_bucket_path": "lake", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**base, "publish": {"iceberg": iceberg} if iceberg else {}, **options})


def published(options: Config, *streams: StreamId) -> dict[StreamId, IcebergTable]:
    roots = {stream: f"lake/{number}/" for number, stream in enumerate(streams)}
    found = publishers_of(options, roots, TEMPLATE, rules(options))
    return {stream: one for stream, many in found.items() for one in many if isinstance(one, IcebergTable)}


@each(
    ("stream", "namespace", "name"),
    [
        (StreamId("shop", "users"), None, ("shop", "users")),
        (StreamId(None, "users"), None, ("default", "users")),
        (StreamId("Shop EU", "Users-2"), None, ("shop_eu", "users_2")),
        (StreamId("shop", "users"), "lake", ("lake", "users")),
    ],
)
def test_tables_are_named_after_their_streams(stream: StreamId, namespace: str | None, name: tuple[str, str]) -> None:
    options = config({**SQL, **({"namespace": namespace} if namespace else {})})

    assert published(options, stream)[stream].identifier == name


def test_streams_with_the_same_name_are_not_published(tmp_path: Path) -> None:
    one, other, third = StreamId("shop", "users"), StreamId("shop", "Users"), StreamId("shop", "orders")
    found = published(config(SQL), one, other, third)

    assert [found[stream].rival for stream in (one, other, third)] == [other, one, None]
    with pytest.raises(NotPublished, match=r"Stream 'shop\.Users' would have the same name shop\.users"):
        found[one]._require_own_place()


def test_nothing_is_published_without_a_catalog_or_in_another_format() -> None:
    stream = StreamId("shop", "users")
    assert published(config(None), stream) == {}
    assert published(config(SQL, format={"format_type": "Avro"}), stream) == {}
    with pytest.raises(ConfigError, match=r"publish\.iceberg is for Parquet tables, and format\.format_type is Avro"):
        require_publishable(config(SQL, format={"format_type": "Avro"}), {}, TEMPLATE)


def test_check_refuses_the_format_that_a_sync_refuses(s3_settings: S3Settings) -> None:
    for publish, message in (({"iceberg": SQL}, r"publish\.iceberg is for Parquet tables"), ({"delta": True}, r"publish\.delta is on")):
        options = config(None, publish=publish, format={"format_type": "Avro"})
        with pytest.raises(ConfigError, match=message):
            check_publishers(options, S3Store(s3_settings), TEMPLATE)


@each(("absent", "catalog"), [("pyiceberg", {"type": "glue"}), ("sqlalchemy", SQL)])
def test_a_missing_extra_is_named(absent: str, catalog: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        "destination_s3_spark.tables.publishers.iceberg.publisher.find_spec", lambda name: None if name == absent else find(name)
    )
    with pytest.raises(ConfigError, match=r"pip install destination-s3-spark\[iceberg\]"):
        require_publishable(config(catalog), {}, TEMPLATE)


def test_without_a_catalog_the_library_is_not_even_imported() -> None:
    code = (
        "import sys; import destination_s3_spark.tables.factory, destination_s3_spark.sync.assembly;"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pyiceberg', 'sqlalchemy', 'requests')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@each(
    ("iceberg", "problem"),
    [
        ({"type": "hive"}, r"publish\.iceberg\.type: must be one of 'rest', 'glue', 'sql'"),
        ({"uri": "http://x"}, r"publish\.iceberg\.type: must be one of 'rest', 'glue', 'sql'"),
        ({"type": "rest"}, r"publish\.iceberg\.uri: is required and missing"),
        ({"type": "rest", "uri": "catalog:8181"}, r"publish\.iceberg\.uri: is not a URL"),
        ({"type": "glue", "namespace": "Shop"}, r"publish\.iceberg\.namespace: must look like shop_lake"),
        ({"type": "glue", "uri": "http://x"}, r"publish\.iceberg\.uri: there is no such option"),
    ],
)
def test_a_wrong_option_is_named(iceberg: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config(iceberg)


def test_tables_of_one_folder_are_not_published() -> None:
    one, other = StreamId("shop", "users"), StreamId("shop", "orders")
    found = publishers_of(config(SQL), {one: "lake/all/", other: "lake/all/"}, TEMPLATE, rules(config(SQL)))
    (table,) = (publisher for publisher in found[one] if isinstance(publisher, IcebergTable))

    with pytest.raises(NotPublished, match=r"The files of stream 'shop\.orders' lie in the same folder"):
        table._require_own_place()


def test_secrets_are_not_printed() -> None:
    options = config({"type": "rest", "uri": "http://localhost:1", "credential": "id:hidden", "token": "hidden"})
    assert "hidden" not in repr(options)


@each("option", ["uri", "oauth2_server_uri"])
def test_an_address_of_the_host_itself_is_refused(option: str) -> None:
    options = {"type": "rest", "uri": "http://localhost:1/", option: "http://169.254.169.254/"}
    with pytest.raises(ConfigError, match=rf"publish\.iceberg\.{option} 'http://169\.254\.169\.254/' leads to 169\.254\.169\.254"):
        require_publishable(config(options), {}, TEMPLATE)


@each(
    ("uri", "problem"),
    [
        (
            "postgresql://user:hidden@169.254.169.254:80/db",
            r"publish\.iceberg\.database_uri '169\.254\.169\.254' leads to 169\.254\.169\.254",
        ),
        ("postgresql://user:hidden@/db?host=169.254.169.254", "not the URI of a PostgreSQL database with its host"),
        ("postgresql://user:hidden@localhost/db?host=169.254.169.254", "parameters that it may not have: host"),
        ("postgresql://user:hidden@localhost/db?sslkey=/etc/key&sslmode=require", "parameters that it may not have: sslkey"),
        ("mysql://user:hidden@localhost/db", "not the URI of a PostgreSQL database"),
        ("hidden", "not the URI of a database"),
    ],
)
def test_only_databases_at_allowed_addresses_are_catalogs(uri: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        require_publishable(config({"type": "sql", "database_uri": uri}), {}, TEMPLATE)
    assert "hidden" not in refused.value.message
    assert refused.value.__context__ is None


def test_a_database_on_another_machine_is_a_catalog() -> None:
    require_publishable(
        config({"type": "sql", "database_uri": "postgresql+psycopg2://u:p@localhost:5432/db?sslmode=require"}), {}, TEMPLATE
    )


@pytest.mark.parametrize("variable", ["KUBERNETES_SERVICE_HOST", "AIRBYTE_ENTRYPOINT", "DEPLOYMENT_MODE"])
def test_a_file_is_a_catalog_only_on_a_machine_of_the_users_own(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_publishable(config(SQL), {}, TEMPLATE)
    monkeypatch.setenv(variable, "OSS")
    with pytest.raises(ConfigError, match="is an SQLite file, which would be lost with this container"):
        require_publishable(config(SQL), {}, TEMPLATE)


def test_a_database_is_no_catalog_for_the_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOYMENT_MODE", "CLOUD")
    with pytest.raises(ConfigError, match="cannot be used in Airbyte Cloud"):
        require_publishable(config(SQL), {}, TEMPLATE)


def for_bucket(settings: S3Settings, iceberg: dict[str, Any]) -> Config:
    keys = settings.credentials
    assert keys is not None
    return config(
        iceberg,
        s3_bucket_name=settings.bucket,
        s3_endpoint=settings.endpoint,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
    )


def test_check_tries_the_catalog_and_leaves_nothing_behind(s3_settings: S3Settings, tmp_path: Path) -> None:
    store = S3Store(s3_settings)
    check_publishers(
        for_bucket(s3_settings, {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}),
        store,
        TEMPLATE,
    )

    assert list(store.list("")) == []
    assert reader(tmp_path, s3_settings).list_namespaces() == []


def test_check_names_a_catalog_that_does_not_answer(s3_settings: S3Settings) -> None:
    options = for_bucket(s3_settings, {"type": "rest", "uri": "http://127.0.0.1:9"})
    with pytest.raises(ConfigError, match=r"Tables cannot be published for Iceberg: The Iceberg catalog could not be reached"):
        check_publishers(options, S3Store(s3_settings), TEMPLATE)


@pytest.fixture
def server() -> Iterator[Any]:
    """A catalog that answers every request with the same status, and counts requests."""

    class Handler(BaseHTTPRequestHandler):
        status, requests, uri = 500, 0, ""

        def do_GET(self) -> None:
            type(self).requests += 1
            body = b'{"error": {"message": "no", "type": "Nope", "code": 1}}'
            self.send_response(self.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as Handler.uri:
        yield Handler


@each(
    ("status", "reason"),
    [(401, "refused the request"), (403, "refused the request"), (503, r"in trouble \(ServiceUnavailableError: Nope: no\)")],
)
def test_answers_of_a_catalog_are_explained(server: Any, status: int, reason: str) -> None:
    server.status = status
    connected = Connection(IcebergRest(uri=server.uri, token="t"), S3Settings("b"))
    with pytest.raises(NotPublished, match=reason), connected.calls(Bucket(), "t/"):
        pass


def test_a_catalog_that_did_not_answer_is_left_alone_for_a_while(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.status = 503
    connected = Connection(IcebergRest(uri=server.uri), S3Settings("b"))
    for _ in range(3):
        with pytest.raises(NotPublished, match="in trouble"), connected.calls(Bucket(), "t/"):
            pass
    assert server.requests == 1
    monkeypatch.setattr(catalogs, "PAUSE_S", 0.0)
    with pytest.raises(NotPublished), connected.calls(Bucket(), "t/"):
        pass
    assert server.requests == 2


def test_a_catalog_that_is_silent_does_not_hold_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "TIMEOUTS_S", (0.2, 0.2))
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # accepts connections, serves none
    connected = Connection(IcebergRest(uri=f"http://127.0.0.1:{silent.server_port}"), S3Settings("b"))
    with (
        pytest.raises(NotPublished, match=r"could not be reached or did not answer as one \(ReadTimeout\)"),
        connected.calls(Bucket(), "t/"),
    ):
        pass
    silent.server_close()
