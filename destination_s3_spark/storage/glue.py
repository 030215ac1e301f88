"""Tables in the AWS Glue Data Catalog. The region and the credentials are those of the bucket."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage import credentials
from destination_s3_spark.storage.failures import code, explain, glue_reason
from destination_s3_spark.storage.settings import S3Settings

if TYPE_CHECKING:
    from mypy_boto3_glue.client import GlueClient

_LIMITS = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
"""Registering a table is never worth a long wait: the next sync does it again."""


class GlueFailed(Exception):
    """A call failed. The text says why and what to do."""


class GlueChanged(Exception):
    """A table was created, changed or dropped by another program since it was read."""


def glue_client(settings: S3Settings) -> GlueClient:
    """Return a client of AWS Glue. Raises ConfigError."""
    try:
        return credentials.session(settings).client("glue", region_name=settings.region or None, config=_LIMITS)
    except (BotoCoreError, ClientError) as error:
        raise explain(error, "Preparing the Glue client", settings) from error


class GlueTables:
    """The tables of all databases. Thread-safe. The first call makes the connection. Every method raises GlueFailed."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings

    @cached_property
    def _client(self) -> Any:
        try:
            return glue_client(self.settings)
        except SyncError as error:
            raise GlueFailed(error.message) from error

    def get(self, database: str, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._call("GetTable", DatabaseName=database, Name=name)["Table"]
        except _NotFound:
            return None
        return found

    def create(self, database: str, definition: dict[str, Any]) -> None:
        """Create a table, and its database if there is none. Raises GlueChanged."""
        try:
            self._call("CreateTable", DatabaseName=database, TableInput=definition)
        except _NotFound:
            self.create_database(database)
            self._call("CreateTable", DatabaseName=database, TableInput=definition)

    def update(self, database: str, definition: dict[str, Any], version: str) -> None:
        """Replace the definition of a table unless it has another version by now. Raises GlueChanged."""
        try:
            # Without the archive, Glue would keep a version for each change, and their number is limited.
            self._call("UpdateTable", DatabaseName=database, TableInput=definition, VersionId=version, SkipArchive=True)
        except _NotFound as error:
            raise GlueChanged(str(error)) from error

    def drop(self, database: str, name: str) -> None:
        self._call("DeleteTable", DatabaseName=database, Name=name)

    def has_database(self, database: str) -> bool:
        with suppress(_NotFound):
            self._call("GetDatabase", Name=database)
            return True
        return False

    def create_database(self, database: str) -> None:
        """Create a database. One that exists is fine."""
        with suppress(GlueChanged):
            self._call("CreateDatabase", DatabaseInput={"Name": database})

    def drop_database(self, database: str) -> None:
        self._call("DeleteDatabase", Name=database)

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Return the answer of a call. Raises GlueChanged if another program was faster, and _NotFound for a missing table or database."""
        try:
            return getattr(self._client, xform_name(operation))(**arguments)
        except (BotoCoreError, ClientError) as error:
            kind = code(error) if isinstance(error, ClientError) else ""
            raise _KINDS.get(kind, GlueFailed)(glue_reason(error, operation)) from error


class _NotFound(GlueFailed):
    """The table or the database of a call does not exist."""


_KINDS = {
    "AlreadyExistsException": GlueChanged,
    "ConcurrentModificationException": GlueChanged,
    "EntityNotFoundException": _NotFound,
}
