"""Diagnosis of the options, of the bucket and of every permission that a sync needs there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.iceberg_options import IcebergRest
from destination_s3_spark.config.settings_model import Settings
from destination_s3_spark.errors import ConfigError, SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.probes import Answer, ask
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.sync.check import CHECK_LIMITS, Step, checking
from destination_s3_spark.sync.story.lines import installation
from destination_s3_spark.tables.configured import option_warnings
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.publishers.registry import check_publishers
from destination_s3_spark.tables.stream_table import StreamTable

_PART = "bucket"
SKEW_DOUBTFUL_S = 60
SKEW_BAD_S = 15 * 60
"""AWS refuses requests that are signed with a time further away than this."""


def look_at_options(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about the options, or that all are good."""
    try:
        config = Config.parse(options)
        doubtful = option_warnings(config, options)
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
        if url.scheme.lower() == "http" and not _is_loopback(url.hostname or ""):
            yield Finding(
                "configuration",
                option,
                Verdict.DOUBTFUL,
                f"{url.hostname} is asked over plain http: whoever is on the way reads all data and tokens and may change them. Use https, "
                "with s3.ca_certificate if its certificate is of an authority of your own.",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


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
    store = S3Store(s3_settings(config), CHECK_LIMITS)
    for name in catalogs:
        others = dict.fromkeys((other for other in catalogs if other != name), None)
        alone = config.model_copy(update={"publish": config.publish.model_copy(update=others)})
        try:
            check_publishers(alone, store, template)
        except SyncError as error:
            yield Finding("publishing", f"publish.{name}", Verdict.BAD, error.message)
        else:
            yield Finding("publishing", f"publish.{name}", Verdict.GOOD, "every call that publishing needs works")


def look_at_bucket(settings: S3Settings, template: PathTemplate) -> Iterator[Finding]:
    """Yield a finding for the endpoint, the clock, and each step of the connection check."""
    place = settings.endpoint or "AWS S3"
    try:
        answer = ask(settings, CHECK_LIMITS)
    except SyncError as error:
        yield Finding(_PART, "endpoint", Verdict.BAD, error.message)
        return
    yield Finding(_PART, "endpoint", Verdict.GOOD, f"{place} answered in {answer.seconds * 1000:.0f} ms")
    yield _clock(answer)
    with checking(settings, template) as steps:
        yield from _steps(steps)


def _clock(answer: Answer) -> Finding:
    ahead = answer.ahead_s
    if ahead is None:
        return Finding(_PART, "clock", Verdict.SKIPPED, "the store's answer has no date to compare with")
    if abs(ahead) < SKEW_DOUBTFUL_S:
        return Finding(_PART, "clock", Verdict.GOOD, "this machine and the store agree")
    side = "ahead of" if ahead > 0 else "behind"
    verdict = Verdict.BAD if abs(ahead) >= SKEW_BAD_S else Verdict.DOUBTFUL
    return Finding(_PART, "clock", verdict, f"this machine is {abs(ahead):,.0f} s {side} the store. Set the clock right (NTP).")


def _steps(steps: Sequence[Step]) -> Iterator[Finding]:
    failed: set[str] = set()
    for step in steps:
        missing = failed.intersection(step.after)
        if missing:
            failed.add(step.name)
            yield Finding(_PART, step.action, Verdict.SKIPPED, "needs what is bad above")
            continue
        begun = time.monotonic()
        try:
            step.run()
        except SyncError as error:
            failed.add(step.name)
            yield Finding(_PART, step.action, Verdict.BAD, error.message)
        else:
            yield Finding(_PART, step.action, Verdict.GOOD, f"{(time.monotonic() - begun) * 1000:.0f} ms")
