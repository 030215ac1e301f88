"""Tables in the AWS Glue Data Catalog. The region and the credentials are those of the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
        with _explained("GetTable"):
            try:
                found: dict[str, Any] = self._client.get_table(DatabaseName=database, Name=name)["Table"]
            except ClientError as error:
                if code(error) != "EntityNotFoundException":
                    raise
                return None
            return found

    def create(self, database: str, definition: dict[str, Any]) -> None:
        """Create a table, and its database if there is none. Raises GlueChanged."""
        try:
            self._create(database, definition)
        except _NoDatabase:
            self.create_database(database)
            self._create(database, definition)

    def update(self, database: str, definition: dict[str, Any], version: str) -> None:
        """Replace the definition of a table unless it has another version by now. Raises GlueChanged."""
        with _explained("UpdateTable", changed={"ConcurrentModificationException", "EntityNotFoundException"}):
            # Without the archive, Glue would keep a version for each change, and their number is limited.
            self._client.update_table(DatabaseName=database, TableInput=definition, VersionId=version, SkipArchive=True)

    def drop(self, database: str, name: str) -> None:
        with _explained("DeleteTable"):
            self._client.delete_table(DatabaseName=database, Name=name)

    def has_database(self, database: str) -> bool:
        with suppress(_NoDatabase), _explained("GetDatabase", absent=True):
            self._client.get_database(Name=database)
            return True
        return False

    def create_database(self, database: str) -> None:
        """Create a database. One that exists is fine."""
        with suppress(GlueChanged), _explained("CreateDatabase", changed={"AlreadyExistsException"}):
            self._client.create_database(DatabaseInput={"Name": database})

    def drop_database(self, database: str) -> None:
        with _explained("DeleteDatabase"):
            self._client.delete_database(Name=database)

    def _create(self, database: str, definition: dict[str, Any]) -> None:
        with _explained("CreateTable", changed={"AlreadyExistsException"}, absent=True):
            self._client.create_table(DatabaseName=database, TableInput=definition)


class _NoDatabase(Exception):
    """The database of a call does not exist."""


@contextmanager
def _explained(operation: str, changed: set[str] | None = None, *, absent: bool = False) -> Iterator[None]:
    """Translate failures of a call. Codes in `changed` mean that another program was faster; `absent` expects a missing database."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        kind = code(error) if isinstance(error, ClientError) else ""
        if kind in (changed or ()):
            raise GlueChanged(operation) from error
        if absent and kind == "EntityNotFoundException":
            raise _NoDatabase from error
        raise GlueFailed(glue_reason(error, operation)) from error
