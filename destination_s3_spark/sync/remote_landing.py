"""Landing on a cluster, where executors cannot read the spool and receive slices through the bucket."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.sync.open_tables import OpenTables
from destination_s3_spark.tables.landing.land import LandTask
from destination_s3_spark.tables.landing.remote_slice import RemoteLandTask, land_remote_slice, object_keys, remote, upload_lines
from destination_s3_spark.tables.landing.slices import StagedSlice

UPLOADS_AT_ONCE = 4
"""Slices that are compressed and uploaded in parallel."""

logger = logging.getLogger("airbyte")


class RemoteLanding:
    """The landing of a sync's slices on the executors of a cluster."""

    def __init__(self, engine: Engine, store: ObjectStore, tables: OpenTables) -> None:
        self._engine = engine
        self._store = store
        self._tables = tables

    def land(self, groups: Sequence[Sequence[LandTask]]) -> list[list[StagedSlice]]:
        """Land every task like `Engine.run` with `land_slice`. Delete the slices from the bucket afterwards, unless this process dies."""
        travelling = [[self._named(task) for task in tasks] for tasks in groups]
        keys = [key for tasks in travelling for task in tasks for key in task.objects]
        try:
            self._upload(groups, travelling)
            landed = self._engine.run(land_remote_slice, travelling)
        except BaseException:
            self._clear_up(keys)
            raise
        self._store.delete(keys)
        return landed

    def _named(self, task: LandTask) -> RemoteLandTask:
        table = self._tables[task.slice.stream]
        prefix = table.layout.scratch_prefix(table.writer.next_token())
        return remote(task, object_keys(task.slice, prefix))

    def _upload(self, groups: Sequence[Sequence[LandTask]], travelling: Sequence[Sequence[RemoteLandTask]]) -> None:
        pairs = [
            (here.slice, there.objects)
            for tasks, twins in zip(groups, travelling, strict=True)
            for here, there in zip(tasks, twins, strict=True)
        ]
        with ThreadPoolExecutor(UPLOADS_AT_ONCE, "slices") as pool:
            list(pool.map(lambda pair: upload_lines(pair[0], pair[1], self._store), pairs))

    def _clear_up(self, keys: Sequence[str]) -> None:
        """Delete the slices after a failure. Only log an error of the deletion: the next opening of the table deletes what is left."""
        try:
            self._store.delete(keys)
        except SyncError as error:
            logger.warning("records on their way to executors were left for the next sync to delete: %s", error)
