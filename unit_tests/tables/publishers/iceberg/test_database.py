"""The address of a catalog's database: one host, checked, and handed over as an address, of which nothing is repeated."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql import psycopg2 as dialect

from destination_s3_spark.config.iceberg_options import IcebergSql
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.catalogs import Connection
from destination_s3_spark.tables.publishers.iceberg.database import reached, require_allowed_database
from destination_s3_spark.tables.publishers.publication import NotPublished
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket

SCHEME = "postgresql+psycopg2://"


def options(uri: str) -> IcebergSql:
    return IcebergSql(database_uri=uri)


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@each(
    "rest",
    [
        "hidden:hidden@a.invalid,169.254.169.254/db",
        "hidden:hidden@a.invalid,b.invalid:5432/db",
        "hidden:hidden@@hidden/db",
        "hidden:first@Rest@host/db",
        "hidden:a@b/hidden@host/db",
        "hid/den:hidden@host/db",
        "hidden:hidden@%2Ftmp/db",
        "hidden:hidden@host%00x/db",
        "hidden:hidden@ho st/db",
        "hidden:hidden@[::1%25eth0]/db",
        "hidden:hidden@host_name/db",
        "hidden:hidden@host/db@hidden",
        "hidden:hidden@host:12:13/db",
    ],
)
def test_what_is_not_one_host_is_refused_without_being_repeated(rest: str) -> None:
    with pytest.raises(ConfigError, match=r"^publish\.iceberg\.database_uri ") as refused:
        require_allowed_database(options(SCHEME + rest))
    message = refused.value.message
    assert not any(part in message for part in ("hidden", "invalid", "first", "Rest", "169.254"))
    assert ("%40" in message) == (rest.count("@") != 1 or "/" in rest.partition("@")[0])


@each(
    ("host", "address"),
    [
        ("localhost", None),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("2130706433", "127.0.0.1"),
    ],
)
def test_a_driver_gets_the_address_that_was_checked(host: str, address: str | None) -> None:
    url = reached(options(f"{SCHEME}u:p%40x@{host}:5433/db?sslmode=require"))
    _, arguments = dialect.dialect().create_connect_args(url)

    addresses = arguments.pop("hostaddr").split(",")
    assert address is None or addresses == [address]
    assert arguments == {
        "host": ",".join([host.strip("[]")] * len(addresses)),
        "port": 5433,
        "user": "u",
        "password": "p@x",
        "dbname": "db",
        "sslmode": "require",
    }


def test_all_addresses_of_a_name_are_tried_and_all_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "::1", "127.0.0.1")
    assert reached(options(f"{SCHEME}u:p@db.example/db")).query["hostaddr"] == "::1,127.0.0.1"
    resolve(monkeypatch, "127.0.0.1", "169.254.169.254")
    with pytest.raises(ConfigError, match=r"leads to 169\.254\.169\.254"):
        reached(options(f"{SCHEME}u:p@db.example/db"))


def test_a_name_that_is_not_known_is_said_when_it_is_needed() -> None:
    require_allowed_database(options(f"{SCHEME}u:p@db.invalid/db"))
    with pytest.raises(NotPublished, match=r"^The host in publish\.iceberg\.database_uri is not known here\. Check"):
        reached(options(f"{SCHEME}u:p@db.invalid/db"))


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port of this machine, and what came in there before it was closed."""
    received: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        try:
            while True:
                connection, _ = server.accept()
                received.append(connection.recv(8))
                connection.close()
        except OSError:
            pass

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1], received
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def test_a_name_cannot_lead_elsewhere_later_and_nothing_of_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch, listener: tuple[int, list[bytes]], s3_settings: S3Settings
) -> None:
    """libpq itself knows no such name."""
    port, received = listener
    resolve(monkeypatch, "127.0.0.1")
    connection = Connection(options(f"{SCHEME}the-user:the-password@name-of-db.invalid:{port}/db"), s3_settings)
    with pytest.raises(NotPublished, match="could not be reached or did not answer as one") as refused, connection.calls(Bucket(), "x/"):
        pass
    assert received
    assert not any(part in str(refused.value) for part in ("name-of-db", "127.0.0.1", str(port), "the-user", "the-password"))


@each(
    ("said", "words"),
    [
        ('FATAL:  password authentication failed for user "shop"', "the server refuses the user or the password"),
        ('FATAL:  role "shop" does not exist', "the server refuses the user or the password"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "shop"', "its pg_hba.conf has no entry for this connection"),
        ('FATAL:  database "shop" does not exist', "the server has no such database"),
        ("server does not support SSL, but SSL was required", "the server's TLS does not fit sslmode"),
        ('could not translate host name "Rest@shop" to address', None),
        ('connection to server at "shop" (10.0.0.1), port 1 failed: Connection refused', None),
    ],
)
def test_what_the_server_itself_refuses_is_said_in_words_of_ours(s3_settings: S3Settings, said: str, words: str | None) -> None:
    class OperationalError(Exception):
        pass

    OperationalError.__module__ = "sqlalchemy.exc"
    connection = Connection(options(f"{SCHEME}u:p@localhost/db"), s3_settings)
    explained = connection._explained(OperationalError(said))

    assert "shop" not in explained
    assert "10.0.0.1" not in explained
    assert f"(OperationalError{f': {words}' if words else ''})" in explained


def test_a_file_stays_as_it_is() -> None:
    assert reached(options("sqlite:////tmp/x.db")) == make_url("sqlite:////tmp/x.db")
