"""Publisher of symlink manifests, through which Athena, Trino, Presto and Redshift see every change of a table atomically.

Hive's `SymlinkTextInputFormat` treats a table's location as a folder of text files that name its data files, one per line. One PutObject
replaces the manifest, so a query plans with the files either before or after a change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.object_store import ObjectChanged, ObjectInfo, ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.publication import (
    NotPublished,
    PublisherKind,
    ShownTable,
    TimeOf,
    block_time,
    overlap_error,
    require_parquet,
    time_text,
)
from destination_s3_spark.tables.rules import MergeRule, waiting_properties

MANIFEST = "_symlink_format_manifest/manifest"
"""Key of the manifest below a table's final root. Readers of the root itself skip folders that begin with `_`."""
SEQUENCE = "ab-chain-sequence"
"""Object metadata: number of the chain's newest block at the time of the manifest."""
TIME = "ab-chain-time"
"""Object metadata: that block's system time. It identifies the manifest of a table that was removed and created again."""
OWNER_METADATA = "ab-chain-table"
"""Object metadata: the id of the table."""
REPLACE_TRIES = 8
"""Most attempts to replace a manifest while other writers replace it at the same time."""

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class SymlinkManifest:
    bucket: str
    merge_rule: MergeRule | None = None
    time_of: TimeOf | None = None

    name: ClassVar[str] = "symlink"

    def asking(self, time_of: TimeOf) -> SymlinkManifest:
        return replace(self, time_of=time_of)

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        """Replace the table's manifest unless it is of a later block, and return its ETag as the mark. Raises TransientError.

        Raises NotPublished for a table with files of another format and for a manifest of another table or program. A table without files
        gets an empty manifest, which engines but Redshift read as a table without rows.
        """
        key = state.identity.final_root + MANIFEST
        keys = published_keys(live)
        require_parquet(keys, "readers of its manifest")
        body = "".join(f"s3://{self.bucket}/{key}\n" for key in keys).encode()
        metadata = {SEQUENCE: str(state.sequence_number), TIME: block_time(state), OWNER_METADATA: state.identity.table_id}
        waiting = waiting_properties(state.contents, self.merge_rule)
        metadata |= {name.replace("airbyte.", "ab-"): value for name, value in waiting.items()}
        etag = None if last is None else last.mark
        for _ in range(REPLACE_TRIES):
            try:
                return store.replace(key, body, metadata, etag)
            except ObjectChanged as changed:
                now = changed.now
                _require_own(now, state)
                # The sequence number of our own block means that this put succeeded and its response was lost.
                if now is not None and self._is_of_this_block_or_later(now, state):
                    return now.etag
                etag = None if now is None else now.etag
        raise TransientError(
            f"The manifest of table {state.identity.stream} was written by somebody else {REPLACE_TRIES} times while this sync tried to. "
            "Nothing is lost: try again, with one writer at a time.",
            stream=state.identity.stream,
        )

    def _is_of_this_block_or_later(self, now: ObjectInfo, state: TableState) -> bool:
        number, time = _sequence(now), now.metadata.get(TIME, "")
        if number < state.sequence_number or time < block_time(state):
            return False
        return self.time_of is None or ((found := self.time_of(number)) is not None and time == time_text(found))

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        """Return the number of the block after which the manifest was written. Takes one HEAD request."""
        info = store.head(state.identity.final_root + MANIFEST)
        return None if info is None or _sequence(info) < 0 else _sequence(info)

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        """Raise NotPublished for a table with files of another format, or another's manifest in its place."""
        require_parquet(published_keys(live), "readers of its manifest")
        _require_own(store.head(state.identity.final_root + MANIFEST), state)


def published_keys(live: LiveFiles) -> list[str]:
    """List the keys of the final table's published and adopted files, sorted."""
    return sorted([*live.adopted, *(file.key for file in live.settled(FileKind.FINAL))])


def _of_tables(config: Config, tables: Sequence[ShownTable]) -> dict[ShownTable, SymlinkManifest]:
    """Make a publisher for each Parquet table that shares its folder with no other table, unless the option is off."""
    if not _wanted(config):
        return {}
    return {table: SymlinkManifest(config.s3_bucket_name, table.merge_rule) for table in tables if table.neighbour is None}


def _require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError if the user switched the option on and folders overlap. If it is on by default, warn about tables without it."""
    shared = overlaps(roots, template) if _wanted(config) else {}
    if shared and "symlink" in config.publish.model_fields_set:
        raise overlap_error("publish.symlink", "manifest", shared)
    if shared:
        logger.warning("no symlink manifest for tables that share a folder with another one: %s", ", ".join(sorted(map(str, shared))))


def _wanted(config: Config) -> bool:
    return config.publish.symlink and isinstance(config.format, ParquetFormat)


def _require_own(manifest: ObjectInfo | None, state: TableState) -> None:
    """Raise NotPublished if the manifest is that of another table, or if this connector did not write it."""
    if manifest is None:
        return
    if _sequence(manifest) < 0 or manifest.metadata.get(OWNER_METADATA) != state.identity.table_id:
        raise NotPublished(
            f"'{manifest.key}' is the manifest of another table or program, which is never overwritten. Choose another path for the "
            "stream, or remove that object."
        )


def _sequence(manifest: ObjectInfo) -> int:
    """Return the number of the block after which the manifest was written, or -1 for an object that this connector did not write."""
    number = manifest.metadata.get(SEQUENCE, "")
    return int(number) if number.isdecimal() else -1


SYMLINK = PublisherKind(_of_tables, _require_publishable)
