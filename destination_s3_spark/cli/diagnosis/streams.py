"""Diagnosis of a catalog: what its sender sends, and where each stream's table is or will be."""

from __future__ import annotations

from collections.abc import Iterator

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.errors import SyncError
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.sync.story.lines import installation
from destination_s3_spark.tables.factory import TableFactory
from destination_s3_spark.tables.stream_table import StreamTable

_PART = "streams"


def look_at_streams(factory: TableFactory, catalog: bytes) -> Iterator[Finding]:
    """Yield the installation and the resolved path of each stream, or what a sync of the catalog would end with."""
    try:
        parsed = parse_catalog(catalog)
        tables = factory.of_catalog(parsed)
    except SyncError as error:
        yield Finding(_PART, "catalog", Verdict.BAD, error.message)
        return
    yield Finding(_PART, "installation", Verdict.GOOD, installation(parsed))
    for table in tables.values():
        yield Finding(_PART, str(table.stream.id), Verdict.GOOD, _paths(factory, table))


def _paths(factory: TableFactory, table: StreamTable) -> str:
    layout, bucket = table.layout, factory.config.s3_bucket_name
    key = layout.template.key(table.stream.id, layout.final.extension, token=0, part_number=0, root=layout.root)
    example = key.removeprefix(layout.root)
    mode = table.stream.destination_sync_mode.value
    return f"{mode} into s3://{bucket}/{layout.root} (files such as {example}), chain and raw files in {layout.folder}"
