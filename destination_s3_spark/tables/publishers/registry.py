"""The registry of publishers. A new publisher is a module of this package and an entry in PUBLISHERS."""

from __future__ import annotations

from collections.abc import Mapping

from destination_s3_spark.config.config import Config
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import history_root, internal_root, overlaps
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.delta import DELTA
from destination_s3_spark.tables.publishers.glue import GLUE
from destination_s3_spark.tables.publishers.histories import OfHistory
from destination_s3_spark.tables.publishers.iceberg.publisher import ICEBERG
from destination_s3_spark.tables.publishers.publication import Publisher, PublisherKind, ShownTable
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
    """Make the publishers of each table, and of its history behind them. `roots` are the final roots of all known tables."""
    tables = _shown(roots, template, rules)
    made = [kind.of_tables(config, tables) for kind in PUBLISHERS]
    found: dict[StreamId, tuple[Publisher, ...]] = dict.fromkeys(roots, ())
    for table in tables:
        publishers = [of[table] for of in made if table in of]
        found[table.stream] += tuple(OfHistory(one, table.root) if table.is_history else one for one in publishers)
    return found


def _shown(roots: Mapping[StreamId, str], template: PathTemplate, rules: Rules) -> list[ShownTable]:
    """Return all tables, and after them the histories that the user wants beside some."""
    shared = overlaps(roots, template)
    tables = [ShownTable(of, root, internal_root(template, of), shared.get(of), rules.merges_of(of)) for of, root in roots.items()]
    kept = [(of, history_root(template, of)) for of in roots if rules.history_of(of) is not None]
    return [*tables, *(ShownTable(of, root, root, None, rules.merges_of(of), is_history=True) for of, root in kept)]


def require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError for tables that cannot be published as requested. Warn about tables that are not published by default."""
    for kind in PUBLISHERS:
        kind.require(config, roots, template)


def check_publishers(config: Config, store: ObjectStore, template: PathTemplate) -> None:
    """Try the catalogs of all publishers that are on. Raises SyncError, also for a publication that no table can have."""
    require_publishable(config, {}, template)
    for kind in PUBLISHERS:
        if kind.check is not None:
            kind.check(config, store, template)
