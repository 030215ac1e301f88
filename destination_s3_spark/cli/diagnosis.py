"""Command `doctor`: says what is right and wrong about a configuration, the bucket with every permission a sync needs, and this machine.

Each function looks at one thing and yields its findings as they come: some take seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from destination_s3_spark.cli import MASKS
from destination_s3_spark.cli.configuration import read_file, read_options
from destination_s3_spark.cli.terminal import Output, Terminal, write_json
from destination_s3_spark.config.config import GIB, MIB, Config
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.config.settings_model import Settings
from destination_s3_spark.config.spark_conf import is_local, is_loopback
from destination_s3_spark.engine.machine import container_memory_bytes
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.probes import Answer, ask
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.check import CHECK_LIMITS, Step, checking, cluster_trials
from destination_s3_spark.sync.runtime import (
    BUFFERS_PER_TASK,
    TASK_MIN_BYTES,
    WORKER_BYTES,
    engine_of,
    spark_settings,
    task_bytes,
    tasks_that_fit,
)
from destination_s3_spark.sync.scratch import scratch_directory
from destination_s3_spark.sync.story.lines import installation
from destination_s3_spark.tables.configured import option_warnings
from destination_s3_spark.tables.factory import TableFactory, table_factory
from destination_s3_spark.tables.publishers.registry import check_publishers, require_publishable
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.wording import counted, size_text

SKEW_DOUBTFUL_S = 60
SKEW_BAD_S = 15 * 60
"""AWS refuses requests that are signed with a time further away than this."""
LEAST_JAVA = 17
JAVA_LIMIT_S = 30
_VERSION = re.compile(r'version "(\d+)[^"]*"')


class Verdict(Enum):
    """The result of one look."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    """A sync works, but perhaps not as intended."""
    BAD = "bad"
    """A sync cannot work."""
    SKIPPED = "skipped"
    """Not looked at, because something it needs is bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `part`: the part of the setup. `check`: what was looked at. `detail`: what was found, or what to do."""

    part: str
    check: str
    verdict: Verdict
    detail: str


def look_at_options(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about the options, or that all are good."""
    try:
        config = Config.parse(options)
        doubtful = option_warnings(config, options)
        require_publishable(config, {}, path_template(config, datetime.now(UTC), sync_id=0))
    except ConfigError as error:
        yield Finding("configuration", "options", Verdict.BAD, error.message)
        for option in Config.unknown_beside_refused(options):
            if not option.ours:  # those of this connector are in the error
                yield Finding("configuration", "options", Verdict.DOUBTFUL, str(option))
        return
    for doubt in doubtful:
        yield Finding("configuration", "options", Verdict.DOUBTFUL, doubt)
    yield from _in_the_open(config)
    if not doubtful:
        yield Finding("configuration", "options", Verdict.GOOD, "all are known and valid")


def _in_the_open(config: Config) -> Iterator[Finding]:
    """Yield the servers of other machines that are asked without TLS."""
    addresses = {"s3_endpoint": config.s3_endpoint}
    if isinstance(config.publish.iceberg, IcebergRest):
        addresses["publish.iceberg.uri"] = config.publish.iceberg.uri
        addresses["publish.iceberg.oauth2_server_uri"] = config.publish.iceberg.oauth2_server_uri
    for option, address in addresses.items():
        url = urlsplit(address or "")
        host = url.hostname or ""
        if url.scheme.lower() == "http" and not is_loopback(host) and not host.endswith(".localhost"):
            yield Finding(
                "configuration",
                option,
                Verdict.DOUBTFUL,
                f"{host} is asked over plain http: whoever is on the way reads all data and tokens and may change them. Use https, "
                "with s3.ca_certificate if its certificate is of an authority of your own.",
            )


def look_at_streams(factory: TableFactory, catalog: bytes) -> Iterator[Finding]:
    """Yield the installation and the resolved path of each stream, or what a sync of the catalog would end with."""
    try:
        parsed = parse_catalog(catalog)
        tables = factory.of_catalog(parsed)
    except SyncError as error:
        yield Finding("streams", "catalog", Verdict.BAD, error.message)
        return
    yield Finding("streams", "installation", Verdict.GOOD, installation(parsed))
    for table in tables.values():
        yield Finding("streams", str(table.stream.id), Verdict.GOOD, _paths(factory, table))


def _paths(factory: TableFactory, table: StreamTable) -> str:
    layout, bucket = table.layout, factory.config.s3_bucket_name
    key = layout.template.key(table.stream.id, layout.final.extension, token=0, part_number=0, root=layout.root)
    example = key.removeprefix(layout.root)
    mode = table.stream.destination_sync_mode.value
    return f"{mode} into s3://{bucket}/{layout.root} (files such as {example}), chain and raw files in {layout.folder}"


def look_at_catalogs(config: Config, template: PathTemplate) -> Iterator[Finding]:
    """Yield a finding for each catalog that is configured, such as `publish.glue`. Each is tried without the others."""
    catalogs = [name for name in type(config.publish).model_fields if isinstance(getattr(config.publish, name), Settings)]
    store = S3Store(s3_settings(config, CHECK_LIMITS))
    for name in catalogs:
        others = dict.fromkeys((other for other in catalogs if other != name), None)
        alone = config.model_copy(update={"publish": config.publish.model_copy(update=others)})
        works = "every call that publishing needs works"
        yield _tried("publishing", f"publish.{name}", partial(check_publishers, alone, store, template), works)


def look_at_bucket(settings: S3Settings, template: PathTemplate) -> Iterator[Finding]:
    """Yield a finding for the endpoint, the clock, and each step of the connection check."""
    place = settings.endpoint or "AWS S3"
    try:
        answer = ask(settings)
    except SyncError as error:
        yield Finding("bucket", "endpoint", Verdict.BAD, error.message)
        return
    yield Finding("bucket", "endpoint", Verdict.GOOD, f"{place} answered in {answer.seconds * 1000:.0f} ms")
    yield _clock(answer)
    with checking(settings, template) as steps:
        yield from _steps(steps)


def _clock(answer: Answer) -> Finding:
    ahead = answer.ahead_s
    if ahead is None:
        return Finding("bucket", "clock", Verdict.SKIPPED, "the store's answer has no date to compare with")
    if abs(ahead) < SKEW_DOUBTFUL_S:
        return Finding("bucket", "clock", Verdict.GOOD, "this machine and the store agree")
    side = "ahead of" if ahead > 0 else "behind"
    verdict = Verdict.BAD if abs(ahead) >= SKEW_BAD_S else Verdict.DOUBTFUL
    return Finding("bucket", "clock", verdict, f"this machine is {abs(ahead):,.0f} s {side} the store. Set the clock right (NTP).")


def _steps(steps: Sequence[Step]) -> Iterator[Finding]:
    failed: set[str] = set()
    for step in steps:
        needs = failed.intersection(step.after)
        found = _skipped("bucket", step.action) if needs else _tried("bucket", step.action, step.run)
        if found.verdict is not Verdict.GOOD:
            failed.add(step.name)
        yield found


def _tried(part: str, check: str, run: Callable[[], None], works: str | None = None) -> Finding:
    """Run something that a sync needs. If it works, the finding says so in these words, or how long it took."""
    begun = time.monotonic()
    try:
        run()
    except SyncError as error:
        return Finding(part, check, Verdict.BAD, error.message)
    return Finding(part, check, Verdict.GOOD, works or f"{(time.monotonic() - begun) * 1000:.0f} ms")


def _skipped(part: str, check: str) -> Finding:
    return Finding(part, check, Verdict.SKIPPED, "needs what is bad above")


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
        yield _skipped("machine", "Spark")
    elif is_local(config.spark.master):
        yield _local_spark(config)
    elif template is None:
        yield Finding("machine", "Spark", Verdict.SKIPPED, "a cluster is tried with the bucket, which is bad")
    else:
        yield from _cluster(config, template)


def find_java() -> Finding:
    """Run the Java that Spark would run."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"Install Java {LEAST_JAVA} or later, or point JAVA_HOME at it."
    if java is None:
        return Finding("machine", "Java", Verdict.BAD, f"There is no java on the PATH, and JAVA_HOME is not set. {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("machine", "Java", Verdict.BAD, f"{java} cannot be run ({type(error).__name__}). {advice}")
    version = _VERSION.search(said)
    if version is None:
        return Finding("machine", "Java", Verdict.BAD, f"{java} does not tell its version. {advice}")
    good = int(version[1]) >= LEAST_JAVA
    return Finding("machine", "Java", Verdict.GOOD if good else Verdict.BAD, f"{java}, {version[0]}" + ("" if good else f". {advice}"))


def _local_spark(config: Config) -> Finding:
    begun = time.monotonic()
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(config))
        engine = engine_of(config, scratch / "spark")
        stack.callback(engine.stop)
        try:
            engine.run(str, [[number] for number in range(engine.cores)])
        except SyncError as error:
            return Finding("machine", "Spark", Verdict.BAD, error.message)
        cores, seconds = engine.cores, time.monotonic() - begun
    version = metadata.version("pyspark")
    return Finding("machine", "Spark", Verdict.GOOD, f"pyspark {version} ran a task in each of {cores} workers, after {seconds:.1f} s")


def _cluster(config: Config, template: PathTemplate) -> Iterator[Finding]:
    """Try all that a task on a cluster needs, one after the other. What comes after a bad one is skipped."""
    try:
        trials = cluster_trials(config, template)
    except SyncError as error:
        yield Finding("machine", "Spark", Verdict.BAD, error.message)
        return
    good = True
    for trial in trials:
        works = f"good for {config.spark.master}"
        found = _tried("machine", trial.name, trial.run, works) if good else _skipped("machine", trial.name)
        good = found.verdict is Verdict.GOOD
        yield found


def _spool(config: Config) -> Finding:
    try:
        with scratch_directory(config):
            pass
    except SyncError as error:
        return Finding("machine", "spool directory", Verdict.BAD, error.message)
    directory = config.batching.spool_dir or tempfile.gettempdir()
    free, most = shutil.disk_usage(directory).free, int(config.batching.max_spool_gb * GIB)
    room = f"{directory} has {size_text(free)} free, and up to {size_text(most)} may wait there (batching.max_spool_gb)"
    if free < most:
        return Finding(
            "machine", "spool directory", Verdict.DOUBTFUL, f"{room}. Make room, set max_spool_gb lower, or use another directory."
        )
    return Finding("machine", "spool directory", Verdict.GOOD, room)


def _memory(config: Config, container: int) -> Finding:
    settings = spark_settings(config, Path())
    fixed = settings.heap_mb * MIB + (settings.cores + 1) * WORKER_BYTES
    least, most = (fixed + BUFFERS_PER_TASK * settings.cores * size for size in (TASK_MIN_BYTES, task_bytes(config)))
    tasks = f"{settings.cores} tasks at once, as spark.master says,"
    if container < least:
        return Finding(
            "machine",
            "memory",
            Verdict.BAD,
            f"{tasks} need {size_text(least)}, and there are {size_text(container)}. Give the container more memory, or set "
            f"spark.master to local[{tasks_that_fit(container, settings.heap_mb)}].",
        )
    return Finding("machine", "memory", Verdict.GOOD, f"{size_text(container)}; {tasks} take up to {size_text(most)}")


_SIGNS = {
    Verdict.GOOD: ("✓", "green"),
    Verdict.DOUBTFUL: ("!", "yellow"),
    Verdict.BAD: ("✗", "bold red"),
    Verdict.SKIPPED: ("-", "dim"),
}


def run(config_path: str, catalog_path: str | None, output: str) -> int:
    """Print the findings as they come and return 1 if any is bad."""
    options = read_options(config_path)
    catalog = None if catalog_path is None else read_file(catalog_path, "catalog")
    findings: list[Finding] = []
    terminal = Terminal()
    for finding in _findings(options, catalog):
        if Output(output) is Output.TABLE:
            _print(terminal, finding, new_part=not findings or findings[-1].part != finding.part)
        findings.append(replace(finding, detail=MASKS.masked(finding.detail)))
    bad = sum(finding.verdict is Verdict.BAD for finding in findings)
    if Output(output) is Output.JSON:
        write_json(findings)
    else:
        doubtful = sum(finding.verdict is Verdict.DOUBTFUL for finding in findings)
        terminal.say(f"\n{_conclusion(bad, doubtful)}", style="bold")
    return 1 if bad else 0


def _findings(options: Mapping[str, Any], catalog: bytes | None) -> Iterator[Finding]:
    usable = True
    for finding in look_at_options(options):
        usable = usable and finding.verdict is not Verdict.BAD
        yield finding
    if not usable:
        yield find_java()
        return
    config = Config.parse(options)
    template = path_template(config, datetime.now(UTC), sync_id=0)
    bucket_is_good = True
    for finding in look_at_bucket(s3_settings(config, CHECK_LIMITS), template):
        bucket_is_good = bucket_is_good and finding.verdict is not Verdict.BAD
        yield finding
    if bucket_is_good:
        yield from look_at_catalogs(config, template)
    if catalog is not None:
        if bucket_is_good:
            yield from look_at_streams(table_factory(config), catalog)
        else:
            yield Finding("streams", "catalog", Verdict.SKIPPED, "needs the bucket, which is bad")
    yield from look_at_machine(config, template if bucket_is_good else None)


def _print(terminal: Terminal, finding: Finding, *, new_part: bool) -> None:
    if new_part:
        terminal.say(f"\n{finding.part}", style="bold")
    sign, style = _SIGNS[finding.verdict]
    terminal.item(sign, style, finding.check, finding.detail)
    sys.stdout.flush()


def _conclusion(bad: int, doubtful: int) -> str:
    doubts = f", {counted(doubtful, 'doubt')}" if doubtful else ""
    if bad:
        return f"{counted(bad, 'thing')} to mend{doubts}: a sync would not work."
    return f"A sync can work{doubts}."
