"""Connection check of a Spark cluster: its master answers, and an executor runs our code and reaches the bucket."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import ExitStack
from uuid import uuid4

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.spark_conf import addresses, is_local
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER
from destination_s3_spark.storage.upload_probe import UploadProbe, try_upload
from destination_s3_spark.sync.check import CHECK_LIMITS
from destination_s3_spark.sync.runtime import engine_of, require_allowed
from destination_s3_spark.sync.scratch import scratch_directory

MASTER_LIMIT_S = 5.0
START_LIMIT_S = 120.0
TASK_LIMIT_S = 90.0
"""Time limit of the task, longer than its calls may take together."""


def check_cluster(config: Config, template: PathTemplate) -> None:
    """Check that tasks can run on the configured cluster. Return at once for local Spark.

    Raises ConfigError, which says what to change, or TransientError for a cluster without a free executor.
    """
    master = config.spark.master
    if is_local(master):
        return
    require_allowed(config.spark)
    if master.startswith("spark://"):
        _reach(addresses(master), master)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(config))
        engine = engine_of(config, scratch, START_LIMIT_S)
        stack.callback(engine.stop)
        key = f"{template.base}{INTERNAL_FOLDER}/check/{uuid4().hex}/executor"
        _try_executor(engine, UploadProbe(key, s3_settings(config), CHECK_LIMITS), config)


def _try_executor(engine: Engine, probe: UploadProbe, config: Config) -> None:
    pool = ThreadPoolExecutor(1, "check")
    running = pool.submit(_upload, engine, probe, config)
    pool.shutdown(wait=False)
    try:
        running.result(START_LIMIT_S + TASK_LIMIT_S)
    except Late:
        raise TransientError(
            f"An executor of {config.spark.master} did not finish a small task within {TASK_LIMIT_S:.0f} seconds. Can it reach S3?"
        ) from None


def _upload(engine: Engine, probe: UploadProbe, config: Config) -> None:
    _ = engine.cores  # waits for the session first, because its errors are not about S3
    try:
        engine.run(try_upload, [[probe]])
    except SyncError as error:
        raise type(error)(f"{error.message} This happened on {config.spark.master}, {_credentials(config)}.") from error


def _credentials(config: Config) -> str:
    if config.spark.executor_credentials == "own":
        return "whose executors use AWS credentials of their own (spark.executor_credentials)"
    return "with the credentials of this connector (spark.executor_credentials)"


def _reach(masters: Sequence[tuple[str, int]], master: str) -> None:
    """Raise ConfigError unless a master accepts connections. Spark itself would try for a minute and report less."""
    for address in masters:
        try:
            socket.create_connection(address, MASTER_LIMIT_S).close()
        except (OSError, OverflowError):  # an invalid port
            continue
        return
    raise ConfigError(f"No Spark master answers at {master}. Check spark.master, and that this machine may connect to it.")
