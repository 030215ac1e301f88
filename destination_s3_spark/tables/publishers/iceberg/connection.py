"""Connection to an Iceberg catalog: made at first use, shared by the tables of a sync, impatient, and with failures in the user's words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from destination_s3_spark.config.iceberg_options import IcebergGlue, IcebergOptions, IcebergRest, IcebergSql
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.failures import is_denied, is_unreachable
from destination_s3_spark.storage.glue import glue_client
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.files import io_properties
from destination_s3_spark.tables.publishers.publication import NotPublished

TIMEOUTS_S = (5.0, 30.0)
"""Seconds to connect to a REST catalog, and to wait for its answer. pyiceberg itself would wait forever."""
PAUSE_S = 60.0
"""Seconds during which a catalog that did not answer is not asked again, so that a sync of many tables does not wait for each."""
_LONGEST_MESSAGE = 300

_REFUSED = (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError, exceptions.AuthorizationExpiredError)
_SILENT = (RequestException, exceptions.ServerError, exceptions.ServiceUnavailableError, TimeoutError, ConnectionError)


class Connection:
    """The catalog of the configuration. Thread-safe."""

    def __init__(self, options: IcebergOptions, settings: S3Settings) -> None:
        self._options = options
        self._settings = settings
        self._making = Lock()
        self._catalog: Catalog | None = None
        self._silent_since: tuple[float, str] | None = None

    @contextmanager
    def calls(self, store: ObjectStore) -> Iterator[Catalog]:
        """Provide the catalog for calls. Raises NotPublished when it fails or has failed just now, and SyncError when the store fails."""
        try:
            yield self._connected(store)
        except (SyncError, NotPublished):
            raise
        except Exception as error:
            raise NotPublished(self._explained(error)) from error

    def _connected(self, store: ObjectStore) -> Catalog:
        if self._silent_since is not None:
            since, reason = self._silent_since
            if time.monotonic() - since < PAUSE_S:
                raise NotPublished(reason)
        with self._making:
            if self._catalog is None:
                self._catalog = _catalog(self._options, self._settings, store)
            self._silent_since = None
            return self._catalog

    def _explained(self, error: Exception) -> str:
        kind = type(error).__name__
        if isinstance(error, _REFUSED) or is_denied(error):
            return (
                f"The Iceberg catalog refused the request ({kind}). Check the credentials in publish.iceberg and their permissions on the "
                "namespace."
            )
        if isinstance(error, _SILENT) or is_unreachable(error) or kind == "OperationalError":
            reason = (
                f"The Iceberg catalog could not be reached or did not answer as one ({kind}). Check publish.iceberg and the network "
                "between the connector and the catalog."
            )
            self._silent_since = (time.monotonic(), reason)
            return reason
        first_line = str(error).partition("\n")[0]
        return f"The Iceberg catalog failed ({kind}: {first_line[:_LONGEST_MESSAGE]})."


def _catalog(options: IcebergOptions, settings: S3Settings, store: ObjectStore) -> Catalog:
    files = io_properties(store, settings.bucket)
    match options:
        case IcebergRest():
            return _ImpatientRestCatalog("airbyte", **_rest_properties(options), **files)
        case IcebergGlue():
            from pyiceberg.catalog.glue import GlueCatalog  # noqa: PLC0415 - a sync with another catalog does not need its modules

            return GlueCatalog("airbyte", client=glue_client(settings), **files)
        case IcebergSql():
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - it takes SQLAlchemy

            return SqlCatalog(options.catalog_name, uri=options.uri.get_secret_value(), **files)


def _rest_properties(options: IcebergRest) -> dict[str, str]:
    given = {"warehouse": options.warehouse, "scope": options.scope, "oauth2-server-uri": options.oauth2_server_uri}
    secrets = {"credential": options.credential, "token": options.token}
    return {
        "uri": options.uri,
        **{name: value for name, value in given.items() if value is not None},
        **{name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None},
    }


class _Impatient(HTTPAdapter):
    """Transport that does not wait forever."""

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        return super().send(request, stream, timeout or TIMEOUTS_S, verify, cert, proxies)


class _ImpatientRestCatalog(RestCatalog):
    """REST catalog with timeouts, also for the token that it fetches before all else."""

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Impatient())
        return super()._create_legacy_oauth2_auth_manager(session)
