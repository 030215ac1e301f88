"""The symlink manifest: a list of a table's files in one object, through which Athena, Trino, Redshift and Hive see whole changes only.

Hive's `SymlinkTextInputFormat` takes a table's location for a folder of text files that name its data files, one per line. The list is
replaced by one PutObject, so a query plans with the files before a change or with those after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId

MANIFEST = "_symlink_format_manifest/manifest"
"""Below a table's final root. Readers of the root itself skip folders that begin with `_`."""
SEQUENCE = "ab-chain-sequence"
"""Object metadata: number of the chain's newest block when the manifest was written."""

logger = logging.getLogger("airbyte")


@dataclass(frozen=True, slots=True)
class SymlinkManifest:
    """Publishes a table of the bucket."""

    bucket: str

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        """Replace the table's manifest. A table without files gets an empty one, which engines take for a table without rows."""
        body = "".join(f"s3://{self.bucket}/{key}\n" for key in published_keys(live))
        store.put(state.identity.final_root + MANIFEST, body.encode(), {SEQUENCE: str(state.sequence_number)})

    def is_current(self, store: ObjectStore, state: TableState) -> bool:
        """Whether the manifest was written after the table's last data block. One HEAD."""
        info = store.head(state.identity.final_root + MANIFEST)
        return info is not None and info.metadata.get(SEQUENCE, "").isdecimal() and int(info.metadata[SEQUENCE]) >= (state.last_data or 0)


def wants_manifests(config: Config) -> bool:
    """Whether tables are to have manifests, if they can."""
    return config.publish.symlink and isinstance(config.format, ParquetFormat)


def published_keys(live: LiveFiles) -> list[str]:
    """The final table's files, sorted: those the chain added and published, and those it adopted."""
    return sorted([*live.adopted, *(file.key for file in live.of(FileKind.FINAL) if not live.is_pending(file))])


def symlinked(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> frozenset[StreamId]:
    """The streams whose tables have a manifest: all Parquet tables with a folder of their own, unless the option is off.

    `roots` are the final roots of a catalog's streams. Raises ConfigError when the option was switched on by the user and folders overlap.
    """
    if not wants_manifests(config):
        return frozenset()
    shared = overlaps(roots, template)
    if shared and "symlink" in config.publish.model_fields_set:
        stream, other = min((str(stream), other) for stream, other in shared.items())
        raise ConfigError(
            f"publish.symlink is on, but on S3 stream '{stream}' and {other} overlap: the folder of one is, holds or lies in the other's. "
            "A manifest needs a folder of its own: put ${NAMESPACE} and ${STREAM_NAME} into s3_path_format, or switch publish.symlink off."
        )
    if shared:
        logger.warning("no symlink manifest for tables that share a folder with another one: %s", _listed(map(str, shared)))
    return frozenset(roots.keys() - shared.keys())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
