"""The engine of a sync as its configuration wants it, and its place on the local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from destination_s3_spark.config import Config
from destination_s3_spark.engine.session import Engine, Groups
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.spark_conf import is_local
from destination_s3_spark.storage.credentials import ExecutorCredentials, for_executors
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.settings import CLUSTER_START_LIMIT_S, spark_settings
from destination_s3_spark.tables.land import warm_up


def engine_of(config: Config, scratch: Path, start_limit_s: float = CLUSTER_START_LIMIT_S) -> Engine:
    """The engine that runs the tasks of `tables`. On a cluster they get the credentials that executors shall have there."""
    settings = spark_settings(config, scratch, start_limit_s)
    if is_local(config.spark.master):
        return Engine(settings, warm_up)
    credentials = ExecutorCredentials(config.spark.executor_credentials)
    return Engine(settings, warm_up, lambda groups: with_credentials(groups, credentials))


def with_credentials(groups: Groups, credentials: ExecutorCredentials) -> list[list[Any]]:
    """The tasks, whose `s3` says how to reach the bucket from here, as executors on other machines get them."""
    known: dict[S3Settings, S3Settings] = {}

    def dressed(task: Any) -> Any:
        if task.s3 not in known:
            known[task.s3] = for_executors(task.s3, credentials)
        return replace(task, s3=known[task.s3])

    def all_of(tasks: Sequence[Any]) -> list[Any]:
        return [dressed(task) for task in tasks]

    return [all_of(tasks) for tasks in groups]


def scratch_directory(config: Config) -> Path:
    """Make a directory of our own for the spool and for Spark; the caller's to remove. Raises ConfigError."""
    parent = config.batching.spool_dir
    try:
        return Path(tempfile.mkdtemp(prefix="destination-s3-spark-", dir=parent))
    except OSError as error:
        where = parent or tempfile.gettempdir()
        raise ConfigError(
            f"The spool directory {where} cannot be written ({error.strerror}). Set batching.spool_dir to a writable directory."
        ) from error
