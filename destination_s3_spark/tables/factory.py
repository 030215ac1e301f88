"""Factory of tables: it resolves their folders, reads their chains and checks their columns. It writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Precedence, Session, WriteDisposition
from destination_s3_spark.chain.settle import MapCalls
from destination_s3_spark.chain.territory import OrphanUploads, Table
from destination_s3_spark.config.config import Config
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.protocol.catalog import Catalog, Stream
from destination_s3_spark.schema.draft import UnionConflicts
from destination_s3_spark.schema.json_schema import StreamFields, stream_fields
from destination_s3_spark.storage.configured import path_template, s3_settings
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER, changes_root, history_root, overlaps, resolve_roots, root_flaw
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.columns.row_plan import is_deduplicated
from destination_s3_spark.tables.commit.generation import earlier_files
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.configured import RAW_PARQUET, column_rules, decimals, final_options, rules
from destination_s3_spark.tables.found import FoundTables, KnownTables, find_tables, located, without_schema
from destination_s3_spark.tables.open_table import Layout
from destination_s3_spark.tables.publishers.publication import Publisher
from destination_s3_spark.tables.publishers.registry import publishers_of, require_publishable
from destination_s3_spark.tables.stream_table import StreamTable, recorded_stream, write_disposition

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class TableFactory:
    """Factory of a bucket path's tables, for a sync and for the operator's commands.

    `map_tables` may read tables in parallel, and `map_files` may complete their uploads in parallel.
    """

    config: Config
    store: ObjectStore
    started_at: datetime
    map_tables: MapCalls = map
    map_files: MapCalls = map
    precedence: Precedence = field(default_factory=Precedence)

    def of_catalog(self, catalog: Catalog) -> dict[int, StreamTable]:
        """Make the table of each stream, by catalog index, and read its chain. Raises ConfigError when a stream does not fit its table."""
        if self.config.change_log.enabled:
            require_primary_keys(catalog)
        sent = {stream.id: self._declared(stream) for stream in catalog.streams}
        treatments = column_rules(self.config)
        treatments.require_matches(sent)
        streams = [stream.id for stream in catalog.streams]
        template = path_template(self.config, self.started_at, catalog.streams[0].sync_id)
        known = self._known(template)
        chains = self._read_hints(template, streams, known)
        recorded = {stream: chain.state.identity.final_root for stream, chain in chains.items() if chain.state is not None}
        if len(recorded) < len(chains):  # a table begins, and its folder must not be that of a table of another catalog
            recorded = {**known().roots, **recorded}
        roots = {**recorded, **resolve_roots(streams, template, recorded)}
        require_own_roots(catalog, roots, recorded, template)
        require_publishable(self.config, with_neighbours(streams, roots), template)
        publishers = publishers_of(self.config, roots, template, rules(self.config))
        orphans = OrphanUploads(self.store, template.base)
        tables = {}
        for index, stream in enumerate(catalog.streams):
            treatment = treatments.of_stream(stream.id, sent[stream.id])
            fields = treatment.fields(sent[stream.id])
            chain = chains[stream.id]
            chain.table = self._adopting(chain.table, template, roots[stream.id])
            session = Session(stream.sync_id, stream.generation_id, self.started_at, write_disposition(stream))
            writer = self._writer(chain, session, orphans, publishers[stream.id])
            layout = self._layout(template, chain.table, RAW_PARQUET if self.config.tables.raw_tables else None)
            tables[index] = StreamTable(stream, fields, writer, layout, rules(self.config), session, treatment)
        for made in tables.values():
            made.check_schema()
        return tables

    def find(self) -> FoundTables:
        return find_tables(self.store, self.template, self.map_tables)

    def choose(self, found: FoundTables, name: str | None, namespace: str | None) -> list[Table]:
        """Choose the tables of the streams with this name or pattern, or all without one, as `FoundTables.choose`."""
        return found.choose(name, namespace, self.place)

    def read_chain(self, found: Table) -> Chain:
        """Read the chain of a table to its head. Raises DataError when it is damaged."""
        chain = Chain(self.store, found)
        chain.read()
        chain.catch_up()
        return chain

    def chain_of(self, stream: StreamId) -> Chain:
        """Read the chain of a stream's table to its head. Its state is None if there is no table."""
        template = self.template
        chain = self._read_hint(template, stream, self._known(template))
        chain.catch_up()
        return chain

    def of_found(
        self, found: Table, publishers: Sequence[Publisher], disposition: WriteDisposition = WriteDisposition.MAINTAIN
    ) -> StreamTable:
        """Make a table from the catalog that its chain recorded last for its rows. The session adds no rows.

        Raises ConfigError if there is none yet.
        """
        chain = self.read_chain(found)
        schema = chain.state_of_rows(without_pending=disposition is WriteDisposition.DISCARD).schema
        if schema is None:
            raise without_schema(found.stream)
        return self.of_chain(chain, schema, publishers, disposition)

    def of_chain(
        self,
        chain: Chain,
        schema: Mapping[str, Any],
        publishers: Sequence[Publisher] = (),
        disposition: WriteDisposition = WriteDisposition.MAINTAIN,
    ) -> StreamTable:
        """Make the table of a chain, which has been read, from the catalog of a schema that it records. The session adds no rows."""
        generation = chain.head.contents.generation
        session = Session(0, generation, self.started_at, disposition)
        writer = self._writer(chain, session, self.orphans(), publishers)
        stream, fields = recorded_stream(chain.table.stream, schema, generation)
        return StreamTable(stream, fields, writer, self._layout(self.template, chain.table, RAW_PARQUET), rules(self.config), session)

    def publishers(self, every: FoundTables) -> dict[StreamId, tuple[Publisher, ...]]:
        """Make the publishers of found tables by the same rules as in a sync. `every` holds all tables of the bucket path."""
        return publishers_of(self.config, every.roots, self.template, rules(self.config))

    def orphans(self) -> OrphanUploads:
        """Make the list of the bucket path's open uploads. It is requested from the store on first use."""
        return OrphanUploads(self.store, self.template.base)

    @property
    def place(self) -> str:
        """The S3 URI of the folder of all tables' own folders, for messages."""
        return f"s3://{self.config.s3_bucket_name}/{self.template.base}{INTERNAL_FOLDER}/"

    @property
    def template(self) -> PathTemplate:
        """The template of keys outside a sync."""
        return path_template(self.config, self.started_at, sync_id=0)

    def _declared(self, stream: Stream) -> StreamFields:
        untyped = final_options(self.config).values is not Values.TYPED
        conflicts = UnionConflicts(self.config.tables.union_conflicts)
        return stream_fields(stream.json_schema, stream.id, conflicts, decimals(self.config), unfit_as_text=untyped)

    def _read_hints(self, template: PathTemplate, streams: Sequence[StreamId], known: KnownTables) -> dict[StreamId, Chain]:
        """Read the chains of a catalog's tables from their hints. If the first has no table, only those that have a folder are read."""
        first = self._read_hint(template, streams[0], known)
        if first.state is None:
            known()
        others = self.map_tables(lambda stream: self._read_hint(template, stream, known), streams[1:])
        return dict(zip(streams, [first, *others], strict=True))

    def _read_hint(self, template: PathTemplate, stream: StreamId, known: KnownTables) -> Chain:
        """Read the table's chain from its hint, usually one request. The writer catches up with later blocks."""
        table = located(stream, template, template.final_root(stream))
        chain = Chain(self.store, replace(table, root_flaw=lambda root: root_flaw(root, stream, template, lambda: known().roots)))
        if not known.lack(table.folder):
            chain.read()
        return chain

    def _known(self, template: PathTemplate) -> KnownTables:
        # Tables are read by the threads of `map_tables`, which must not wait for each other.
        return KnownTables(lambda: find_tables(self.store, template, self.map_files))

    def _adopting(self, table: Table, template: PathTemplate, root: str) -> Table:
        def adopt() -> list[str]:
            if template.identity(table.stream)[-2:-1] != ("name",):
                return []  # in a folder of many streams nothing tells which stream a file belongs to
            return earlier_files(self.store, template.key_pattern(table.stream, root), root, table.table_id, self.map_files)

        return replace(table, final_root=root, adopt=adopt)

    def _writer(self, chain: Chain, session: Session, orphans: OrphanUploads, publishers: Sequence[Publisher]) -> TableWriter:
        return TableWriter(
            chain,
            session,
            orphans,
            map_files=self.map_files,
            publishers=publishers,
            precedence=self.precedence,
            keep_replaced=timedelta(minutes=self.config.publish.keep_replaced_minutes),
        )

    def _layout(self, template: PathTemplate, table: Table, raw: ParquetOptions | None) -> Layout:
        changes, histories = changes_root(template, table.stream), history_root(template, table.stream)
        return Layout(template, table.final_root, table.folder, changes, histories, final_options(self.config), raw)


def table_factory(config: Config) -> TableFactory:
    """Make the factory for an operator's command."""
    return TableFactory(config, S3Store(s3_settings(config)), datetime.now(UTC))


def require_primary_keys(catalog: Catalog) -> None:
    """Raise ConfigError for a stream without a primary key, which a change log needs. Warn about streams that will have no change log."""
    for stream in catalog.streams:
        if not stream.primary_key:
            raise ConfigError(
                f"Stream '{stream.id}' has no primary key, and change_log is enabled, which tells rows apart by it. Choose append_dedup "
                "and a primary key for the stream in the connection, leave the stream out, or set change_log.enabled to false.",
                stream=stream.id,
            )
    without = [str(stream.id) for stream in catalog.streams if not is_deduplicated(stream)]
    if without:
        logger.warning("change_log is for append_dedup streams only; these have none: %s", ", ".join(without))


def with_neighbours(streams: Iterable[StreamId], roots: Mapping[StreamId, str]) -> dict[StreamId, str]:
    """Return the roots of the streams, and of other tables those that are, hold or lie in one of them."""
    own = {stream: roots[stream] for stream in streams}
    others = {stream: root for stream, root in roots.items() if stream not in own}
    return own | {
        stream: root for stream, root in others.items() if any(root.startswith(one) or one.startswith(root) for one in own.values())
    }


def require_own_roots(catalog: Catalog, roots: Mapping[StreamId, str], recorded: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError for a stream that is to be deduplicated or replaced and shares its folder with another table.

    Appending is allowed in a shared folder, because it never has to know which files belong to the table. `recorded`: the roots of tables
    that exist, which no option moves.
    """
    shared, settled = overlaps(roots, template), overlaps(recorded, template)
    for stream in catalog.streams:
        if stream.id in shared and (is_deduplicated(stream) or write_disposition(stream) is not WriteDisposition.APPEND):
            way_out = (
                "A table that exists stays in its folder: sync one of the two into another s3_bucket_path"
                if stream.id in settled
                else "Put ${NAMESPACE} and ${STREAM_NAME} into s3_path_format"
            )
            raise ConfigError(
                f"Stream '{stream.id}' is to be deduplicated or replaced, but its folder '{roots[stream.id]}' is, holds or lies in that "
                f"of {shared[stream.id]}. {way_out}, or use an append mode without refreshes.",
                stream=stream.id,
            )
