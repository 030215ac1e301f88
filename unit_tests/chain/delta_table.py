"""The Delta log of the table of `one_table`, as readers and the store see it."""

from __future__ import annotations

from collections.abc import Set

from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.delta_log.log import LOG_FOLDER, DeltaLog, DeltaState
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.publishers.delta import DeltaTable
from destination_s3_spark.tables.publishers.publication import NotPublished
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import TABLE

SHOWN = DeltaTable()
LOG = TABLE.final_root + LOG_FOLDER


def log_of(store: Bucket, table: Table = TABLE) -> DeltaState | None:
    """The log as a reader finds it, without a call that the test counts."""
    return DeltaLog(store.quiet, table.final_root).read()


def paths(store: Bucket, table: Table = TABLE) -> Set[str]:
    found = log_of(store, table)
    return set() if found is None else {table.final_root + path for path in found.adds}


def delta_calls(store: Bucket) -> list[str]:
    """The calls for the log since they were last forgotten."""
    return [name for name, key in store.calls if LOG in key]


def version(store: Bucket) -> int:
    found = log_of(store)
    return -1 if found is None else found.version


class Refusing(DeltaTable):
    """Does not publish this time."""

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        raise NotPublished("not now")
