"""The catalogs of pyiceberg, confined: what a server, a table or a bucket says chooses neither code nor the place of a file.

pyiceberg imports classes by names that it finds in properties. Here a catalog reads and writes files as `StoreFiles` of one table alone,
whatever properties say, and pyiceberg's imports by name are closed for the whole process. A connection is made at first use and shared by
the tables of a sync; it is impatient, and its failures are in the user's words.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pyiceberg.io
import pyiceberg.table.locations
from pydantic import SecretStr
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import SSLError

from destination_s3_spark.config.iceberg_options import IcebergGlue, IcebergOptions, IcebergRest, IcebergSql
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.protocol.secrets import MASK, SecretFilter, secrets_of_environment
from destination_s3_spark.storage.ca_bundle import ca_bundle
from destination_s3_spark.storage.endpoint import check_endpoint, checked_pools
from destination_s3_spark.storage.failures import is_denied, is_unreachable
from destination_s3_spark.storage.glue import glue_client
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.database import in_our_words, reached
from destination_s3_spark.tables.publishers.iceberg.files import STORE_FILES, StoreFiles, io_properties
from destination_s3_spark.tables.publishers.iceberg.publisher import URI, require_allowed
from destination_s3_spark.tables.publishers.publication import NotPublished

NAME = "airbyte"
KNOWN_FILE_IO = frozenset({STORE_FILES, pyiceberg.io.ARROW_FILE_IO, pyiceberg.io.FSSPEC_FILE_IO})
"""Classes that pyiceberg may import for access to files: ours, and its own for other code of this process."""
PAUSE_S = 60.0
"""Seconds during which a catalog that did not answer is not asked again, so that a sync of many tables does not wait for each."""
LONGEST_MESSAGE = 300
DATABASE_PACKAGES = frozenset({"sqlalchemy", "psycopg2", "psycopg", "sqlite3"})
_TOKEN = re.compile(r"(?i)(?<=bearer )\S+|\beyJ[\w-]+\.[\w.-]+")
"""Tokens that the connector got from the catalog itself."""

_REFUSED = (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError, exceptions.AuthorizationExpiredError)
_TROUBLED = (exceptions.ServerError, exceptions.ServiceUnavailableError)
_SILENT = (RequestException, TimeoutError, ConnectionError)


class ConfinedFiles(Catalog):
    """Catalog with no other access to files than `StoreFiles`: the first base of a class of catalog."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return StoreFiles(self.properties)


def connected(options: IcebergOptions, settings: S3Settings) -> Catalog:
    """Connect to the catalog. It reaches no file, unlike those of `Connection.calls`.

    Raises ConfigError for an address that may not be contacted, NotPublished and pyiceberg's exceptions.
    """
    require_allowed(options)
    match options:
        case IcebergRest():
            return _RestCatalog(ca_bundle(settings), **_properties(options))
        case IcebergGlue():
            from pyiceberg.catalog.glue import GlueCatalog  # noqa: PLC0415 - a sync with another catalog does not need its modules

            return confined(GlueCatalog)(NAME, client=glue_client(settings))
        case IcebergSql():
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - it takes SQLAlchemy

            return confined(SqlCatalog)(options.catalog_name, uri=reached(options))


def confined(catalog: type[Catalog]) -> Callable[..., Catalog]:
    """Return the class of catalogs with access to files by `StoreFiles` alone."""
    return type(f"Confined{catalog.__name__}", (ConfinedFiles, catalog), {})


def close_imports() -> None:
    """Keep pyiceberg from importing what properties name. A unit test knows every place of its code that imports by name."""
    import_file_io, create_auth = pyiceberg.io._import_file_io, AuthManagerFactory.create

    def known_file_io(name: str, properties: Properties) -> FileIO | None:
        return import_file_io(name, properties) if name in KNOWN_FILE_IO else _refuse(name)

    def known_auth(name: str, config: dict[str, Any]) -> AuthManager:
        return create_auth(name, config) if name in AuthManagerFactory._registry else _refuse(name)

    pyiceberg.io._import_file_io = known_file_io  # type: ignore[assignment]
    AuthManagerFactory.create = known_auth  # type: ignore[method-assign, assignment]
    pyiceberg.table.locations._import_location_provider = _refuse  # type: ignore[assignment]


def _refuse(name: str, *_: object) -> Any:
    raise NotPublished(
        f"The Iceberg catalog or the metadata of a table in it names code to be run, '{name[:100]}', which was not done. Find out who set "
        "that property. If the table is ours, drop it in the catalog, without its files; the next sync makes it again."
    )


close_imports()


TIMEOUTS_S = (5.0, 30.0)
"""Seconds to connect to a REST catalog, and to wait for its answer. pyiceberg itself would wait forever."""
SERVER_PROPERTIES = ("prefix", "namespace-separator")
"""Properties that the server may set. Others of pyiceberg's would choose addresses, headers, code or the user's secrets."""


def _properties(options: IcebergRest) -> dict[str, str]:
    given = {"warehouse": options.warehouse, "scope": options.scope, "oauth2-server-uri": options.oauth2_server_uri}
    secrets = {"credential": options.credential, "token": options.token}
    return {
        "uri": options.uri,
        **{name: value for name, value in given.items() if value is not None},
        **{name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None},
    }


class _Transport(HTTPAdapter):
    """Transport that checks each request's address and each connection's peer, and follows no redirect to another server."""

    def __init__(self, authorities: str | None) -> None:
        self._authorities = authorities
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = checked_pools(URI)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,  # noqa: ARG002 - requests prefers REQUESTS_CA_BUNDLE to what a session says
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        url = urlsplit(request.url or "")
        try:
            check_endpoint(f"{url.scheme}://{url.netloc}", URI)
            response = super().send(request, stream, timeout or TIMEOUTS_S, self._authorities or True, cert, proxies)
        except ConfigError as error:
            raise NotPublished(error.message) from None
        if response.is_redirect:
            target = urlsplit(urljoin(request.url or "", response.headers["location"]))
            if (target.scheme, target.netloc) != (url.scheme, url.netloc):
                raise NotPublished(
                    f"The Iceberg catalog redirects to another server, {target.scheme}://{target.hostname}, which is not followed, because "
                    f"secrets would go there. If that is the right address, write it as {URI}."
                )
        return response


class _RestCatalog(ConfinedFiles, RestCatalog):
    """REST catalog with its own transport, also for the token that it fetches before all else."""

    def __init__(self, authorities: str | None, **properties: str) -> None:
        self._authorities = authorities
        super().__init__(NAME, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Transport(self._authorities))
        session.auth = _as_it_is  # otherwise requests would look for the host in this machine's .netrc
        return super()._create_legacy_oauth2_auth_manager(session)

    def _config_headers(self, session: Session) -> None:
        """Ask for no credentials with a table, which are never used: servers that are to hand out some and cannot refuse everything."""
        super()._config_headers(session)
        session.headers.pop("X-Iceberg-Access-Delegation", None)

    def _fetch_config(self) -> None:
        given, uri = self.properties, self.uri
        super()._fetch_config()
        of_server = {name: self.properties[name] for name in SERVER_PROPERTIES if name in self.properties}
        self.properties, self.uri = {**of_server, **given}, uri


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    return request


class Connection:
    """The catalog of the configuration. Thread-safe."""

    def __init__(self, options: IcebergOptions, settings: S3Settings) -> None:
        self._options = options
        self._settings = settings
        self._making = Lock()
        self._catalog: Catalog | None = None
        self._silent_since: tuple[float, str] | None = None
        self._secrets = SecretFilter()
        self._secrets.add((*_secrets_of(options), *secrets_of_environment(os.environ)))

    @contextmanager
    def calls(self, store: ObjectStore, folder: str) -> Iterator[Catalog]:
        """Provide the catalog for calls that concern the table whose metadata files lie in this folder, the only one that it reaches.

        Raises NotPublished when the catalog fails or has failed just now, and SyncError when the store fails.
        """
        try:
            catalog = copy.copy(self._connected())
            catalog.properties = {**catalog.properties, **io_properties(store, self._settings.bucket, folder)}
            yield catalog
        except (SyncError, NotPublished):
            raise
        except Exception as error:
            raise NotPublished(self._explained(error)) from error

    def _connected(self) -> Catalog:
        if self._silent_since is not None:
            since, reason = self._silent_since
            if time.monotonic() - since < PAUSE_S:
                raise NotPublished(reason)
        with self._making:
            if self._catalog is None:
                try:
                    self._catalog = connected(self._options, self._settings)
                except ConfigError as error:
                    raise NotPublished(error.message) from None
            self._silent_since = None
            return self._catalog

    def _explained(self, error: Exception) -> str:
        kind = type(error).__name__
        if isinstance(error, _REFUSED) or is_denied(error):
            return (
                f"The Iceberg catalog refused the request ({kind}{self._said(error)}). Check the credentials in publish.iceberg and their "
                "permissions on the namespace, or the locations that it allows."
            )
        if isinstance(error, SSLError):
            reason = (
                f"The TLS connection to the Iceberg catalog failed ({kind}). If its certificate is not trusted, set "
                "s3.ca_certificate to the certificate of its authority, or AWS_CA_BUNDLE to a file with it."
            )
        elif isinstance(error, _TROUBLED):
            reason = f"The Iceberg catalog answered that it is in trouble ({kind}{self._said(error)}). Look into the catalog's own log."
        elif isinstance(error, _SILENT) or is_unreachable(error) or kind == "OperationalError":
            refused = in_our_words(str(error)) if kind == "OperationalError" else ""
            what = f"{kind}: {refused}" if refused else kind
            reason = (
                f"The Iceberg catalog could not be reached or did not answer as one ({what}). Check publish.iceberg and the "
                "network between the connector and the catalog."
            )
        else:
            return f"The Iceberg catalog failed ({kind}{self._said(error)})."
        self._silent_since = (time.monotonic(), reason)
        return reason

    def _said(self, error: Exception) -> str:
        """Return the first line of what the catalog said, without secrets.

        Empty for AWS, whose errors may repeat what was sent, and for drivers of databases, whose errors repeat addresses.
        """
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        if not first_line or is_denied(error) or type(error).__module__.partition(".")[0] in DATABASE_PACKAGES:
            return ""
        text = _TOKEN.sub(MASK, self._secrets.masked(first_line))
        return ": " + "".join(sign if sign.isprintable() else " " for sign in text)[:LONGEST_MESSAGE]


def _secrets_of(options: IcebergOptions) -> Iterator[str]:
    """Yield the secrets of the options as a catalog may repeat them: also the client's id and secret, and a database's password."""
    given = [value.get_secret_value() for value in dict(options).values() if isinstance(value, SecretStr)]
    for secret in given:
        yield secret
        yield from secret.split(":", 1)
        yield unquote(urlsplit(secret).password or "")
