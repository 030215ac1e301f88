"""The registry of publishers. A new publisher is a module of this package and an entry in PUBLISHERS."""

from __future__ import annotations

from collections.abc import Mapping

from destination_s3_spark.config.config import Config
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.delta import DELTA
from destination_s3_spark.tables.publishers.glue import GLUE
from destination_s3_spark.tables.publishers.iceberg.publisher import ICEBERG
from destination_s3_spark.tables.publishers.publication import Publisher, PublisherKind
from destination_s3_spark.tables.publishers.symlink import SYMLINK
from destination_s3_spark.tables.rules import Rules

PUBLISHERS: list[PublisherKind] = [
    SYMLINK,
    DELTA,
    ICEBERG,
    GLUE,
]
"""In the order in which they publish. Glue comes last, because it points at what the others have made."""


def publishers_of(
    config: Config, roots: Mapping[StreamId, str], template: PathTemplate, rules: Rules
) -> dict[StreamId, tuple[Publisher, ...]]:
    """Make the publishers of each table. `roots` are the final roots of all known tables."""
    made = [kind.of_tables(config, roots, template, rules) for kind in PUBLISHERS]
    return {stream: tuple(of[stream] for of in made if stream in of) for stream in roots}


def require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError for tables that cannot be published as requested. Warn about tables that are not published by default."""
    for kind in PUBLISHERS:
        kind.require(config, roots, template)


def check_publishers(config: Config, store: ObjectStore, template: PathTemplate) -> None:
    """Try the catalogs of all publishers that are on. Raises SyncError."""
    for kind in PUBLISHERS:
        kind.check(config, store, template)
