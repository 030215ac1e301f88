"""Writer of one table: it takes staged slices, commits whole checkpoints and drops replays.

A writer belongs to one sync. It reads the table's chain at the start, opens it at the first record, and closes it at the end. After an
error it accepts only `abandon()`. The chain then tells what was committed, and the next sync continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from destination_s3_spark.chain.blocks import as_recorded
from destination_s3_spark.chain.events import (
    AddData,
    BarKeys,
    ChangedValues,
    Close,
    Event,
    MergeData,
    OffsetInterval,
    ReplaceData,
    Seed,
    SetDataSchema,
)
from destination_s3_spark.chain.files import FileEntry, FileKind, HistoryMark, OperationCount, Token
from destination_s3_spark.chain.live_files import LiveFiles, day
from destination_s3_spark.chain.log import BlockTaken, Chain
from destination_s3_spark.chain.opening import Precedence, Session, dead_scratch, fenced, new_generation, open_table, take_snapshot_when_due
from destination_s3_spark.chain.settle import MapCalls, complete, confirm_removal, finish, sweep, take_back, taken_back
from destination_s3_spark.chain.state import Landed, ReplayGuard, TableState
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import Bug, DataError, Fenced, SyncError, TransientError
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore, StagedUpload
from destination_s3_spark.tables.commit.batch import Batch, CommitResult, ForgottenRows, SnapshotWatch, TableCheckpoint, Written, flaw_of
from destination_s3_spark.tables.landing.slices import StagedSlice
from destination_s3_spark.tables.publishers.publication import Publisher, begin_anew, show, show_checked, show_if_behind, show_newest

logger = logging.getLogger(__name__)


class TableWriter:
    """Writer of one table during one sync. Only one thread at a time may use it. Writers of different tables may run in parallel.

    `chain` is there to be read; whatever is appended to it goes through the writer. `map_files` may make calls in parallel. `publishers`
    show the table to readers outside the chain. `keep_replaced`: how long replaced final files stay for queries that were planned before.
    """

    def __init__(
        self,
        chain: Chain,
        session: Session,
        orphans: OrphanUploads,
        *,
        map_files: MapCalls = map,
        publishers: Sequence[Publisher] = (),
        precedence: Precedence | None = None,
        keep_replaced: timedelta = timedelta(),
    ) -> None:
        self._stream = chain.table.stream
        self._session = session
        self._orphans = orphans
        self._keep_replaced, self._precedence = keep_replaced, precedence
        self.map_files, self.publishers = map_files, publishers
        self.chain = chain
        self.store = TableStore(chain.bucket, chain)
        self._guard = ReplayGuard(())
        self._staged: list[StagedSlice] = []
        self._snapshots = SnapshotWatch(session.started_at)
        self._staged_end = self._committed_end = self._files_named = self._barred = 0
        self.is_open = self._over = False
        self.written = Written()  # by this session
        self._show_checked = partial(show_checked, self.publishers, self.store)
        self.ended_cleanly = False  # whether the session before this one closed the table; known once the table is open
        self.first_of_day = False  # whether no other session wrote to the table on the UTC day of this one

    @property
    def state(self) -> TableState | None:
        """The table as last read or written. None means that nothing is known yet, but the table may exist."""
        return self.chain.state

    @property
    def guarding(self) -> bool:
        """Whether slices must be cut at every checkpoint boundary, so that replays consist of whole slices. The table must be open."""
        self._need_open()
        return self._guard.active

    @property
    def cut_ends(self) -> frozenset[int]:
        """The spool offsets at which a commit may end: the ends of staged slices, so that no slice is split."""
        return frozenset(staged.end for staged in self._staged)

    def measured(self, rate: float) -> None:
        """Take the rate of another merge, in bytes per second and core, into account, for this session and for the hint."""
        known = self.chain.merge_rate
        self.chain.merge_rate = rate if known is None else (known + rate) / 2

    def catch_up(self) -> TableState | None:
        """Read to the head of the chain. If a dead session left the table unsettled, open it to make its rows visible."""
        with self._ending_on_error():
            if not self.is_open:
                self.chain.catch_up()
                if self.chain.state is not None and self.chain.state.unsettled is not None:
                    self._open()
        return self.chain.state

    def open(self) -> TableState:
        """Open the table for writing and fence every older writer. Opening again has no cost. Raises Fenced or TransientError."""
        with self._ending_on_error():
            self._open()
        return self.chain.head

    def begin_generation(self) -> None:
        """Let the session's generation begin, after one that was complete before it has been published. Raises Fenced or TransientError."""
        self._need_open()
        with self._ending_on_error():
            event = new_generation(self.chain.head, self._session)
            if event is not None:
                self._append(event)
                self._guard = ReplayGuard(self.chain.head.replay)

    def ensure_schema(self, payload: dict[str, Any]) -> None:
        """Make `payload` (with `schemaId`) the schema of subsequent data. Writes a block only if it differs from the current schema."""
        with self._ending_on_error():
            self._open()
            schema = as_recorded(payload)
            if schema == self.chain.head.schema:
                return
            if self._staged:
                raise self._bug(f"schema {schema['schemaId']} was set while slices of schema {self.chain.head.schema_id} are not committed")
            self._append(SetDataSchema(schema))

    def next_token(self) -> str:
        """Return 26 digits that no other data file ever has in its key. The table must be open."""
        self._need_open()
        self._files_named += 1
        return str(Token(self.chain.head.identity.table_number, self.chain.head.epoch, self._files_named))

    def stage(self, staged: StagedSlice) -> None:
        """Take over a landed slice. Slices must arrive in spool order without gaps, and their files must hold each record once."""
        self._need_open()
        if flaw := flaw_of(staged, self._staged_end, self.chain.head.schema_id):
            raise self._bug(flaw)
        self._staged.append(staged)
        self._snapshots.add(staged)
        self._staged_end = staged.end

    def commit(self, checkpoints: Sequence[TableCheckpoint]) -> CommitResult:
        """Commit the staged slices up to the end of the last checkpoint. On return their rows are durable and visible.

        Raises Fenced, or TransientError when nothing was committed or the outcome is unknown. The STATEs must then not be emitted.
        """
        self._need_open()
        with self._ending_on_error():
            batch = self._take(checkpoints)
            replayed = batch.split_replayed(self._guard)
            self.drop(file for staged in replayed.slices for file in staged.files)
            rest = batch.after(replayed)
            self._barred += rest.barred
            if not rest.checkpoints:
                return self._committed(CommitResult(None, 0, 0, 0, replayed.records, barred=batch.barred))
            files = tuple(file for staged in rest.slices for file in staged.files)
            self._append_data(rest, files)
            number = self.chain.head.sequence_number
            self._settle(files)
            size = sum(file.bytes for file in files)
            changed = rest.changed_values()
            return self._committed(CommitResult(number, rest.records, len(files), size, replayed.records, changed, batch.barred))

    def merge(
        self,
        files: Sequence[FileEntry],
        removed: Sequence[FileEntry],
        consumed_offset: int | None,
        operation_count: OperationCount | None = None,
        history: HistoryMark | None = None,
    ) -> CommitResult:
        """Bring the rows of deltas into the final table: one block adds the staged files and removes the others.

        `operation_count` is the position of the change log after the log files among the staged ones. None ends an existing log, and no
        `history` ends an existing history.
        """
        event = partial(MergeData, consumed_offset=consumed_offset, operation_count=operation_count, history=history)
        return self._rewrite(files, removed, event)

    def publish(self) -> None:
        """Show the table to readers outside of the chain. Raises Fenced or TransientError."""
        with self._ending_on_error(), self._fencing():
            self._show_checked(self.chain)

    def compact(self, files: Sequence[FileEntry], removed: Sequence[FileEntry]) -> CommitResult:
        """Replace files of the table by others with the same rows. Its change log and its history, if there are any, go on."""
        kept = self.chain.head.contents
        event = partial(MergeData, consumed_offset=None, operation_count=kept.operation_count, history=kept.history, data_change=False)
        return self._rewrite(files, removed, event)

    def forget(self, files: Sequence[FileEntry], removed: Sequence[FileEntry], rows: ForgottenRows) -> CommitResult:
        """Replace files of the table by others without these rows. The old ones do not stay."""
        event = partial(
            MergeData,
            consumed_offset=None,
            operation_count=self.chain.head.contents.operation_count,
            history=self.chain.head.contents.history,
            rows_forgotten=rows.landed,
            earlier_rows_forgotten=rows.earlier,
            pending_rows_forgotten=rows.pending,
        )
        return self._rewrite(files, removed, event, keeps=False)

    def taken_over(self) -> frozenset[str]:
        """Return the keys of the files of destination-s3 that the table ever had (one request)."""
        (seed,) = self.chain.blocks([0])
        return frozenset(seed.event.adopted if isinstance(seed.event, Seed) else ())

    def bar(self, event: BarKeys) -> None:
        """Let no record with these keys land any more."""
        with self._ending_on_error():
            self._append(event)

    def begin_publications_anew(self) -> None:
        """Withdraw the publications whose metadata has values of rows that are gone. `close` makes those again that are wanted."""
        with self._ending_on_error():
            begin_anew(self.publishers, self.store, self.chain, self.check_not_fenced)

    def replace(
        self,
        files: Sequence[FileEntry],
        removed: Sequence[FileEntry],
        operation_count: OperationCount | None = None,
        rows_kept: int = 0,
        history: HistoryMark | None = None,
        rows_lacked: int = 0,
    ) -> CommitResult:
        """Publish the session's generation. The final table then consists of the staged files and the live files not removed.

        `operation_count` and `history` are as in `merge`. `rows_kept` counts rows of the generation that were in the table before it was
        pending. `rows_lacked` counts rows of earlier generations that stay, marked as deleted.
        """
        event = partial(ReplaceData, operation_count=operation_count, rows_kept=rows_kept, history=history, rows_lacked=rows_lacked)
        return self._rewrite(files, removed, event)

    def close(self, orphans: OrphanUploads | None = None, *, holds_back: bool = False, keeps_replaced: bool = True) -> None:
        """End the session after a successful sync. Its checkpoints no longer count as replays.

        Pass `orphans`, listed after the last land, if a task attempt failed: only that list knows the uploads of failed attempts. A table
        with replaced files to delete is opened even without records. So is one that an earlier session left unclosed: otherwise a later
        sync with equal records would be taken for a replay. A table that stays unopened is published if behind. `holds_back`: as in
        Close. `keeps_replaced`: whether replaced files that need not go yet stay.
        """
        with self._ending_on_error():
            if not self.is_open:
                self.chain.catch_up()
                if self.chain.state is not None and (not self.chain.state.closed or self.chain.state.contents.expired(self.chain.now())):
                    self._open()
                elif self.chain.state is not None:
                    show_if_behind(self.publishers, self.store, self.chain)
            if self.is_open:
                self.drop(file for staged in self._staged for file in staged.files)
                self._staged = []
                if orphans is not None:
                    orphans.abort(self.chain.territory, self.chain.head.epoch + 1)
                with self._fencing():
                    take_snapshot_when_due(self.chain)
                show(self.publishers, self.store, self.chain)
                contents = self.chain.head.contents
                completes = contents.pending is not None and not (holds_back or self._session.maintains)
                landed = Landed(self._session.started_at, contents.next_offset) if completes else None
                swept = sweep(self.chain, self.store, all_of_them=not keeps_replaced)
                self._append(Close(swept, holds_back, completes, landed, self._barred, self._session.truncates and not contents.pending))
                self.chain.write_hint()
        self._over = True

    def abandon(self) -> bool:
        """End the session after a failed sync: abort staged uploads that are in no block. The replay list stays valid. Raises no SyncError.

        Return False if the store does not answer soon. The next sync then aborts the uploads.
        """
        self._over = True
        try:
            if self._staged:
                self.drop((file for staged in self._staged for file in staged.files), self.store.hasty())
        except SyncError as error:
            logger.warning("table %s: staged uploads are left for the next sync to drop: %s", self._stream, error)
            return False
        return True

    def clear_up(self, orphans: OrphanUploads) -> None:
        """Drop what this session has left in the bucket if it was fenced: uploads that no block names, and scratch objects.

        The session that took over dropped only what was there when it began. `orphans` must have been made later. Raises no SyncError.
        """
        state = self.chain.state
        if not self.is_open or state is None or state.unsettled is not None:  # a block that the other session settles names the uploads
            return
        try:
            other = self.chain.successor()
            if other is not None and other.epoch != state.epoch:  # otherwise a block of this session may name the uploads
                orphans.abort(self.chain.territory, state.epoch + 1)
                self.store.delete(dead_scratch(self.store, self.chain, state.epoch + 1))
        except SyncError as error:
            logger.warning("table %s: staged uploads are left for `repair` to drop: %s", self._stream, error)

    def live_files(self) -> LiveFiles:
        """Return the files of the table (one request per block since the last Snapshot, unless the hint had them)."""
        return self.chain.live_files()

    def copy(self, file: FileEntry, key: str, metadata: Mapping[str, str]) -> StagedUpload:
        """Stage a copy of a live file, made inside the store. Raises Fenced or DataError if the file is gone."""
        try:
            return self.store.stage_copy(file.key, key, metadata)
        except ObjectNotFound:
            self.check_not_fenced()
            raise DataError(
                f"Table {self._stream}: the file '{file.key}' is gone. Only this connector may delete there. Restore it from a "
                "backup or an older version, or run a refresh that removes the records.",
                stream=self._stream,
            ) from None

    def check_not_fenced(self) -> None:
        """Raise Fenced if another writer has taken the table over, which explains missing files."""
        other = self.chain.successor()
        if other is not None:
            raise fenced(self._stream, other)

    def drop(self, files: Iterable[FileEntry], store: ObjectStore | None = None) -> None:
        """Abort staged files that no block names. `store`: by default that of the table. Raises TransientError."""
        store = store or self.store
        list(self.map_files(lambda file: store.abort_upload(file.key, file.upload_id or ""), list(files)))

    def _open(self) -> None:
        if self.is_open:
            return
        before = self.chain.state
        left = open_table(self.chain, self.store, self._session, self._orphans, self._show_checked, self._precedence)
        self._guard, self.is_open, self.ended_cleanly = ReplayGuard(self.chain.head.replay), True, left.ended_cleanly
        self.first_of_day = before is not None and day(before.system_time) < day(self.chain.head.system_time)

    def _rewrite(
        self, staged: Sequence[FileEntry], removed: Sequence[FileEntry], event: Callable[..., Event], *, keeps: bool = True
    ) -> CommitResult:
        self._need_open()
        with self._ending_on_error():
            files = tuple(map(self._written_out, staged))
            confirm_removal(self.chain, removed, files)
            try:
                self._append(
                    event(
                        schema_id=self.chain.head.schema_id,
                        sync_id=self._session.sync_id,
                        generation_id=self._session.generation_id,
                        files=files,
                        files_removed=tuple(removed),
                        keep_until=self.chain.now() + self._keep_replaced if keeps and self._keep_replaced else None,
                    )
                )
            except Fenced:
                with suppress(TransientError):  # no block names these uploads; the writer that opened the table aborts the rest
                    self.drop(staged)
                raise
            number = self.chain.head.sequence_number
            self._settle(files)
            rows = sum(file.rows for file in files if file.kind is FileKind.FINAL)
            result = CommitResult(number, rows, len(files), sum(file.bytes for file in files), 0)
            self.written = self.written.after_rewrite(result)
            return result

    def _committed(self, result: CommitResult) -> CommitResult:
        self.written = self.written.after_commit(result)
        return result

    def _written_out(self, file: FileEntry) -> FileEntry:
        """Complete the entry with the session's schema and generation, unless the file was copied or rewritten and has its own."""
        schema_id = self.chain.head.schema_id if file.schema_id is None else file.schema_id
        generation = self._session.generation_id if file.generation_id is None else file.generation_id
        return msgspec.structs.replace(file, schema_id=schema_id, generation_id=generation)

    def _take(self, checkpoints: Sequence[TableCheckpoint]) -> Batch:
        """Take the batch that the checkpoints cover. Its slices must not be aborted any more, because a block may soon name them."""
        end = checkpoints[-1].end
        if end not in self.cut_ends:
            raise self._bug(f"a commit at byte {end} of the spool would cut a staged slice in two")
        count = sum(staged.end <= end for staged in self._staged)
        taken, self._staged = self._staged[:count], self._staged[count:]
        batch = Batch.cut(taken, checkpoints, self._session, self._committed_end)
        self._committed_end = end
        return batch

    def _append_data(self, batch: Batch, files: tuple[FileEntry, ...]) -> None:
        start = self.chain.head.contents.next_offset
        event = AddData(
            schema_id=self.chain.head.schema_id or 0,
            sync_id=self._session.sync_id,
            generation_id=self._session.generation_id,
            prev_offset=start - 1 if start else None,
            offset_interval=OffsetInterval(start, start + batch.records - 1),
            files=files,
            checkpoints=batch.recorded(),
            changed_values=tuple(ChangedValues(*changed, values) for changed, values in batch.changed_values().items()),
            records_barred=self._barred,
            snapshot_from=self._snapshots.begun_in(batch),
        )
        try:
            self._append(event)
            self._barred = 0
        except Fenced:
            # Another writer's block has this number, so no block names these uploads and `abandon` may abort them.
            self._staged = [*batch.slices, *self._staged]
            raise

    def _settle(self, files: Sequence[FileEntry]) -> None:
        with self._fencing():
            if not complete(self.store, files, self.map_files):
                # An upload is gone. A newer writer may have aborted it. If there is none, the block is taken back.
                self.check_not_fenced()
                number = self.chain.head.sequence_number
                if take_back(self.chain, self.store):
                    raise taken_back(self._stream, number)
            finish(self.chain, self.store, self._show_checked)

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        """Raise Fenced if another writer turns out to have taken the table over."""
        try:
            yield
        except BlockTaken as taken:
            raise fenced(self._stream, taken.block) from None

    def _append(self, event: Event) -> None:
        try:
            self.chain.append(event)
        except BlockTaken as taken:
            if isinstance(event, Close):  # `close` has just published a state that may be older than the other writer's
                show_newest(self.publishers, self.store, self.chain)
            raise fenced(self._stream, taken.block) from None

    def _need_open(self) -> None:
        if self._over or not self.is_open:
            raise self._bug("written to while it is not open")

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        """End the session on an error. The state of the store is then unknown, so no block may follow, not even Close."""
        if self._over:
            raise self._bug("used after its session ended")
        try:
            yield
        except BaseException:
            self._over = True
            raise

    def _bug(self, what: str) -> Bug:
        return Bug(f"Table {self._stream}: {what}.", stream=self._stream)
