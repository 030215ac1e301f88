"""Joining of files: inside the store where their pages can be copied as bytes, else by a Spark task that reads and writes the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from destination_s3_spark.chain.files import FileEntry, generation_metadata
from destination_s3_spark.errors import Bug, DataError, SyncError
from destination_s3_spark.formats.file_format import DifferentColumns, FileOptions
from destination_s3_spark.formats.file_statistics import WrittenFile, united
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.formats.parquet_footer import DamagedFooter, Footer, footer_bytes, joinable, joined_footer, read_footer
from destination_s3_spark.storage.object_store import LEAST_PART_BYTES, ObjectNotFound, ObjectRange, ObjectStore
from destination_s3_spark.storage.ranged import TAIL_BYTES, RangedFile, present
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.tables.compaction.groups import Group
from destination_s3_spark.tables.staged.staged_file import StagedFile

MOST_FOOTER_BYTES = 4 * 2**20
"""Most bytes of footers that are joined as bytes, together. They are decoded in Python, at about a megabyte in a second or two."""
_MAGIC_BYTES = 4
_RESTORE = "Restore the file from a backup, or run a refresh."


@dataclass(frozen=True, slots=True)
class JoinTask:
    group: Group
    key: str
    options: FileOptions
    s3: S3Settings


def joined_in_store(group: Group, key: str, store: ObjectStore) -> FileEntry | None:
    """Stage a Parquet file of all pages of the files, copied inside the store. Return None if a Spark task has to join the files.

    The pages of each file become a part of the upload, and S3 takes parts of LEAST_PART_BYTES or more. Raises ObjectNotFound.
    """
    if not key.endswith(ParquetOptions.extension) or min(file.bytes for file in group) < LEAST_PART_BYTES:
        return None
    footers = _footers(group, store)
    if footers is None:
        return None
    ranges = [
        ObjectRange(file.key, _MAGIC_BYTES if number else 0, footer.pages_end)
        for number, (file, footer) in enumerate(zip(group, footers, strict=True))
    ]
    if not joinable(footers) or min(part.end - part.start for part in ranges) < LEAST_PART_BYTES:
        return None
    rows = sum(file.rows for file in group)
    if sum(footer.rows for footer in footers) != rows:
        raise Bug(f"Files of {rows} rows have {sum(footer.rows for footer in footers)} rows by their footers; nothing was changed.")
    try:
        footer = joined_footer(footers)
    except DamagedFooter as error:
        raise DataError(f"The footer of one of the files from '{group[0].key}' on is damaged: {error}. {_RESTORE}") from None
    upload = store.stage_joined(ranges, footer, key, generation_metadata(group[0].generation_id))
    written = WrittenFile(rows, statistics=united([file.statistics for file in group]))
    return _in_place_of(group, FileEntry.staged(group[0].kind, upload, written))


def join_files(task: JoinTask) -> FileEntry | str:
    """Stage one file with the rows of all files, or return why that failed. Nothing stays staged then.

    An error is returned and not raised, because the other tasks of the job have staged files that must not be forgotten.
    """
    try:
        return _joined(task)
    except SyncError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 (what a damaged file raises depends on its format, and no row needs the joined file)
        return f"one of the files from '{task.group[0].key}' on cannot be read ({type(error).__name__})"


def _joined(task: JoinTask) -> FileEntry | str:
    rows = sum(file.rows for file in task.group)
    try:
        sink = StagedFileSink(task.s3, task.key, generation_metadata(task.group[0].generation_id))
        with StagedFile(task.group[0].kind, sink, task.options.open_joined(sink)) as joined:
            for source in _opened(task.group, task.s3):
                joined.write(source)
            written = joined.close()
            if written.rows != rows:
                raise Bug(f"Files of {rows} rows were joined as {written.rows} rows; nothing was changed.")
            return _in_place_of(task.group, joined.stage())
    except DifferentColumns:
        return f"the columns of the files from '{task.group[0].key}' on differ"
    except ObjectNotFound as gone:
        with present(str(gone), task.s3):
            raise


def _opened(files: Sequence[FileEntry], s3: S3Settings) -> Iterator[RangedFile]:
    for file in files:
        with RangedFile(s3, file.key, file.bytes) as source:
            yield source


def _footers(group: Group, store: ObjectStore) -> list[Footer] | None:
    """Read the footers of the files. Return None if they are too large together."""
    footers: list[Footer] = []
    left = MOST_FOOTER_BYTES
    for file in group:
        try:
            tail = _tail(file, store)
            left -= footer_bytes(tail)
            if left < 0:
                return None
            footers.append(read_footer(tail, file.bytes))
        except DamagedFooter as error:
            raise DataError(f"The footer of '{file.key}' is damaged: {error}. {_RESTORE}") from None
    return footers


def _tail(file: FileEntry, store: ObjectStore) -> bytes:
    """Return the end of a file with its footer, unless that is larger than any that is joined."""
    taken = min(file.bytes, TAIL_BYTES)
    tail = store.get_range(file.key, file.bytes - taken, file.bytes, file.bytes)
    needed = footer_bytes(tail)
    if taken < needed <= min(file.bytes, MOST_FOOTER_BYTES):
        return store.get_range(file.key, file.bytes - needed, file.bytes, file.bytes)
    return tail


def _in_place_of(group: Group, joined: FileEntry) -> FileEntry:
    first = group[0]
    known = [file.unbounded for file in group if file.unbounded is not None]
    unbounded = tuple(sorted({name for names in known for name in names})) if len(known) == len(group) else None
    return replace(
        joined,
        offset=first.offset,
        schema_id=first.schema_id,
        generation_id=first.generation_id,
        unbounded=joined.unbounded if joined.unbounded is not None else unbounded,
        in_partition=first.in_partition,
    )
