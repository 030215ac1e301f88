"""Syncs in miniature of a table that is merged or replaced, around the real writer; and a reader that watches what a glob sees.

Records are numbers. A data file's content is the list of its records, so a row can be counted wherever it shows up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar

import msgspec
import pyarrow as pa

from destination_s3_spark.chain.blocks import Block, block_name, decode
from destination_s3_spark.chain.events import AddData, MergeData, ReplaceData, Void
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session, WriteDisposition
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.chain.territory import OrphanUploads, Table
from destination_s3_spark.delta_log.log import LOG_FOLDER
from destination_s3_spark.errors import Fenced, SyncError, TransientError
from destination_s3_spark.formats.file_statistics import UNBOUNDED, WrittenFile
from destination_s3_spark.schema.arrow import schema_to_text
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.commit.batch import TableCheckpoint
from destination_s3_spark.tables.commit.generation import kept_rows
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.landing.slices import Segment, StagedSlice
from destination_s3_spark.tables.publishers.publication import Publisher
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SymlinkManifest
from destination_s3_spark.tables.updates.inputs import replaced_by_pending
from unit_tests.chain.bucket import Bucket
from unit_tests.lake.memory_bucket import Crash

START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = Table(StreamId("sim", "t"), "t", "lake/airbyte_internal/t/", "lake/final/t/")
FINAL = TABLE.final_root + "f-"
SHOWN = SymlinkManifest("bucket")
RECORD_BYTES = 10
SCHEMA = {"schemaId": 0, "version": "1-0-0", "fields": [], "arrowSchema": schema_to_text(pa.schema([("id", pa.int64())]))}


@dataclass(frozen=True)
class Plan:
    """A sync: what it sends, a STATE after each group of records, and what it does to the rows the table has.

    `resumable`: an attempt goes on after the last STATE that went out; otherwise it begins anew. `bumps`: each attempt is a generation of
    its own. `deduplicated`: the whole table is merged, otherwise rows are added as they are. `compacts`: its files are joined afterwards.
    `partitions`: number of partitions that the rows fall into, 0 for a table without partitions.
    """

    sync_id: int
    generation: int
    disposition: WriteDisposition
    checkpoints: tuple[tuple[int, ...], ...]
    resumable: bool = True
    bumps: bool = False
    deduplicated: bool = True
    compacts: bool = False
    partitions: int = 0

    @property
    def records(self) -> Counter[int]:
        return Counter(number for records in self.checkpoints for number in records)


@dataclass
class Platform:
    """What Airbyte remembers between attempts: how many checkpoints' STATEs it got."""

    acked: int = 0


class WatchedBucket:
    """The bucket, and everything that must never be seen in it. `problems` says what was seen all the same."""

    publishers: ClassVar[tuple[Publisher, ...]] = (SHOWN,)

    def __init__(self, *, completes_again: bool = True) -> None:
        self.store = Bucket(completes_again=completes_again, watch=self._watch)
        self.visible: Counter[int] = Counter()
        self.problems: list[str] = []
        self.two_writers = False  # a paused one may leave scratch until a later sync that is not the first to end cleanly
        self._blocks: list[Block] = []

    def blocks(self) -> list[Block]:
        while (body := self.store.objects.get(TABLE.chain_prefix + block_name(len(self._blocks)))) is not None:
            self._blocks.append(decode(body))
        return self._blocks

    def shown(self) -> list[str]:
        lines = self.store.objects.get(TABLE.final_root + MANIFEST, b"").decode().split()
        return [line.removeprefix("s3://bucket/") for line in lines]

    def audit(self) -> None:
        """What is settled is done: files that left are gone, and those of a voided block too."""
        blocks = self.blocks()
        settled = max((block.settled or -1 for block in blocks), default=-1)
        voided = {block.event.voided_sequence_number for block in blocks if isinstance(block.event, Void)}
        for block in blocks[: settled + 1]:
            if isinstance(block.event, AddData | MergeData | ReplaceData):
                gone = block.event.files if block.sequence_number in voided else _removed(block)
                if any(file.key in self.store.objects for file in gone):
                    self.problems.append(f"block {block.sequence_number} is settled, and a file it removed is there")

    def check(self, expected: Counter[int]) -> None:
        """After a sync that succeeded: exactly the expected rows, in the chain and for a glob, and nothing left over."""
        self.store.hook = None
        chain, hinted = (Chain(self.store, TABLE) for _ in range(2))
        chain.catch_up()
        hinted.read()
        hinted.catch_up()
        live = chain.live_files()
        in_chain: Counter[int] = Counter()
        for file in live.of(FileKind.FINAL):
            rows = rows_in(self.store.objects[file.key])
            in_chain.update(rows)
            if not in_partition(rows, file.partition):
                self.problems.append("rows in another partition's file")
        apart = (
            TABLE.chain_prefix,
            TABLE.final_root + MANIFEST,
            TABLE.final_root + LOG_FOLDER,
            *([TABLE.scratch_prefix] if self.two_writers else []),
        )
        data = {key for key in self.store.objects if not key.startswith(apart)}
        wrong = {
            "rows in the chain": in_chain != expected,
            "rows of a glob": +self.visible != expected,
            "files that are left over": data != {file.key for file in live.files},
            "rows that still wait": bool(live.of(FileKind.DELTA) or live.dropped or live.pending),
            "uploads": bool(self.store.uploads),
            "not closed": not chain.head.closed,
            "the hint": (hinted.state, hinted.live_files().without_values()) != (chain.state, live),
            "the manifest": sorted(self.shown()) != sorted(file.key for file in live.of(FileKind.FINAL)),
            "counters": chain.head.contents.rows != sum(expected.values()),
        }
        self.problems += [f"wrong in the end: {what}" for what, is_wrong in wrong.items() if is_wrong]

    def _watch(self, key: str, body: bytes, change: int) -> None:
        if not key.startswith(FINAL):
            return
        for number in rows_in(body):
            self.visible[number] += change
        if change > 0 and not any(key in _keys(_added(block)) for block in reversed(self.blocks())):
            self.problems.append("rows of no block appeared")
        if change < 0:
            self._watch_removal(key)

    def _watch_removal(self, key: str) -> None:
        if key in self.shown():
            self.problems.append("a file went that readers of the manifest were still shown")
        blocks = self.blocks()
        voided = {block.event.voided_sequence_number for block in blocks if isinstance(block.event, Void)}
        by = [block for block in blocks if block.sequence_number not in voided and key in _keys(_removed(block))]
        if by:
            complete = all(file.key in self.store.objects for file in _added(by[-1]))
        else:
            complete = any(key in _keys(_added(blocks[number])) for number in voided)
        if not complete:
            self.problems.append("old rows went before the new ones were there")


def in_partition(rows: Sequence[int], partition: str | None) -> bool:
    if partition is None:
        return True
    rest, _, count = partition.partition("-of-")
    return all(number % int(count) == int(rest) for number in rows)


def rows_in(body: bytes) -> list[int]:
    return [int(number) for number in body.split(b",") if number]


def _added(block: Block) -> tuple[FileEntry, ...]:
    return block.event.files if isinstance(block.event, AddData | MergeData | ReplaceData) else ()


def _removed(block: Block) -> tuple[FileEntry, ...]:
    return block.event.files_removed if isinstance(block.event, MergeData | ReplaceData) else ()


def _keys(files: Iterable[FileEntry]) -> set[str]:
    return {file.key for file in files}


class Attempt:
    """One attempt of a sync, as a process would run it. `run` returns when it succeeded; a SyncError is a failed one, Crash a dead one."""

    def __init__(self, bucket: WatchedBucket, plan: Plan, platform: Platform) -> None:
        self._store = bucket.store
        publishers = bucket.publishers
        self._plan = plan
        self._platform = platform
        self._opened = False
        session = Session(plan.sync_id, plan.generation, START, plan.disposition)
        chain = Chain(self._store, TABLE, lambda: START)
        self.writer = TableWriter(chain, session, OrphanUploads(self._store, "lake/"), publishers=publishers)

    def run(self) -> None:
        try:
            self.writer.chain.read()
            self._land()
            self._update()
            if self._plan.compacts:
                self._compact()
            self.writer.close()
        except ObjectNotFound as gone:  # what a job reads has been merged by another writer
            self.writer.abandon()
            raise TransientError(str(gone)) from gone
        except SyncError:
            self.writer.abandon()
            raise

    def _land(self) -> None:
        end = 0
        for index, records in enumerate(self._plan.checkpoints):
            if index < self._platform.acked:
                continue
            start, end = end, end + RECORD_BYTES * len(records)
            self.writer.stage(self._landed(start, end, records))
            self.writer.commit([TableCheckpoint(end, f"state {index}")])
            self._platform.acked = index + 1

    def _landed(self, start: int, end: int, records: Sequence[int]) -> StagedSlice:
        state = self._open()
        waits = self._plan.deduplicated or state.contents.pending is not None
        rows = FileKind.DELTA if waits else FileKind.FINAL
        files = (self._stage(FileKind.RAW, records), *self._staged(rows, records))
        segment = Segment(end, len(records), sum(hash((number, 17)) for number in records) % 2**128)
        return StagedSlice(start, end, 0, files, (segment,))

    def _open(self) -> TableState:
        state = self.writer.open()
        self.writer.ensure_schema(SCHEMA)
        self._opened = True
        return state

    def _update(self) -> None:
        """What lies beside the table comes into it. A table without records is opened only when there is something to be done."""
        if not self._opened and self._plan.disposition is WriteDisposition.APPEND:
            state = self.writer.catch_up()
            if state is None or state.closed:
                return
        self._open()
        live = self.writer.live_files()
        deltas = [file for file in live.of(FileKind.DELTA) if live.is_pending(file) == (live.pending is not None)]
        if live.pending is None and not deltas and not live.dropped:
            return
        old = live.of(FileKind.FINAL) if self._plan.deduplicated and live.pending is None and deltas else ()
        scratch = f"{TABLE.scratch_prefix}{self.writer.next_token()}/0.parquet"
        self._store.put(scratch, b"sorted rows")
        kept = kept_rows(self.writer, self._plan.disposition)
        assert kept is not None
        lasting = () if self._plan.deduplicated else tuple(file for file in kept.files if file.kind is FileKind.FINAL)
        files = self._rewritten([*old, *(file for file in kept.files if file not in lasting), *deltas])
        if live.pending is not None:
            self.writer.replace(files, replaced_by_pending(live, kept, lasting), rows_kept=kept.rows)
        else:
            self.writer.merge(files, [*old, *deltas, *live.dropped], None)
        self.writer.store.delete([scratch])

    def _compact(self) -> None:
        """All landed files of each kind become one; in two blocks if there are enough."""
        self._open()
        live = self.writer.live_files()
        finals = [file for file in live.of(FileKind.FINAL) if file.offset is not None]
        if self._plan.partitions:
            alike: dict[tuple[str | None, int | None], list[FileEntry]] = {}
            for file in (*finals, *live.of(FileKind.RAW)):
                alike.setdefault((file.partition, file.generation_id), []).append(file)
            for group in alike.values():
                self._compact_into([group])
            return
        for group in (finals[:2], finals[2:]):
            if len(group) > 1:
                raw = [twin for twin in live.raw_twins(group).values() if twin is not None]
                assert len(raw) == len(group)
                self._compact_into([group, raw])

    def _compact_into(self, groups: Sequence[Sequence[FileEntry]]) -> None:
        """Join the files of each group in one block."""
        if len(groups[0]) < 2:
            return
        files: list[FileEntry] = []
        try:
            files.extend(self._joined(group) for group in groups)
        except SyncError:
            self.writer.drop(files)
            raise
        self.writer.compact(files, [file for group in groups for file in group])

    def _joined(self, group: Sequence[FileEntry]) -> FileEntry:
        numbers = [number for file in group for number in rows_in(self._store.get(file.key))]
        staged = self._stage(group[0].kind, numbers, group[0].partition)
        return msgspec.structs.replace(staged, offset=group[0].offset, schema_id=group[0].schema_id, generation_id=group[0].generation_id)

    def _rewritten(self, sources: Sequence[FileEntry]) -> list[FileEntry]:
        """New final files with the rows of these: two when deduplicated, as a merge cuts them; else one for each."""
        contents = [rows_in(self._store.get(file.key)) for file in sources]
        if self._plan.deduplicated:
            rows = sorted(number for content in contents for number in content)
            contents = [rows] if self._plan.partitions else [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        files: list[FileEntry] = []
        try:
            for content in filter(None, contents):
                files.extend(self._staged(FileKind.FINAL, content))
        except SyncError:
            self.writer.drop(files)
            raise
        return files

    def _staged(self, kind: FileKind, records: Sequence[int]) -> Iterator[FileEntry]:
        """Stage a file for each partition, or one for all records."""
        count = self._plan.partitions
        if not count:
            yield self._stage(kind, records)
            return
        for rest in sorted({number % count for number in records}):
            yield self._stage(kind, [number for number in records if number % count == rest], f"{rest}-of-{count}")

    def _stage(self, kind: FileKind, records: Sequence[int], partition: str | None = None) -> FileEntry:
        folder = FINAL if kind is FileKind.FINAL else f"{TABLE.folder}{kind.value}/f-"
        key = f"{folder}{'' if partition is None else f'part={partition}/'}{self.writer.next_token()}.parquet"
        body = b",".join(b"%d" % number for number in records)
        return FileEntry.staged(
            kind, self._store.stage(key, body), WrittenFile(len(records), statistics=UNBOUNDED), in_partition=partition is not None
        )


class Stuck(Exception):
    """Attempt after attempt fails although nothing is broken any more."""


def attempts(plan: Plan) -> Iterator[Plan]:
    """The plan of each attempt."""
    for number in range(30):
        yield replace(plan, generation=plan.generation + number) if plan.bumps else plan


def run_until_done(bucket: WatchedBucket, plan: Plan, platform: Platform | None = None) -> None:
    """Start attempts, as the platform does, until one succeeds."""
    platform = platform or Platform()
    for attempt in attempts(plan):
        if not plan.resumable:
            platform.acked = 0
        if run_once(bucket, attempt, platform):
            return
    raise Stuck


def run_once(bucket: WatchedBucket, plan: Plan, platform: Platform) -> bool:
    """One attempt; whether it succeeded."""
    bucket.store.restart()
    try:
        Attempt(bucket, plan, platform).run()
    except (Crash, TransientError, Fenced):
        return False
    finally:
        bucket.audit()
    return True
