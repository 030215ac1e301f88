"""The catalogs of pyiceberg, confined: what a server, a table or a bucket says chooses neither code nor the place of a file.

pyiceberg imports classes by names that it finds in properties. Here a catalog reads and writes files as `StoreFiles` of one table alone,
whatever properties say, and pyiceberg's imports by name are closed for the whole process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pyiceberg.io
import pyiceberg.table.locations
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from destination_s3_spark.config.iceberg_options import IcebergGlue, IcebergOptions, IcebergRest, IcebergSql
from destination_s3_spark.storage.glue import glue_client
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.publishers.iceberg.files import STORE_FILES, StoreFiles, io_properties
from destination_s3_spark.tables.publishers.iceberg.publisher import require_allowed
from destination_s3_spark.tables.publishers.publication import NotPublished

NAME = "airbyte"
KNOWN_FILE_IO = frozenset({STORE_FILES, pyiceberg.io.ARROW_FILE_IO, pyiceberg.io.FSSPEC_FILE_IO})
"""Classes that pyiceberg may import for access to files: ours, and its own for other code of this process."""


class ConfinedFiles(Catalog):
    """Catalog with no other access to files than `StoreFiles`: the first base of a class of catalog."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return StoreFiles(self.properties)


def connected(options: IcebergOptions, settings: S3Settings) -> Catalog:
    """Connect to the catalog. It reaches no file, unlike the views of `bound`.

    Raises ConfigError for an address that may not be contacted, NotPublished and pyiceberg's exceptions.
    """
    require_allowed(options)
    match options:
        case IcebergRest():
            from destination_s3_spark.tables.publishers.iceberg.rest import rest_catalog  # noqa: PLC0415

            return rest_catalog(options, settings)
        case IcebergGlue():
            from pyiceberg.catalog.glue import GlueCatalog  # noqa: PLC0415 - a sync with another catalog does not need its modules

            return confined(GlueCatalog)(NAME, client=glue_client(settings))
        case IcebergSql():
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - it takes SQLAlchemy

            return confined(SqlCatalog)(options.catalog_name, uri=options.uri.get_secret_value())


def bound(catalog: Catalog, store: ObjectStore, bucket: str, folder: str) -> Catalog:
    """Return a view of the catalog for the table whose metadata files lie in this folder, the only one that it reads and writes."""
    view = copy.copy(catalog)
    view.properties = {**catalog.properties, **io_properties(store, bucket, folder)}
    return view


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
