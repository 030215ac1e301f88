"""The symlink manifest: a list of a table's files in one object, through which Athena, Trino, Redshift and Hive see whole changes only.

Hive's `SymlinkTextInputFormat` takes a table's location for a folder of text files that name its data files, one per line. The list is
replaced by one PutObject, so a query plans with the files before a change or with those after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import ClassVar

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.object_store import ObjectChanged, ObjectInfo, ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.publication import PublisherKind

MANIFEST = "_symlink_format_manifest/manifest"
"""Below a table's final root. Readers of the root itself skip folders that begin with `_`."""
SEQUENCE = "ab-chain-sequence"
"""Object metadata: number of the chain's newest block when the manifest was written."""
TIME = "ab-chain-time"
"""Object metadata: that block's system time. It tells the manifest of a table that was removed and begun anew."""
REPLACE_TRIES = 8
"""How often a manifest is tried to be replaced that somebody else replaces at the same time."""

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class SymlinkManifest:
    """Publishes a table of the bucket."""

    bucket: str

    name: ClassVar[str] = "symlink"

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: str | None) -> str:
        """Replace the table's manifest unless it is of a later block; the mark is its ETag. Raises TransientError.

        A table without files gets an empty one, which engines take for a table without rows.
        """
        key = state.identity.final_root + MANIFEST
        body = "".join(f"s3://{self.bucket}/{key}\n" for key in published_keys(live)).encode()
        metadata = {SEQUENCE: str(state.sequence_number), TIME: _time(state)}
        for _ in range(REPLACE_TRIES):
            try:
                return store.replace(key, body, metadata, last)
            except ObjectChanged as changed:
                # Our own block says that the answer to this very put was lost.
                if changed.now is not None and _sequence(changed.now) >= state.sequence_number and _written(changed.now) >= _time(state):
                    return changed.now.etag
                last = None if changed.now is None else changed.now.etag
        raise TransientError(
            f"The manifest of table {state.identity.stream} was written by somebody else {REPLACE_TRIES} times while this sync tried to. "
            "Nothing is lost: run the sync again, and only one at a time.",
            stream=state.identity.stream,
        )

    def is_current(self, store: ObjectStore, state: TableState) -> bool:
        """Whether the manifest was written after the table's last data block. One HEAD."""
        info = store.head(state.identity.final_root + MANIFEST)
        return info is not None and _sequence(info) >= (state.last_data or 0)


def published_keys(live: LiveFiles) -> list[str]:
    """The final table's files, sorted: those the chain added and published, and those it adopted."""
    return sorted([*live.adopted, *(file.key for file in live.of(FileKind.FINAL) if not live.is_pending(file))])


def _of_tables(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> dict[StreamId, SymlinkManifest]:
    """The publisher of each table that has one: all Parquet tables with a folder of their own, unless the option is off.

    `roots` are the final roots of all tables that are known.
    """
    if not _wanted(config):
        return {}
    return dict.fromkeys(roots.keys() - overlaps(roots, template).keys(), SymlinkManifest(config.s3_bucket_name))


def _require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError when the user switched the option on and folders overlap; if it is on by default, say which tables have none."""
    shared = overlaps(roots, template) if _wanted(config) else {}
    if shared and "symlink" in config.publish.model_fields_set:
        stream, other = min((str(stream), other) for stream, other in shared.items())
        raise ConfigError(
            f"publish.symlink is on, but on S3 stream '{stream}' and {other} overlap: the folder of one is, holds or lies in the other's. "
            "A manifest needs a folder of its own: put ${NAMESPACE} and ${STREAM_NAME} into s3_path_format, or switch publish.symlink off."
        )
    if shared:
        logger.warning("no symlink manifest for tables that share a folder with another one: %s", _listed(map(str, shared)))


def _wanted(config: Config) -> bool:
    return config.publish.symlink and isinstance(config.format, ParquetFormat)


def _sequence(manifest: ObjectInfo) -> int:
    """The number of the block the manifest was written after; -1 for an object that is none of ours."""
    number = manifest.metadata.get(SEQUENCE, "")
    return int(number) if number.isdecimal() else -1


def _written(manifest: ObjectInfo) -> str:
    return manifest.metadata.get(TIME, "")


def _time(state: TableState) -> str:
    return state.system_time.astimezone(UTC).isoformat(timespec="microseconds")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


SYMLINK = PublisherKind(_of_tables, _require_publishable)
