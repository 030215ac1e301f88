"""Addresses of catalogs that the connector may contact. Only a database's URI is read with a library, SQLAlchemy."""

from __future__ import annotations

import os

from destination_s3_spark.config.iceberg_options import IcebergOptions, IcebergRest, IcebergSql
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.endpoint import check_endpoint, check_host, cloud_deployment

URI = "publish.iceberg.uri"
EXAMPLE = "Write it like postgresql+psycopg2://user:password@host/database."
PARAMETERS = frozenset({"application_name", "connect_timeout", "options", "sslmode"})
"""Parameters that a database's URI may have. Others name further hosts and local files."""
PLATFORM_VARIABLES = ("KUBERNETES_SERVICE_HOST", "AIRBYTE_ENTRYPOINT", "DEPLOYMENT_MODE")
"""Environment variables of pods, of the connector's image and of Airbyte's platform, where the disk is not the user's and does not last."""


def require_allowed(options: IcebergOptions) -> None:
    """Raise ConfigError unless connections to the catalog are allowed from here."""
    match options:
        case IcebergRest():
            check_endpoint(options.uri, URI)
            if options.oauth2_server_uri is not None:
                check_endpoint(options.oauth2_server_uri, "publish.iceberg.oauth2_server_uri")
        case IcebergSql():
            _require_allowed_database(options)


def _require_allowed_database(options: IcebergSql) -> None:
    from sqlalchemy import make_url  # noqa: PLC0415 - only this catalog takes it
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    if cloud_deployment():
        raise ConfigError("publish.iceberg of type sql cannot be used in Airbyte Cloud. Use a REST catalog or Glue.")
    try:
        url = make_url(options.uri.get_secret_value())
    except (ArgumentError, ValueError):
        url = None
    if url is None:  # raised outside the handler, because the library's error repeats the URI
        raise ConfigError(f"{URI} is not the URI of a database. {EXAMPLE}")
    if url.get_backend_name() == "sqlite":
        _require_own_machine()
        return
    if url.get_backend_name() != "postgresql" or not url.host:
        raise ConfigError(f"{URI} is not the URI of a PostgreSQL database with its host. {EXAMPLE}")
    if foreign := sorted(url.query.keys() - PARAMETERS):
        raise ConfigError(f"{URI} has parameters that it may not have: {', '.join(foreign)}. Possible are {', '.join(sorted(PARAMETERS))}.")
    check_host(url.host, URI)


def _require_own_machine() -> None:
    if any(name in os.environ for name in PLATFORM_VARIABLES):
        raise ConfigError(
            f"{URI} is an SQLite file, which would be lost with this container. Use PostgreSQL, a REST catalog or Glue: SQLite is for a "
            "connector that runs outside of containers and of Airbyte's platform."
        )
