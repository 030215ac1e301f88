"""Live files of a table: a second fold of the chain, kept beside the state where it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData, Close, MergeData, OpenEpoch, ReplaceData, Seed, Snapshot, Void
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.state import Contents, Pending

_DATED = frozenset({FileKind.RAW, FileKind.CLOSED})
"""Kinds of files that the user may want to be deleted after a number of days."""
_APART = frozenset({FileKind.CHANGES, FileKind.ADOPTED})
"""Kinds of files that a block may add and that are not among `LiveFiles.files`."""


class LiveFiles(Struct, frozen=True):
    """The live files of a table in the order they were added, and the keys of the destination-s3 files it adopted.

    `dropped`: files of a generation that was given up before it was published. None of their rows counts, and the next MergeData or
    ReplaceData removes them. `pending`: as in `Contents`.
    """

    adopted: tuple[str, ...] = ()
    files: tuple[FileEntry, ...] = ()
    dropped: tuple[FileEntry, ...] = ()
    pending: Pending | None = None

    def of(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        """Return the live files of these kinds, including those of a pending generation."""
        return tuple(file for file in self.files if file.kind in kinds)

    def settled(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        """Return the live files of these kinds without those of a pending generation."""
        return tuple(file for file in self.of(*kinds) if not self.is_pending(file))

    def landing(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        """Return the live files of these kinds of the pending generation, or all of them if none is pending."""
        return tuple(file for file in self.of(*kinds) if self.is_pending(file) == (self.pending is not None))

    def is_pending(self, file: FileEntry) -> bool:
        return self.pending is not None and file.offset is not None and file.offset >= self.pending.from_offset

    def of_generation(self, contents: Contents) -> tuple[FileEntry, ...]:
        """Return the files that landed in the table under its current generation. They exclude rows that a merge combined with others."""
        own = (file for file in self.files if file.generation_id == contents.generation and not self.is_pending(file))
        return tuple(file for file in own if file.offset is not None and file.offset >= contents.current_from)

    def raw_twins(self, files: Sequence[FileEntry]) -> dict[str, FileEntry | None]:
        """Return, by the key of each file, the raw file with exactly its rows in the same order, or None if there is none.

        A file of a partition and a combined run have none, because their offsets do not tell which rows they have.
        """
        raw: dict[tuple[int | None, int], FileEntry] = {}
        for twin in self.of(FileKind.RAW):
            raw.setdefault((twin.offset, twin.rows), twin)
        placed = {file.key for file in files if file.offset is not None and not (file.in_partition or file.combined)}
        return {file.key: raw.get((file.offset, file.rows)) if file.key in placed else None for file in files}

    def without(self, removed: Iterable[FileEntry]) -> LiveFiles:
        keys = {file.key for file in removed}
        return replace(
            self,
            adopted=tuple(key for key in self.adopted if key not in keys),
            files=tuple(file for file in self.files if file.key not in keys),
            dropped=tuple(file for file in self.dropped if file.key not in keys),
        )

    def without_values(self) -> LiveFiles:
        """Return the live files as blocks name them."""
        files, dropped = (tuple(file.without_values() for file in files) for files in (self.files, self.dropped))
        return replace(self, files=files, dropped=dropped)

    def open(self, pending: Pending | None, *, discards: bool = False) -> LiveFiles:
        """Return the live files after a session opened with this pending generation. A new one moves the old one's files to `dropped`."""
        if pending in (None, self.pending) and not discards:
            return replace(self, pending=pending)
        given_up = tuple(file for file in self.files if self.is_pending(file))
        left = tuple(file for file in self.files if not self.is_pending(file))
        return replace(self, files=left, dropped=(*self.dropped, *given_up), pending=pending)


class LiveFilesFold:
    """Fold of blocks into live files. `now` is the result so far, `before` the result without the last data block."""

    def __init__(self, start: LiveFiles | None = None) -> None:
        self.now = start or LiveFiles()
        self.before = self.now

    def learn(self, files: Iterable[FileEntry]) -> None:
        """Put entries that say more in the places of others of the same files."""
        known = {file.key: file for file in files}
        self.now, self.before = (
            replace(live, files=tuple(known.get(file.key, file) for file in live.files)) for live in (self.now, self.before)
        )

    def add(self, block: Block) -> None:
        event = block.event
        match event:
            case Seed(adopted=adopted):
                self.now = LiveFiles(adopted, pending=event.pending)
            case Snapshot(adopted=adopted, files=files, dropped=dropped):
                self.now = LiveFiles(adopted, files, dropped, event.state.contents.pending)
            case OpenEpoch(pending=pending, discards=discards):
                self.now = self.now.open(pending, discards=discards)
            case Close() if self.now.pending is not None:
                self.now = replace(self.now, pending=event.ended(self.now.pending))
            case AddData():
                self.before = self.now
                self.now = replace(self.now, files=(*self.now.files, *(_dated(file, day(block.system_time)) for file in added(event))))
            case MergeData(data_change=False):
                self.before = self.now
                self.now = _compacted(self.now, event)
            case MergeData() | ReplaceData():
                self.before = self.now
                left = self.now.without(event.files_removed)
                pending = None if isinstance(event, ReplaceData) else left.pending
                today = day(block.system_time)
                added_files = (_dated(file.visible(), today) for file in event.files if file.kind not in _APART)
                copies = (file.key for file in event.files if file.kind is FileKind.ADOPTED)
                self.now = replace(left, adopted=(*left.adopted, *copies), files=(*left.files, *added_files), pending=pending)
            case Void():
                # Void takes back the last data block. A session that began in between has changed no files.
                self.now = self.before


def _compacted(live: LiveFiles, event: MergeData) -> LiveFiles:
    """Return the files after a compaction. Each new file stands where the first of its rows were, so rows keep their order."""
    removed = {file.key for file in event.files_removed}
    newest = max((file.landed_on for file in live.files if file.key in removed and file.landed_on is not None), default=None)
    made: dict[tuple[FileKind, int | None], list[FileEntry]] = {}
    for file in event.files:
        made.setdefault((file.kind, file.offset), []).append(_dated(file.visible(), newest))
    places = (made.pop((file.kind, file.offset), []) if file.key in removed else [file] for file in live.files)
    return replace(live, files=tuple(file for place in places for file in place))


def day(time: datetime) -> int:
    """Return the day of a time in UTC, counted from 1970."""
    return int(time.astimezone(UTC).timestamp()) // 86_400


def _dated(file: FileEntry, today: int | None) -> FileEntry:
    return replace(file, landed_on=today) if file.kind in _DATED and file.landed_on is None else file


def added(event: AddData) -> list[FileEntry]:
    """Return the block's files as complete entries, each with its offset. The files of each kind hold the block's rows in order."""
    rows: Counter[FileKind] = Counter()
    entries = []
    for file in event.files:
        offset = event.offset_interval.start + rows[file.kind]
        rows[file.kind] += file.rows
        entries.append(replace(file.visible(), schema_id=event.schema_id, generation_id=event.generation_id, offset=offset))
    return entries
