"""REST catalog that is asked at checked addresses only, does not wait forever, and takes few of its server's properties."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.ca_bundle import ca_bundle
from destination_s3_spark.storage.endpoint import check_endpoint, checked_pools
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.catalogs import NAME, ConfinedFiles
from destination_s3_spark.tables.publishers.iceberg.publisher import URI
from destination_s3_spark.tables.publishers.publication import NotPublished

TIMEOUTS_S = (5.0, 30.0)
"""Seconds to connect to a REST catalog, and to wait for its answer. pyiceberg itself would wait forever."""
SERVER_PROPERTIES = ("prefix", "namespace-separator")
"""Properties that the server may set. Others of pyiceberg's would choose addresses, headers, code or the user's secrets."""


def rest_catalog(options: IcebergRest, settings: S3Settings) -> Catalog:
    """Connect to the catalog, which fetches its configuration. Raises NotPublished and pyiceberg's exceptions."""
    return _RestCatalog(ca_bundle(settings), **_properties(options))


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

    def _fetch_config(self) -> None:
        given, uri = self.properties, self.uri
        super()._fetch_config()
        told = {name: self.properties[name] for name in SERVER_PROPERTIES if name in self.properties}
        self.properties, self.uri = {**told, **given}, uri


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    return request
