"""Connection to an Iceberg catalog: made at first use, shared by the tables of a sync, impatient, and with failures in the user's words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from requests import RequestException
from requests.exceptions import SSLError

from destination_s3_spark.config.iceberg_options import IcebergOptions
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.protocol.secrets import MASK, SecretFilter
from destination_s3_spark.storage.failures import is_denied, is_unreachable
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.catalogs import bound, connected
from destination_s3_spark.tables.publishers.publication import NotPublished

PAUSE_S = 60.0
"""Seconds during which a catalog that did not answer is not asked again, so that a sync of many tables does not wait for each."""
LONGEST_MESSAGE = 300
_TOKEN = re.compile(r"(?i)(?<=bearer )\S+|\beyJ[\w-]+\.[\w.-]+")
"""Tokens that the connector got from the catalog itself."""

_REFUSED = (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError, exceptions.AuthorizationExpiredError)
_TROUBLED = (exceptions.ServerError, exceptions.ServiceUnavailableError)
_SILENT = (RequestException, TimeoutError, ConnectionError)


class Connection:
    """The catalog of the configuration. Thread-safe."""

    def __init__(self, options: IcebergOptions, settings: S3Settings) -> None:
        self._options = options
        self._settings = settings
        self._making = Lock()
        self._catalog: Catalog | None = None
        self._silent_since: tuple[float, str] | None = None
        self._secrets = SecretFilter()
        self._secrets.add(_secrets_of(options))

    @contextmanager
    def calls(self, store: ObjectStore, folder: str) -> Iterator[Catalog]:
        """Provide the catalog for calls that concern the table whose metadata files lie in this folder.

        Raises NotPublished when the catalog fails or has failed just now, and SyncError when the store fails.
        """
        try:
            yield bound(self._connected(), store, self._settings.bucket, folder)
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
                "permissions on the namespace."
            )
        if isinstance(error, SSLError):
            reason = (
                f"The TLS connection to the Iceberg catalog failed ({kind}). If its certificate is not trusted, set "
                "s3.ca_certificate to the certificate of its authority, or AWS_CA_BUNDLE to a file with it."
            )
        elif isinstance(error, _TROUBLED):
            reason = f"The Iceberg catalog answered that it is in trouble ({kind}{self._said(error)}). Look into the catalog's own log."
        elif isinstance(error, _SILENT) or is_unreachable(error) or kind == "OperationalError":
            said = self._said(error) if kind == "OperationalError" else ""
            reason = (
                f"The Iceberg catalog could not be reached or did not answer as one ({kind}{said}). Check publish.iceberg and the network "
                "between the connector and the catalog."
            )
        else:
            return f"The Iceberg catalog failed ({kind}{self._said(error)})."
        self._silent_since = (time.monotonic(), reason)
        return reason

    def _said(self, error: Exception) -> str:
        """Return the first line of what the catalog said, without secrets. Empty for AWS, whose errors may repeat what was sent."""
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        if not first_line or is_denied(error):
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
