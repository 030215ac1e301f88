"""The database of a SQL catalog: which ones may be reached, and how a driver is told of them.

A driver reads lists of hosts, names of sockets and further addresses out of one text, and resolves a name again whenever it connects. So
the text has one host, whose addresses are checked here, and the driver gets these addresses.
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from destination_s3_spark.config.iceberg_options import IcebergSql
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.endpoint import checked_addresses, cloud_deployment
from destination_s3_spark.tables.publishers.publication import NotPublished

if TYPE_CHECKING:  # only this catalog takes it
    from sqlalchemy import URL

DATABASE_URI = "publish.iceberg.database_uri"
EXAMPLE = "Write it like postgresql+psycopg2://user:password@host/database."
PARAMETERS = frozenset({"application_name", "connect_timeout", "options", "sslmode"})
"""Parameters that the URI may have. Others name further hosts and local files."""
DRIVERS = frozenset({"postgresql", "postgresql+psycopg", "postgresql+psycopg2"})
"""Names of drivers that know `hostaddr`."""
PLATFORM_VARIABLES = ("KUBERNETES_SERVICE_HOST", "AIRBYTE_ENTRYPOINT", "DEPLOYMENT_MODE")
"""Environment variables of pods, of the connector's image and of Airbyte's platform, where the disk is not the user's and does not last."""

_HOST = re.compile(r"[A-Za-z0-9.-]+")


def require_allowed_database(options: IcebergSql) -> None:
    """Raise ConfigError unless the database may be reached from here. No part of its URI is repeated but a sound host."""
    url = _parsed(options)
    if url.host is not None:
        checked_addresses(url.host, DATABASE_URI)


def reached(options: IcebergSql) -> URL:
    """Return the URL for the driver, with the addresses that were checked. Raises ConfigError, and NotPublished for an unknown name."""
    url = _parsed(options)
    if url.host is None:
        return url
    addresses = checked_addresses(url.host, DATABASE_URI)
    if not addresses:
        raise NotPublished(f"The host in {DATABASE_URI} is not known here. Check its name, and that this machine can resolve it.")
    # The driver wants a name for each address. It compares them with certificates.
    return url.set(host=",".join([url.host] * len(addresses))).update_query_dict({"hostaddr": ",".join(addresses)})


def _parsed(options: IcebergSql) -> URL:
    """Return the URI of a PostgreSQL database with one host, or of an SQLite file, without a host. Raises ConfigError."""
    from sqlalchemy import make_url  # noqa: PLC0415 - only this catalog takes it
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    if cloud_deployment():
        raise ConfigError("publish.iceberg of type sql cannot be used in Airbyte Cloud. Use a REST catalog or Glue.")
    text = options.database_uri.get_secret_value()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None:  # raised outside the handler, because the library's error repeats the URI
        raise ConfigError(f"{DATABASE_URI} is not the URI of a database. {EXAMPLE}")
    if url.get_backend_name() == "sqlite":
        _require_own_machine()
        return url
    if url.drivername not in DRIVERS or not url.host:
        raise ConfigError(f"{DATABASE_URI} is not the URI of a PostgreSQL database with its host. {EXAMPLE}")
    if text.count("@") > 1 or ("@" in text and url.username is None):
        raise ConfigError(
            f"{DATABASE_URI} has signs in its user or password that end them too early. Write @ as %40, / as %2F and : as %3A there."
        )
    if not _HOST.fullmatch(url.host) and not _is_ipv6(url.host):
        raise ConfigError(f"{DATABASE_URI} must name one host, by its name or address: no list, no socket. {EXAMPLE}")
    if foreign := sorted(url.query.keys() - PARAMETERS):
        possible = ", ".join(sorted(PARAMETERS))
        raise ConfigError(f"{DATABASE_URI} has parameters that it may not have: {', '.join(foreign)}. Possible are {possible}.")
    return url


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _require_own_machine() -> None:
    if any(name in os.environ for name in PLATFORM_VARIABLES):
        raise ConfigError(
            f"{DATABASE_URI} is an SQLite file, which would be lost with this container. Use PostgreSQL, a REST catalog or Glue: SQLite is "
            "for a connector that runs outside of containers and of Airbyte's platform."
        )


_REFUSALS = (
    (
        re.compile(r"password authentication failed|no password supplied|role .* does not exist"),
        "the server refuses the user or the password",
    ),
    (re.compile(r"pg_hba\.conf"), "its pg_hba.conf has no entry for this connection"),
    (re.compile(r"database .* does not exist"), "the server has no such database"),
    (re.compile(r"\bSSL\b|certificate"), "the server's TLS does not fit sslmode"),
)


def in_our_words(said: str) -> str:
    """Return what a server refuses, of what a driver says, which also repeats addresses. Empty if it is something else."""
    return next((words for pattern, words in _REFUSALS if pattern.search(said)), "")
