"""The tables of a catalog: where each lies, what it already holds, and whether its stream's columns fit. Nothing is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime

from destination_s3_spark.chain.opening import Session, Table, WriteDisposition
from destination_s3_spark.chain.orphan_uploads import OrphanUploads
from destination_s3_spark.chain.precedence import Precedence
from destination_s3_spark.config.config import Config
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.protocol.catalog import Catalog, Stream
from destination_s3_spark.schema.draft import UnionConflicts
from destination_s3_spark.schema.json_schema import StreamFields, Unfit, stream_fields
from destination_s3_spark.storage.configured import path_template
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import changes_root, internal_root, overlaps, resolve_roots, table_id
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.commit.adoption import earlier_files
from destination_s3_spark.tables.commit.writer import TableWriter, WriterDependencies
from destination_s3_spark.tables.configured import RAW_PARQUET, final_options, rules
from destination_s3_spark.tables.dedup import is_deduplicated
from destination_s3_spark.tables.layout import Layout
from destination_s3_spark.tables.publishers.symlink import publishers, require_publishable
from destination_s3_spark.tables.stream_table import StreamTable, write_disposition

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class TableSet:
    """How to make the tables of one sync. `tables_pool` reads tables side by side, `files_pool` completes their uploads."""

    config: Config
    store: ObjectStore
    started_at: datetime
    tables_pool: Executor
    files_pool: Executor
    precedence: Precedence = field(default_factory=Precedence)

    def read(self, catalog: Catalog) -> dict[int, StreamTable]:
        """The table of each stream by catalog index, its chain read. Raises ConfigError when a stream does not fit its table."""
        if self.config.change_log.enabled:
            require_primary_keys(catalog)
        unfit = Unfit.TEXT if final_options(self.config).values is not Values.TYPED else Unfit.FAIL
        conflicts = UnionConflicts(self.config.tables.union_conflicts)
        declared = [stream_fields(stream.json_schema, stream.id, unfit, conflicts) for stream in catalog.streams]
        template = path_template(self.config, self.started_at, catalog.streams[0].sync_id)
        orphans = OrphanUploads(self.store, template.base)
        provisional = {stream.id: template.final_root(stream.id) for stream in catalog.streams}
        writers = [self._writer(stream, template, provisional[stream.id], orphans) for stream in catalog.streams]
        list(self.tables_pool.map(TableWriter.read, writers))
        roots = self._roots(catalog, template, writers)
        require_own_roots(catalog, roots, template)
        require_publishable(self.config, roots, template)
        shown_by = publishers(self.config, roots, template)
        tables = {}
        for index, (stream, fields, writer) in enumerate(zip(catalog.streams, declared, writers, strict=True)):
            root = roots[stream.id]
            # A table that is not there yet learns its place only now, when the places of all others are known.
            settled = writer if writer.state is not None else self._writer(stream, template, root, orphans)
            settled.publisher = shown_by.get(stream.id)
            tables[index] = self._table(stream, fields, settled, template, root)
        for table in tables.values():
            table.check_schema()
        return tables

    def _writer(self, stream: Stream, template: PathTemplate, root: str, orphans: OrphanUploads) -> TableWriter:
        def adopt() -> list[str]:
            if template.identity(stream.id)[-2:-1] != ("name",):
                return []  # a folder of many streams: nothing tells whose a file is
            return earlier_files(self.store, template.key_pattern(stream.id, root), root, table_id(stream.id), self.files_pool.map)

        table = Table(stream.id, table_id(stream.id), internal_root(template, stream.id), root, adopt)
        dependencies = WriterDependencies(map_files=self.files_pool.map, precedence=self.precedence)
        return TableWriter(self.store, table, self._session(stream), orphans, dependencies)

    def _session(self, stream: Stream) -> Session:
        return Session(stream.sync_id, stream.generation_id, self.started_at, write_disposition(stream))

    @staticmethod
    def _roots(catalog: Catalog, template: PathTemplate, writers: list[TableWriter]) -> dict[StreamId, str]:
        recorded: dict[StreamId, str] = {
            stream.id: writer.state.identity.final_root
            for stream, writer in zip(catalog.streams, writers, strict=True)
            if writer.state is not None
        }
        resolved = resolve_roots([stream.id for stream in catalog.streams], template, recorded)
        return {stream.id: resolved[stream.id] for stream in catalog.streams}

    def _table(self, stream: Stream, fields: StreamFields, writer: TableWriter, template: PathTemplate, root: str) -> StreamTable:
        raw = RAW_PARQUET if self.config.tables.raw_tables else None
        layout = Layout(
            template, root, internal_root(template, stream.id), changes_root(template, stream.id), final_options(self.config), raw
        )
        return StreamTable(stream, fields, writer, layout, rules(self.config), self._session(stream))


def require_primary_keys(catalog: Catalog) -> None:
    """Raise ConfigError for a stream whose rows a change log could not tell apart; say which streams will have none."""
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


def require_own_roots(catalog: Catalog, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError for a stream whose table is to be merged or replaced and has files of another table under its folder.

    Only appending never has to know which files are its own.
    """
    shared = overlaps(roots, template)
    for stream in catalog.streams:
        if stream.id in shared and (is_deduplicated(stream) or write_disposition(stream) is not WriteDisposition.APPEND):
            raise ConfigError(
                f"Stream '{stream.id}' is to be deduplicated or replaced, but its folder '{roots[stream.id]}' is, holds or lies in that "
                f"of {shared[stream.id]}. Put ${{NAMESPACE}} and ${{STREAM_NAME}} into s3_path_format, or use an append mode without "
                "refreshes.",
                stream=stream.id,
            )
