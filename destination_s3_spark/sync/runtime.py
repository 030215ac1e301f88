"""Engine of a sync as configured, and the limits of its memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destination_s3_spark.config.config import MIB, Config, Spark
from destination_s3_spark.config.spark_conf import PYTHON, api_server, hosts, is_local
from destination_s3_spark.engine.cluster import Cluster
from destination_s3_spark.engine.engine import Engine, Groups
from destination_s3_spark.engine.machine import container_memory_bytes, jvm_heap_mb
from destination_s3_spark.engine.manager import megabytes
from destination_s3_spark.engine.session import SparkSettings, local_cores
from destination_s3_spark.engine.startup import class_data
from destination_s3_spark.errors import ConfigError, lack_error
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.endpoint import check_endpoint, check_host, cloud_deployment
from destination_s3_spark.sync.batches import Limits, limits
from destination_s3_spark.sync.scratch import scratch_directory
from destination_s3_spark.tables.updates.resources import LocalDisk, MergeTime, Resources, TaskResources

if TYPE_CHECKING:
    from destination_s3_spark.engine.local_workers import LocalWorkers
    from destination_s3_spark.storage.settings import S3Settings

TASKS = "destination_s3_spark.tables.landing.land"
"""Module of the tasks' functions. Not imported here, because it imports nearly everything."""
WORKER_BYTES = 160 * MIB
"""Memory of a Python process with only its libraries loaded."""
TASK_MIN_BYTES = 32 * MIB
"""Least Arrow memory of a merge task."""
BUFFERS_PER_TASK = 3
"""Memory of a task, as a multiple of the Arrow memory that it is given."""
CLUSTER_TASK_BYTES = 256 * MIB
"""Arrow memory of a task on a cluster, where the machines' memory is unknown. In total, a task needs about 1 GB."""
CLUSTER_START_LIMIT_S = 600
"""Time limit for a cluster's executors to start. Some clusters have to scale up first."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a sync runs on, from `started_at`: engines, a local directory for its spool and for Spark, and bounds of memory, disk and time.

    `workers` land records on this machine: Spark's, unless that is a cluster. `landing_bytes`: the memory of one for rows.
    `resources` plans updates. It may have to wait for Spark.
    """

    engine: Engine
    workers: Engine | LocalWorkers
    scratch: Path
    limits: Limits
    landing_bytes: int
    resources: Callable[[S3Settings], Resources]
    started_at: datetime


@contextmanager
def runtime_for(config: Config) -> Iterator[Runtime]:
    """Provide the runtime of a sync. On exit, always stop Spark and remove the directory.

    Raises ConfigError, and TransientError when the body ran out of threads, files or memory.
    """
    with scratch_directory(config) as scratch:
        engine = engine_of(config, scratch / "spark")
        try:
            yield runtime_of(config, engine, scratch)
        except (OSError, RuntimeError, MemoryError) as error:
            lack = lack_error(error)
            if lack is None:
                raise
            raise lack from error
        finally:
            engine.stop()


def runtime_of(config: Config, engine: Engine, scratch: Path) -> Runtime:
    """Return the runtime of a sync that starts now, with the bounds of the configuration and of this machine."""
    local, bounds = is_local(config.spark.master), limits(config)
    # The spool is empty when tables are merged, so change events may take its disk space.
    disk = LocalDisk(scratch / "events", bounds.spool_bytes) if local else None
    merge_time = MergeTime(timedelta(minutes=config.tables.merge_limit_minutes))
    return Runtime(
        engine,
        engine if local else _local_workers(config),
        scratch,
        bounds,
        landing_bytes(config),
        lambda s3: Resources(TaskResources(s3, task_bytes(config)), engine.cores, disk, merge_time),
        datetime.now(UTC),
    )


def _local_workers(config: Config) -> LocalWorkers:
    from destination_s3_spark.engine.local_workers import LocalWorkers  # noqa: PLC0415 (Spark in the connector must not pay for it)

    return LocalWorkers(TASKS, landing_cores(config))


def engine_of(config: Config, scratch: Path, start_limit_s: float = CLUSTER_START_LIMIT_S) -> Engine:
    """Return the engine that runs the tasks of `tables`. On a cluster, the tasks get the credentials configured for executors."""
    settings = spark_settings(config, scratch, start_limit_s)
    if is_local(config.spark.master):
        return Engine(settings, TASKS)
    forward = config.spark.executor_credentials == "forward"
    return Engine(settings, TASKS, lambda groups: with_credentials(groups, forward=forward))


def with_credentials(groups: Groups, *, forward: bool) -> list[list[Any]]:
    """Replace the S3 settings of each task, which are for this machine, by those for executors on other machines.

    A task has them as `s3` or in its `resources`. `forward`: with the credentials of this machine.
    """
    from destination_s3_spark.storage.credentials import for_executors  # noqa: PLC0415 (boto3 imports slowly, and only clusters need it)

    known: dict[S3Settings, S3Settings] = {}

    def replaced(part: Any) -> Any:
        if hasattr(part, "resources"):
            return replace(part, resources=replaced(part.resources))
        if part.s3 not in known:
            known[part.s3] = for_executors(part.s3, forward=forward)
        return replace(part, s3=known[part.s3])

    return [[replaced(task) for task in tasks] for tasks in groups]


def spark_settings(config: Config, scratch: Path, start_limit_s: float = CLUSTER_START_LIMIT_S) -> SparkSettings:
    """Return the settings of Spark, with its scratch files below `scratch`.

    Raises ConfigError for a cluster in Airbyte Cloud, and for one at an address that may not be contacted.
    """
    spark = config.spark
    heap = _heap_mb(spark)
    return SparkSettings(
        _cores(spark.master, heap) if is_local(spark.master) else 0,
        heap,
        scratch,
        spark.conf,
        None if is_local(spark.master) else _cluster(config, start_limit_s),
        class_data.java_options(),
        secrets=frozenset(config.secrets()),
    )


def require_allowed(spark: Spark) -> None:
    """Raise ConfigError for a cluster in Airbyte Cloud, and for one at an address that may not be contacted."""
    if cloud_deployment():
        raise ConfigError("spark.master must be local[...] in Airbyte Cloud, where nothing may reach a connector from outside.")
    if api := api_server(spark.master):
        check_endpoint(api, "spark.master")
    for option, host in hosts(spark.master, spark.conf):
        check_host(host, option)


def _cluster(config: Config, start_limit_s: float) -> Cluster:
    from destination_s3_spark.storage.ca_bundle import certificates  # noqa: PLC0415 (boto3 imports slowly, and only clusters need it)

    spark = config.spark
    require_allowed(spark)
    python = spark.conf.get(PYTHON) or f"python{sys.version_info.major}.{sys.version_info.minor}"
    secret, token = (None if text is None else text.get_secret_value() for text in (spark.authenticate_secret, spark.kubernetes_token))
    return Cluster(spark.master, python, start_limit_s, secret, token, certificates(s3_settings(config)))


def task_bytes(config: Config) -> int:
    """Return the Arrow memory for one task of an update."""
    return landing_bytes(config) if is_local(config.spark.master) else CLUSTER_TASK_BYTES


def landing_cores(config: Config) -> int:
    """Return the number of tasks at once on this machine."""
    return _cores(config.spark.master, _heap_mb(config.spark))


def _heap_mb(spark: Spark) -> int:
    return megabytes(spark.driver_memory or "") or jvm_heap_mb(container_memory_bytes())


def _cores(master: str, heap_mb: int) -> int:
    """Return the number of tasks at once that the master says. For `*` and beside a cluster, that is one per CPU for which memory is left.

    Containers without a CPU limit have all CPUs of a machine, and rarely its memory.
    """
    if not is_local(master) or "*" in master:
        return min(local_cores("local[*]"), tasks_that_fit(container_memory_bytes(), heap_mb))
    return local_cores(master)


def tasks_that_fit(container_bytes: int, heap_mb: int) -> int:
    """Return how many tasks at once a container has memory for beside the JVM, at least one."""
    left = container_bytes - heap_mb * MIB - WORKER_BYTES
    return max(1, left // (WORKER_BYTES + BUFFERS_PER_TASK * TASK_MIN_BYTES))


def landing_bytes(config: Config) -> int:
    """Return the Arrow memory for one task on this machine: a share of the container's memory left over by the JVM and the workers."""
    cores = landing_cores(config)
    left = container_memory_bytes() - _heap_mb(config.spark) * MIB - (cores + 1) * WORKER_BYTES
    return min(max(left // (BUFFERS_PER_TASK * cores), TASK_MIN_BYTES), 512 * MIB)
