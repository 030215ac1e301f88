"""Publisher of Delta tables: a Delta log beside the files, through which Delta readers see every change of a table atomically.

Each commit holds the difference between the log and the table's live files. It is computed from the log itself, or from the last mark if
that agrees with the live files of its time and with the log's newest commit. After a crash, a missed publication or a commit of another
program, the next publication therefore puts the log right.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid4, uuid5

import msgspec
import pyarrow as pa

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Clock, utc_now
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.format_options import ParquetFormat
from destination_s3_spark.delta_log.actions import (
    Action,
    Add,
    CommitInfo,
    Malformed,
    Metadata,
    Protocol,
    Remove,
    Transaction,
    decode_commit,
    delta_columns,
    encode_commit,
)
from destination_s3_spark.delta_log.log import KEPT, LOG_FOLDER, DeltaLog, UnreadableLog, VersionTaken, commit_hash
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.schema.partitioning import Partitioning
from destination_s3_spark.schema.schema_event import stored_from_event
from destination_s3_spark.schema.table_schema import stored_fields
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.table_paths import overlaps
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.publishers.delta_files import (
    add_actions,
    configuration,
    describes,
    is_described,
    partition_column,
    with_columns,
)
from destination_s3_spark.tables.publishers.publication import (
    DELTA_PUBLISHER,
    NotPublished,
    PublisherKind,
    ShownTable,
    TimeOf,
    overlap_error,
    recorded_schema,
    require_current_types,
    require_parquet,
)
from destination_s3_spark.tables.rules import WAITING_PROPERTIES, MergeRule, waiting_properties

COMMIT_TRIES = 8
"""Most attempts to commit while other writers commit at the same time."""
CHECKPOINT_EVERY = 10
"""Commits between two checkpoints, Delta's default."""
CLEAN_UP_EVERY = 100
"""Commits between two clean-ups of the log."""
MARK_TRUSTED = KEPT / 2
"""Age up to which a mark is trusted. The commits after an older one may have been cleaned up, so that their versions are free again."""

WRITER_FEATURE = "destinationS3Spark"
"""A writer feature that no other program has. It keeps foreign writers and VACUUM out. Readers need not know it."""
PROTOCOL = Protocol(1, 7, writer_features=["appendOnly", "invariants", WRITER_FEATURE])
CONFIGURATION = {"delta.deletedFileRetentionDuration": "interval 36500 days"}
"""Table properties. With this retention VACUUM has nothing to delete, even in a program that does not look at writer features."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9\-_./=+,@]+")
"""Paths that every reader finds. `path` is percent-encoded in the log, and Polars encodes it once more."""

logger = logging.getLogger("airbyte")


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    """What the log's newest version holds: enough to write the next one without reading the log.

    `commit`: hash of the commit's bytes. `seen`: a time at which it was the newest one. `block` and `time`: the chain's newest block that
    it shows, and that block's time. `files` and `columns`: digests of the paths and of the metadata without `waiting`, the properties about
    waiting rows. `checkpoint`: version of the newest checkpoint. Times are in milliseconds.
    """

    version: int
    commit: str
    seen: int
    block: int
    time: int
    files: str
    columns: str
    waiting: dict[str, str]
    checkpoint: int | None

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class _Target:
    """The table to publish. `files`: its data files by their paths below the root. `block` and `time`: as in `_Mark`."""

    block: int
    time: int
    last_data: int
    metadata: Metadata
    columns: pa.Schema
    left_out: tuple[str, ...]
    files: Mapping[str, FileEntry]
    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True)
class _Base:
    """The log's newest version, on which a commit builds. `adds`: the actions of its files, as far as they are known."""

    mark: _Mark
    paths: Set[str] = frozenset()
    adds: Mapping[str, Add] = field(default_factory=dict)

    def is_newer_than(self, target: _Target, time_of: TimeOf | None) -> bool:
        """Return whether the log shows a later block. Another chain's block may have a higher number, but it is older."""
        block, time = self.mark.block, self.mark.time
        if block < target.block or time < target.time or (block, time) == (target.block, target.time):
            return False
        return time_of is None or ((found := time_of(block)) is not None and time == _millis(found))

    def shows(self, target: _Target) -> bool:
        """Return whether a commit would change nothing, and the log covers the table's last data."""
        same = self.paths == target.files.keys() and not self.missing(target) and self.mark.columns == _columns(target.metadata)
        same = same and self.mark.waiting == _waiting(target.metadata)
        return same and self.mark.block >= target.last_data

    def missing(self, target: _Target) -> list[str]:
        """Return the paths that a commit adds, in order. A file of another size is one of an earlier table in the same folder."""
        other = {path for path, add in self.adds.items() if path in target.files and not describes(add, target.files[path])}
        return sorted((target.files.keys() - self.paths) | other)


@dataclass(frozen=True, slots=True)
class DeltaTable:
    clock: Clock = utc_now
    merge_rule: MergeRule | None = None
    time_of: TimeOf | None = None

    name: ClassVar[str] = DELTA_PUBLISHER

    def asking(self, time_of: TimeOf) -> DeltaTable:
        return replace(self, time_of=time_of)

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        """Commit the difference between the log and the table, unless the log shows a later block. Raises NotPublished or TransientError.

        Takes one GET and one PUT if the last mark is right. A table without columns is not published yet.
        """
        if state.schema is None:
            return "" if last is None else last.mark
        self.require_fitting(store, state, live)
        target, log = self._target(state, live), DeltaLog(store, state.identity.final_root)
        base = self._marked(last, state)
        if base is not None and base.mark.columns != _columns(target.metadata):
            base = None  # the statistics of all files change
        if base is not None and (base.mark.block, base.mark.time) == (target.block, target.time) and base.shows(target):
            return base.mark.text  # this session has just published the same block
        # Whether a later version exists is told by the attempt to create it, unless the store would overwrite that.
        has_mark = log.is_newest if base is not None and (base.shows(target) or store.may_overwrite) else log.holds
        if base is not None and not has_mark(base.mark.version, base.mark.commit):
            base = None
        try:
            for _ in range(COMMIT_TRIES):
                base = base or self._folded(log, state)
                if base.is_newer_than(target, self.time_of) or base.shows(target):
                    return base.mark.text
                try:
                    return self._commit(log, store, state, target, base)
                except VersionTaken:
                    base = None
        except UnreadableLog as error:
            raise _damaged(state, str(error)) from None
        raise TransientError(
            f"Others committed to the Delta log of table {state.identity.stream} {COMMIT_TRIES} times while this sync tried to. Nothing is "
            "lost: run the sync again, and only one at a time.",
            stream=state.identity.stream,
        )

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        """Return the number of the block that the newest commit shows. Takes one LIST and one GET.

        A newest commit of another program counts as none, so that the next publication puts the log right.
        """
        try:
            body = DeltaLog(store, state.identity.final_root).newest_commit()
            actions = () if body is None else tuple(decode_commit(body))
        except (UnreadableLog, Malformed):
            return None
        of_table = (action for action in actions if isinstance(action, Transaction) and action.app_id == state.identity.table_id)
        return next((action.version for action in of_table), None)

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:  # noqa: ARG002
        """Raise NotPublished if Delta readers could not read the files, or not as the chain's readers do."""
        root = state.identity.final_root
        require_parquet((file.key for file in _published_files(live)), "Delta readers")
        for file in _published_files(live):
            if not file.key.startswith(root) or not _PLAIN_PATH.fullmatch(file.key.removeprefix(root)):
                raise NotPublished(
                    f"the key '{file.key}' has characters that not every Delta reader finds. Change file_name_pattern, s3_path_format or "
                    "tables.partition_by so that keys consist of ASCII letters, digits and - _ . / = + , @, then refresh the stream."
                )
        if state.schema is not None:
            require_current_types(state, live)

    def _target(self, state: TableState, live: LiveFiles) -> _Target:
        root, identity = state.identity.final_root, state.identity
        stored, schema = stored_from_event(state.schema or {}), recorded_schema(state)
        partitioning = schema.partitioning
        partition = None if partitioning is None else partition_column(partitioning)
        columns = delta_columns(stored_fields(schema), partition)
        table_id = str(uuid5(NAMESPACE_URL, f"{identity.final_root}#{identity.table_id}"))
        files = {file.key.removeprefix(root): file for file in _published_files(live)}
        properties = CONFIGURATION | configuration(columns, files.values()) | waiting_properties(state.contents, self.merge_rule)
        metadata = Metadata(table_id, columns.schema_string, [] if partition is None else [partition[0]], properties)
        time, last_data = _millis(state.system_time), state.last_data or 0
        return _Target(state.sequence_number, time, last_data, metadata, stored, columns.left_out, files, partitioning)

    def _marked(self, last: PublishedMark | None, state: TableState) -> _Base | None:
        """Return the version that the mark describes, or None if the mark is too old or the live files of its time are not known."""
        if last is None or not last.mark or last.live is None:
            return None
        try:
            mark = msgspec.json.decode(last.mark, type=_Mark)
        except (msgspec.DecodeError, RecursionError):  # of another version of the connector, or damaged
            return None
        paths = {file.key.removeprefix(state.identity.final_root) for file in _published_files(last.live)}
        if mark.files != _digest(paths) or mark.seen < _millis(self.clock() - MARK_TRUSTED):
            return None
        return _Base(mark, paths)

    def _folded(self, log: DeltaLog, state: TableState) -> _Base:
        """Return the newest version by reading the log. Raises UnreadableLog. Raises NotPublished if the log is not the table's."""
        found = log.read()
        if found is None:
            return _Base(_Mark(-1, "", 0, -1, -1, _digest(()), "", {}, None))
        txn = found.transactions.get(state.identity.table_id)
        if txn is None:
            raise NotPublished(
                f"'{log.prefix}' holds the Delta log of another table or program, which is never overwritten. Choose another path for the "
                "stream, or remove that log."
            )
        if any(add.deletion_vector is not None for add in found.adds.values()):
            raise _damaged(state, "another program marked rows as deleted in it")
        adds = found.adds
        columns, waiting = _columns(found.metadata, found.protocol), _waiting(found.metadata)
        seen, files = _millis(self.clock()), _digest(adds)
        mark = _Mark(found.version, found.commit, seen, txn.version, txn.last_updated, files, columns, waiting, found.checkpoint)
        return _Base(mark, adds.keys(), adds)

    def _commit(self, log: DeltaLog, store: ObjectStore, state: TableState, target: _Target, base: _Base) -> str:
        """Create the next version and return its mark. Raises VersionTaken."""
        now, version = self.clock(), base.mark.version + 1
        new = {path: target.files[path] for path in base.missing(target)}
        adds = add_actions(store, new, target.columns, target.time, target.partitioning)
        gone = base.paths - target.files.keys()
        data_change = not _is_compaction(state, new.keys(), gone)
        if not data_change:
            adds = {path: msgspec.structs.replace(add, data_change=False) for path, add in adds.items()}
        removed = [Remove(path, data_change, _millis(now)) for path in sorted(gone)]
        columns, waiting = _columns(target.metadata), _waiting(target.metadata)
        header: list[Action] = [
            CommitInfo(_millis(now), "WRITE", {"mode": "Overwrite" if removed else "Append"}, "destination-s3-spark", str(uuid4()))
        ]
        if columns != base.mark.columns:
            header += [PROTOCOL, target.metadata]
            adds |= with_columns((add for path, add in base.adds.items() if path in target.files and path not in new), target.columns)
            _warn_of_columns_left_out(state, target.left_out)
        elif waiting != base.mark.waiting:
            header.append(target.metadata)
        txn = Transaction(state.identity.table_id, target.block, target.time)
        body = encode_commit([*header, txn, *removed, *adds.values()])
        log.create(version, body)

        checkpoint = base.mark.checkpoint
        # A checkpoint also keeps what takes effort to find out: facts from footers, and statistics with a later schema's columns.
        costly = (version > 0 and columns != base.mark.columns) or not all(map(is_described, new.values()))
        if version - (checkpoint or 0) >= CHECKPOINT_EVERY or costly:
            earlier = base.adds or _adds_of_checkpoint(log, checkpoint)
            known = {path: add for path, add in earlier.items() if path in target.files and describes(add, target.files[path])} | adds
            unknown = {path: file for path, file in target.files.items() if path not in known}
            known |= add_actions(store, unknown, target.columns, target.time, target.partitioning)
            log.write_checkpoint(version, [txn, *(known[path] for path in sorted(known)), target.metadata, PROTOCOL])
            if version // CLEAN_UP_EVERY > (checkpoint or 0) // CLEAN_UP_EVERY:
                log.clean_up(now)
            checkpoint = version
        files = _digest(target.files)
        return _Mark(version, commit_hash(body), _millis(now), target.block, target.time, files, columns, waiting, checkpoint).text


def _of_tables(config: Config, tables: Sequence[ShownTable]) -> dict[ShownTable, DeltaTable]:
    """Make a publisher for each table that has a folder of its own, if the option is on and the format is Parquet."""
    if not (config.publish.delta and isinstance(config.format, ParquetFormat)):
        return {}
    return {table: DeltaTable(merge_rule=table.merge_rule) for table in tables if table.neighbour is None}


def _require_publishable(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> None:
    """Raise ConfigError if the option is on and the format is not Parquet, or folders overlap."""
    if not config.publish.delta:
        return
    if not isinstance(config.format, ParquetFormat):
        raise ConfigError(
            f"publish.delta is on, but the format is {config.format.format_type}, and a Delta table consists of Parquet files. Choose "
            "Parquet, or switch publish.delta off."
        )
    shared = overlaps(roots, template)
    if shared:
        raise overlap_error("publish.delta", "Delta table", shared)


def _is_compaction(state: TableState, added: Set[str], gone: Set[str]) -> bool:
    """Return whether a commit only moves rows to other files: its difference is exactly that of a compaction, the chain's last block."""
    block = state.unsettled
    if block is None or block.data_change or block.voided:
        return False
    root = state.identity.final_root
    made = {file.key.removeprefix(root) for file in block.files if file.kind is FileKind.FINAL}
    replaced = {key.removeprefix(root) for key in block.removed or () if key.startswith(root)}
    return added == made and gone == replaced


def _published_files(live: LiveFiles) -> Iterable[FileEntry]:
    """Yield the files of the final table as readers see it. Of adopted files only the key is known."""
    yield from (FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted)
    yield from live.settled(FileKind.FINAL)


def _adds_of_checkpoint(log: DeltaLog, version: int | None) -> dict[str, Add]:
    """Return the files of a checkpoint. A path is never reused in a chain, so they still hold for every file that is live."""
    actions = None if version is None else log.checkpoint(version)
    return {action.path: action for action in actions or () if isinstance(action, Add)}


def _columns(metadata: Metadata | None, protocol: Protocol | None = PROTOCOL) -> str:
    """Return the digest of the metadata without the properties about waiting rows, on which no statistics depend."""
    if metadata is not None:
        lasting = {name: value for name, value in metadata.configuration.items() if name not in WAITING_PROPERTIES}
        metadata = msgspec.structs.replace(metadata, configuration=lasting)
    return _digest([repr(protocol), repr(metadata)])


def _waiting(metadata: Metadata | None) -> dict[str, str]:
    properties = {} if metadata is None else metadata.configuration
    return {name: value for name, value in properties.items() if name in WAITING_PROPERTIES}


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _damaged(state: TableState, what: str) -> NotPublished:
    return NotPublished(
        f"the Delta log under '{state.identity.final_root}{LOG_FOLDER}' cannot be continued: {what}. Only this connector may write there. "
        "Remove that folder; the next sync or `repair` writes it again."
    )


def _warn_of_columns_left_out(state: TableState, left_out: Iterable[str]) -> None:
    names = ", ".join(left_out)
    if names:
        logger.warning(
            "table %s: Delta has no type for a time of day, so its readers do not see %s. With time_encoding int64 they see microseconds.",
            state.identity.stream,
            names,
        )


DELTA = PublisherKind(_of_tables, _require_publishable)
