"""Diagnosis of this machine: Java, Spark, the spool directory and the memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.cli.terminal import size_text
from destination_s3_spark.config.config import GIB, MIB, Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.machine import container_memory_bytes
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.sync.check import cluster_trials
from destination_s3_spark.sync.runtime import TASK_MIN_BYTES, WORKER_BYTES, engine_of, spark_settings, task_bytes
from destination_s3_spark.sync.scratch import scratch_directory

_PART = "machine"
LEAST_JAVA = 17
JAVA_LIMIT_S = 30
BUFFERS_PER_TASK = 3
"""Memory of a task, as a multiple of the Arrow memory that it is given."""
_VERSION = re.compile(r'version "(\d+)[^"]*"')


def look_at_machine(config: Config, template: PathTemplate | None) -> Iterator[Finding]:
    """Yield a finding for Java, Spark, the spool directory and the memory.

    `template` is None if the bucket cannot be used: a cluster, which is tried with it, is then left out.
    """
    spool = _spool(config)
    yield spool
    if is_local(config.spark.master):
        yield _memory(config, container_memory_bytes())
    java = find_java()
    yield java
    if java.verdict is Verdict.BAD or spool.verdict is Verdict.BAD:
        yield Finding(_PART, "Spark", Verdict.SKIPPED, "needs what is bad above")
    elif is_local(config.spark.master):
        yield _local_spark(config)
    elif template is None:
        yield Finding(_PART, "Spark", Verdict.SKIPPED, "a cluster is tried with the bucket, which is bad")
    else:
        yield from _cluster(config, template)


def find_java() -> Finding:
    """Run the Java that Spark would run."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"Install Java {LEAST_JAVA} or later, or point JAVA_HOME at it."
    if java is None:
        return Finding(_PART, "Java", Verdict.BAD, f"There is no java on the PATH, and JAVA_HOME is not set. {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(_PART, "Java", Verdict.BAD, f"{java} cannot be run ({type(error).__name__}). {advice}")
    version = _VERSION.search(said)
    if version is None:
        return Finding(_PART, "Java", Verdict.BAD, f"{java} does not tell its version. {advice}")
    good = int(version[1]) >= LEAST_JAVA
    return Finding(_PART, "Java", Verdict.GOOD if good else Verdict.BAD, f"{java}, {version[0]}" + ("" if good else f". {advice}"))


def _local_spark(config: Config) -> Finding:
    """Start Spark, and run a task in a Python worker."""
    begun = time.monotonic()
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(config))
        engine = engine_of(config, scratch / "spark")
        stack.callback(engine.stop)
        try:
            engine.run(str, [[number] for number in range(engine.cores)])
        except SyncError as error:
            return Finding(_PART, "Spark", Verdict.BAD, error.message)
        cores, seconds = engine.cores, time.monotonic() - begun
    version = metadata.version("pyspark")
    return Finding(_PART, "Spark", Verdict.GOOD, f"pyspark {version} ran a task in each of {cores} workers, after {seconds:.1f} s")


def _cluster(config: Config, template: PathTemplate) -> Iterator[Finding]:
    """Try all that a task on a cluster needs, one after the other. What comes after a bad one is skipped."""
    bad = False
    try:
        trials = cluster_trials(config, template)
    except SyncError as error:
        yield Finding(_PART, "Spark", Verdict.BAD, error.message)
        return
    for trial in trials:
        if bad:
            yield Finding(_PART, trial.name, Verdict.SKIPPED, "needs what is bad above")
            continue
        try:
            trial.run()
        except SyncError as error:
            bad = True
            yield Finding(_PART, trial.name, Verdict.BAD, error.message)
        else:
            yield Finding(_PART, trial.name, Verdict.GOOD, f"good for {config.spark.master}")


def _spool(config: Config) -> Finding:
    try:
        with scratch_directory(config):
            pass
    except SyncError as error:
        return Finding(_PART, "spool directory", Verdict.BAD, error.message)
    directory = config.batching.spool_dir or tempfile.gettempdir()
    free, most = shutil.disk_usage(directory).free, int(config.batching.max_spool_gb * GIB)
    room = f"{directory} has {size_text(free)} free, and up to {size_text(most)} may wait there (batching.max_spool_gb)"
    if free < most:
        return Finding(_PART, "spool directory", Verdict.DOUBTFUL, f"{room}. Make room, set max_spool_gb lower, or use another directory.")
    return Finding(_PART, "spool directory", Verdict.GOOD, room)


def _memory(config: Config, container: int) -> Finding:
    settings = spark_settings(config, Path())
    fixed = settings.heap_mb * MIB + (settings.cores + 1) * WORKER_BYTES
    least, most = (fixed + BUFFERS_PER_TASK * settings.cores * size for size in (TASK_MIN_BYTES, task_bytes(config)))
    tasks = f"{settings.cores} tasks at once, as spark.master says,"
    if container < least:
        fitting = max(1, (container - settings.heap_mb * MIB - WORKER_BYTES) // (WORKER_BYTES + BUFFERS_PER_TASK * TASK_MIN_BYTES))
        return Finding(
            _PART,
            "memory",
            Verdict.BAD,
            f"{tasks} need {size_text(least)}, and there are {size_text(container)}. Give the container more memory, or set "
            f"spark.master to local[{fitting}].",
        )
    return Finding(_PART, "memory", Verdict.GOOD, f"{size_text(container)}; {tasks} take up to {size_text(most)}")
