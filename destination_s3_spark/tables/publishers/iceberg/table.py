"""One Iceberg table: its creation, the difference between its files and the chain's, and the commit that removes the difference.

pyiceberg has no public way to replace files by path, so this module uses the snapshot producer behind its own overwrite. The dependency is
pinned to one minor release for that reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, AssertRefSnapshotId, SetCurrentSchemaUpdate, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots, _ManifestMergeManager, _OverwriteFiles
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_s3_spark.chain.files import FileEntry
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.publishers.iceberg.columns import (
    add,
    iceberg_schema,
    metrics,
    partition_record,
    remove_other,
    require_undivided,
    shown_partitioning,
)
from destination_s3_spark.tables.publishers.publication import NotPublished, TimeOf, block_time, recorded_schema, time_text, undone_by
from destination_s3_spark.tables.rules import WAITING_PROPERTIES
from destination_s3_spark.tables.runs.footers import with_statistics

OWNER = "airbyte.table-id"
"""Table property: the S3 URI of the folder of the table's chain. A table with another one, or with none, is not ours."""
BLOCK, TIME = "airbyte.block", "airbyte.block-time"
"""Table properties: number and time of the newest block of the chain at the last publish."""
SNAPSHOT = "airbyte.snapshot-id"
"""Table property: the snapshot of the last publish. Another current snapshot is a foreign one."""

TRIES = 4
"""Most attempts to commit while others change the table, or while the catalog does not tell the outcome."""
SNAPSHOTS_KEPT = timedelta(days=1)
"""Age from which snapshots may be expired. Their data files may already be gone, because a merge deletes what it replaced."""
NEWEST_FORMAT = 2
"""The newest version of Iceberg's format that pyiceberg can write. A catalog may give tables a later one by default."""
MANIFESTS_TO_MERGE = 16
MANIFEST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table in a catalog: its name there, its owner, the URI of its data and that of its metadata, without a final slash."""

    catalog: Catalog
    store: ObjectStore
    identifier: tuple[str, str]
    owner: str
    location: str
    metadata: str

    def settings(self) -> dict[str, str]:
        """Return the properties that the table always has."""
        return {
            OWNER: self.owner,
            "gc.enabled": "false",  # engines must not delete files of a table whose files the chain owns
            TableProperties.COMMIT_NUM_RETRIES: "0",  # a retry of pyiceberg's could overwrite what a newer session published
            TableProperties.WRITE_METADATA_PATH: self.metadata,
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
            # The bounds lie at or beyond the values, and Spark would answer MIN and MAX with them if the mode were a more precise one.
            TableProperties.DEFAULT_WRITE_METRICS_MODE: "counts",
        }

    def load(self) -> Table | None:
        """Return the table, or None if there is none. Raises NotPublished if it is not ours."""
        try:
            table = self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as gone:
            raise self._metadata_is_gone(gone) from gone
        owner = table.properties.get(OWNER)
        if owner != self.owner:
            whose = "it was not made by this connector" if owner is None else f"it belongs to the table under '{owner}'"
            raise NotPublished(
                f"There is an Iceberg table {'.'.join(self.identifier)} already, and {whose}. Choose another publish.iceberg.namespace, or "
                "drop the table if nobody needs it: the next sync makes it again."
            )
        self._require_unchanged(table)
        return table

    def _metadata_is_gone(self, gone: FileNotFoundError) -> NotPublished:
        return NotPublished(
            f"The metadata of the Iceberg table {'.'.join(self.identifier)} is gone from the bucket: '{gone}'. Drop the table in the "
            "catalog, without its files; the next sync makes it again."
        )

    def _require_unchanged(self, table: Table) -> None:
        """Raise NotPublished if somebody has changed the table's format, or a property that chooses code or places of files."""
        found = table.properties
        if table.metadata.format_version > NEWEST_FORMAT:
            raise NotPublished(
                f"The Iceberg table {'.'.join(self.identifier)} has version {table.metadata.format_version} of Iceberg's format, which the "
                f"connector cannot write: {NEWEST_FORMAT} is the newest. Drop the table in the catalog, without its files; the next sync "
                "makes it again."
            )
        foreign = sorted(name for name in found if name.endswith("impl"))
        if found.get(TableProperties.WRITE_METADATA_PATH) != self.metadata:
            foreign.append(TableProperties.WRITE_METADATA_PATH)
        if foreign:
            raise NotPublished(
                f"The Iceberg table {'.'.join(self.identifier)} has other properties than this connector gave it: "
                f"{', '.join(foreign)[:200]}. Drop the table in the catalog, without its files; the next sync makes it again."
            )

    def published_block(self, state: TableState) -> int | None:
        """Return the number of the block that the table shows, or None if there is no table, or `_published_block` is None."""
        table = self.load()
        return None if table is None else _published_block(table, state)

    def publish(self, state: TableState, files: Mapping[str, FileEntry], waiting: Mapping[str, str], time_of: TimeOf | None = None) -> None:
        """Bring the table to this state with these files by URI and properties about waiting rows. A newer published state stays.

        Every attempt loads the table again and compares blocks first, so a session that another one has overtaken writes nothing. Raises
        NotPublished.
        """
        for _ in range(TRIES):
            table = self.load() or self._created(_schema_of(state))
            if table is None:
                continue
            if _is_newer(table, state, time_of) or _published_block(table, state) == state.sequence_number:
                return
            change = _Change(table, self, state, files, waiting, shown_partitioning(recorded_schema(state).partitioning))
            try:
                if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
                    table = table.transaction().set_properties(self.settings()).commit_transaction()
                change.commit()
            except (CommitFailedException, CommitStateUnknownException, NoSuchTableError):
                continue  # the table tells at the next attempt
            except FileNotFoundError as gone:
                raise self._metadata_is_gone(gone) from gone
            change.expire()
            return
        raise NotPublished(
            f"The Iceberg catalog refused {TRIES} commits in a row or did not say what became of them: another program keeps changing "
            f"the table {'.'.join(self.identifier)}, or the catalog is overloaded."
        )

    def try_out(self) -> None:
        """Create the table, change and drop it, and the namespace too if there was none. Raises pyiceberg's exceptions."""
        with ExitStack() as undoing:
            if self._has_created_namespace():
                undoing.enter_context(undone_by(lambda: self.catalog.drop_namespace(self.identifier[:-1])))
            undoing.enter_context(undone_by(lambda: self.catalog.drop_table(self.identifier)))
            table = self._create(iceberg_schema([Field("id", "id", Scalar.INTEGER)], (1,)))
            table.transaction().set_properties({BLOCK: "0"}).commit_transaction()

    def _has_created_namespace(self) -> bool:
        namespace = self.identifier[:-1]
        if self.catalog.namespace_exists(namespace):
            return False
        try:
            self.catalog.create_namespace(namespace)
        except Exception:
            # The publisher of another table may have been faster, and catalogs do not agree on how to say so.
            if not self.catalog.namespace_exists(namespace):
                raise
            return False
        return True

    def _created(self, schema: Schema) -> Table | None:
        """Create the table and its namespace, or return that of a faster program. Return None if the catalog does not say what it did."""
        self._has_created_namespace()
        try:
            return self._create(schema)
        except TableAlreadyExistsError:
            # Catalogs answer so for other reasons too, and then what they say is all that there is to tell.
            faster = self.load()
            if faster is None:
                raise
            return faster
        except CommitStateUnknownException:
            return None

    def _create(self, schema: Schema) -> Table:
        properties = {**self.settings(), TableProperties.FORMAT_VERSION: str(NEWEST_FORMAT)}
        return self.catalog.create_table(self.identifier, schema, self.location, properties=properties)


def _published_block(table: Table, state: TableState) -> int | None:
    """Return the number of the block that the table shows, or None if a foreign commit or an earlier table of this name hides it."""
    snapshot = table.current_snapshot()
    if table.properties.get(SNAPSHOT) != _id(snapshot):
        return None
    number = int(table.properties.get(BLOCK, "-1"))
    # A block that our chain has not reached, but older than its head, belongs to a chain that was removed.
    if number < 0 or (number > state.sequence_number and table.properties.get(TIME, "") < block_time(state)):
        return None
    return number


def _is_newer(table: Table, state: TableState, time_of: TimeOf | None) -> bool:
    """Return whether a later session has published."""
    number, time = int(table.properties.get(BLOCK, "-1")), table.properties.get(TIME, "")
    if number <= state.sequence_number or time < block_time(state):
        return False
    return time_of is None or ((found := time_of(number)) is not None and time == time_text(found))


def _schema_of(state: TableState) -> Schema:
    schema = recorded_schema(state)
    return iceberg_schema(stored_fields(schema), schema.ids)


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of a table as loaded to a state of the chain. `partitioning`: that which Iceberg's readers see."""

    table: Table
    target: CatalogTable
    state: TableState
    files: Mapping[str, FileEntry]
    waiting: Mapping[str, str]
    partitioning: Partitioning | None

    def commit(self) -> None:
        """Commit schema, files and properties at once. Raises pyiceberg's exceptions."""
        transaction = self.table.transaction()
        # A column cannot change while it divides the table.
        adds_partitioning = remove_other(transaction, self.partitioning)
        _evolve(transaction, _schema_of(self.state))
        if adds_partitioning and self.partitioning is not None:
            add(transaction, self.partitioning)
        shown = self._change_files(transaction)
        properties = {
            **self.target.settings(),
            BLOCK: str(self.state.sequence_number),
            TIME: block_time(self.state),
            SNAPSHOT: shown,
            **self.waiting,
        }
        now = self.table.properties
        transaction.set_properties({name: value for name, value in properties.items() if now.get(name) != value})
        if gone := [name for name in WAITING_PROPERTIES if name in now and name not in self.waiting]:
            transaction.remove_properties(*gone)
        transaction.commit_transaction()

    def expire(self) -> None:
        """Remove old snapshots, unless somebody keeps some by a branch or a tag, and delete their manifests.

        This is a commit of its own, because a catalog may refuse it (Nessie does). Then the snapshots stay until the next publish. A crash
        after it leaves the manifests as orphans. It waits until one is twice as old, so that not every publish takes two commits.
        """
        metadata = self.table.metadata
        if set(metadata.refs) - {MAIN_BRANCH}:
            return
        now = datetime.now(UTC)
        oldest, due = ((now - age).timestamp() * 1000 for age in (SNAPSHOTS_KEPT, 2 * SNAPSHOTS_KEPT))
        heads = {ref.snapshot_id for ref in metadata.refs.values()}
        expired = [old for old in metadata.snapshots if old.timestamp_ms < oldest and old.snapshot_id not in heads]
        if not any(old.timestamp_ms < due for old in expired):
            return
        transaction = self.table.transaction()
        ExpireSnapshots(transaction).by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
        transaction._stage((), (AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=metadata.current_snapshot_id),))
        with suppress(CommitFailedException, NoSuchTableError, RESTError, FileNotFoundError):
            transaction.commit_transaction()
            self._delete_manifests(expired)

    def _delete_manifests(self, expired: Sequence[Snapshot]) -> None:
        """Delete the manifests that none but these snapshots has. Raises FileNotFoundError if one that is to be read is gone."""
        io = self.table.io
        remaining = self.table.metadata.snapshots
        # A manifest that the oldest remaining snapshot does not have is in none of the later ones.
        kept = {manifest.manifest_path for manifest in min(remaining, key=lambda snapshot: snapshot.timestamp_ms).manifests(io)}
        gone = {manifest.manifest_path for snapshot in expired for manifest in snapshot.manifests(io)} - kept
        lists = {snapshot.manifest_list for snapshot in expired}
        bucket = f"{self.target.metadata}/"
        folder = bucket.partition("://")[2].partition("/")[2]
        names = {path.removeprefix(bucket) for path in gone | lists if path.startswith(bucket)}
        self.target.store.delete(sorted(folder + name for name in names if "/" not in name))

    def _change_files(self, transaction: Transaction) -> str:
        """Stage a snapshot with the difference of the files. Return the id of the snapshot that the table will have."""
        current = self.table.current_snapshot()
        manifests = [] if current is None else current.manifests(self.table.io)
        now = {file.file_path: file for file in self._listed(manifests)}
        replaced = [file for path, file in now.items() if not _is_same(file, self.files.get(path))]
        kept = now.keys() - {file.file_path for file in replaced}
        metadata = transaction.table_metadata
        schema, spec_id = metadata.schema(), metadata.default_spec_id
        new = {path: entry for path, entry in self.files.items() if path not in kept}
        described = with_statistics(new.values(), self.target.store, ExecutorFactory.get_or_create().map)
        added = [self._data_file(path, entry, schema, spec_id) for path, entry in zip(new, described, strict=True)]
        foreign_deletes = any(manifest.content is ManifestContent.DELETES for manifest in manifests)
        if not (replaced or added or foreign_deletes):
            # A snapshot's requirement, without one: the commit fails if the table was changed since it was loaded.
            transaction._stage((), (AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None),))
            return _id(current)
        producer = _ReplaceFiles(
            # Readers of what is new read appends alone, and stop at overwrites or skip them.
            Operation.OVERWRITE if replaced or foreign_deletes else Operation.APPEND,
            transaction,
            self.table.io,
            snapshot_properties={OWNER: self.target.owner, BLOCK: str(self.state.sequence_number)},
        )
        for file in replaced:
            producer.delete_data_file(file)
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        return str(producer.snapshot_id)

    def _listed(self, manifests: Iterable[ManifestFile]) -> list[DataFile]:
        data = [manifest for manifest in manifests if manifest.content is ManifestContent.DATA]
        read = ExecutorFactory.get_or_create().map(
            lambda manifest: manifest.fetch_manifest_entry(self.table.io, discard_deleted=True), data
        )
        return [entry.data_file for entries in read for entry in entries]

    def _data_file(self, path: str, entry: FileEntry, schema: Schema, spec_id: int) -> DataFile:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition_record(self.partitioning, entry.partition),
            record_count=entry.rows,
            file_size_in_bytes=entry.bytes,
            **metrics(schema, entry.statistics, entry.rows),
        )
        file.spec_id = spec_id
        return file


class _ReplaceFiles(_OverwriteFiles):
    """Snapshot that adds and removes files by path, with few manifests and without foreign delete files."""

    def _existing_manifests(self) -> list[ManifestFile]:
        kept = super()._existing_manifests()
        return [one for one in kept if one.content is ManifestContent.DATA and (one.has_added_files() or one.has_existing_files())]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests, each of which would cost a request at every later publish."""
        merging: _ManifestMergeManager[_OverwriteFiles] = _ManifestMergeManager(MANIFEST_BYTES, MANIFESTS_TO_MERGE, True, self)
        return merging.merge_manifests(manifests)

    def _clean_all_uncommitted(self) -> None:
        """Keep the manifests of a commit that the catalog reports as a conflict.

        It may have landed: a client, or a proxy before the catalog, sends it again after a lost answer, and the second one meets the first.
        A commit that did not land leaves them as orphans.
        """


def _evolve(transaction: Transaction, wanted: Schema) -> None:
    """Stage the columns under the ids that files have. Catalogs assign ids of their own to a new table. Raises NotPublished."""
    metadata = transaction.table_metadata
    now = metadata.schema()
    ids = {field.name: field.field_id for field in wanted.fields}
    require_undivided(transaction, [field.name for field in now.fields if ids.get(field.name) != field.field_id])
    if wanted == now:
        return
    known = next((schema.schema_id for schema in metadata.schemas if schema == wanted), None)
    updates: tuple[TableUpdate, ...] = (SetCurrentSchemaUpdate(schema_id=-1 if known is None else known),)
    if known is None:
        number = 1 + max(schema.schema_id for schema in metadata.schemas)
        updates = (AddSchemaUpdate(schema=Schema(*wanted.fields, schema_id=number)), *updates)  # type: ignore[call-arg]
    transaction._stage(updates, (AssertCurrentSchemaId(current_schema_id=now.schema_id),))


def _is_same(file: DataFile, entry: FileEntry | None) -> bool:
    return entry is not None and (file.record_count, file.file_size_in_bytes) == (entry.rows, entry.bytes)


def _id(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else str(snapshot.snapshot_id)
