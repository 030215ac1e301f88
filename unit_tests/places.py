"""Locations of tables in the test's bucket, under the bucket path `lake`."""

from __future__ import annotations

from datetime import UTC, datetime

from destination_s3_spark.chain.state import Identity
from destination_s3_spark.chain.territory import Table, Territory
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.found import located

TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 1)


class Everywhere(Territory):
    """Whatever a block names is the table's: for chains whose files are not in any store."""

    def names(self, key: str, *, adopted: bool) -> bool:
        return True


class PlainTable(Table):
    """A table whose chain may name any key and have any identity."""

    def territory(self, root: str) -> Territory:
        return Everywhere(self, root)

    def flaw(self, identity: Identity) -> str | None:
        return None


def table_of(name: str, namespace: str | None = None) -> Table:
    """The location of a stream's table."""
    stream = StreamId(namespace, name)
    return located(stream, TEMPLATE, TEMPLATE.final_root(stream))
