"""Input files of updates, and how their rows are read: from the file itself or from its raw rows, as rows of the current columns."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.parquet as pq

from destination_s3_spark.chain.files import HISTORY_KINDS, FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.parquet import PARQUET, ParquetOptions
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.arrow import RAW_SCHEMA
from destination_s3_spark.storage.ranged import opened
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.columns.row_plan import control_plan
from destination_s3_spark.tables.commit.generation import NOTHING, Kept
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.runs.table_format import TableFormat
from destination_s3_spark.tables.stored.conversion import UnfitValues
from destination_s3_spark.tables.stored.rewrite import Stored

logger = logging.getLogger("airbyte")


def replaced_by_pending(live: LiveFiles, kept: Kept = NOTHING, lasting: Collection[FileEntry] = ()) -> list[FileEntry]:
    """List the files that the pending generation replaces.

    These are all but its raw files, the kept raw and adopted files, `lasting`, and those of histories.
    """
    adopted = [FileEntry(FileKind.ADOPTED, key, 0, 0) for key in live.adopted if key not in kept.adopted]
    stay = {file.key for file in (*kept.raw, *lasting)}
    old = [
        file
        for file in live.files
        if file.key not in stay and file.kind not in HISTORY_KINDS and not (file.kind is FileKind.RAW and live.is_pending(file))
    ]
    return [*adopted, *old, *live.dropped]


def only_in_raw(table: OpenTable, live: LiveFiles, files: Sequence[FileEntry]) -> bool:
    """Tell whether some of the files may only be rewritten from the raw table, and no raw file has just their rows."""
    twins = live.raw_twins(files)
    return any(twins[file.key] is None and not _can_be_cast(table, file) for file in files)


def total_rows(files: Iterable[FileEntry]) -> int:
    return sum(file.rows for file in files)


def _can_be_cast(table: OpenTable, file: FileEntry) -> bool:
    return not table.layout.of_text and format_of(file.key) is PARQUET


def stored(table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], unfit: UnfitValues, s3: S3Settings) -> list[Stored]:
    """Choose how each file is read as rows of the current columns: from its raw rows if they were kept, else by cast.

    Raises ConfigError for a file that needs raw rows, if no raw file has just its rows.
    """
    twins = live.raw_twins(files)
    own = list(table.writer.map_files(lambda file: twins[file.key] is None and _has_raw_rows(file, s3), files))
    raw = {file.key: twins[file.key] or file for file, has_raw_rows in zip(files, own, strict=True) if has_raw_rows or twins[file.key]}
    cast = [file for file in files if file.key not in raw]
    unreadable = next((file for file in cast if not _can_be_cast(table, file)), None)
    if unreadable is not None:
        lacks = "no file with just its rows" if live.of(FileKind.RAW) else "no rows"
        raise table.refuse(
            f"its file '{unreadable.key}' has to be rewritten in other columns or another format. That can only be done from the raw "
            f"table, which has {lacks}. Run a refresh that removes the records."
        )
    read = [raw.get(file.key, file) for file in files]
    schemas = table.schemas({rows.schema_id for rows in read if rows.schema_id is not None})

    def source(file: FileEntry, rows: FileEntry) -> Stored:
        then = schemas[rows.schema_id or 0]  # of the raw file, if any: the file may have been rewritten under another one
        if file.key not in raw:
            return Stored(file, (table.plan,), then, table.schema, unfit)
        mixed = rows.kind is FileKind.STATE or rows.combined  # it may have rows that landed under an earlier schema than its own
        plan = table.plan_of(then, and_before=mixed)
        return Stored(rows, (plan,), None, table.schema, unfit, None if mixed else table.declared_in(then))

    return [source(file, rows) for file, rows in zip(files, read, strict=True)]


def _has_raw_rows(file: FileEntry, s3: S3Settings) -> bool:
    """Tell whether the file holds raw rows, like runs and merge states of a table that has, or had, a text format."""
    if file.kind is FileKind.FINAL or not file.key.endswith(ParquetOptions.extension):
        return False
    with opened(file.key, file.bytes, s3) as source:
        return set(RAW_SCHEMA.names) <= set(pq.read_schema(source).names)


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The input files of a merge."""

    table: tuple[tuple[FileEntry, FileEntry], ...]
    """Pairs of the file with the rows for merges and the final file, which the merge rewrites where it has to."""
    runs: tuple[FileEntry, ...]
    tombstones: tuple[FileEntry, ...]
    unsorted: tuple[tuple[FileEntry, Stored], ...]
    """Files to sort into runs first."""
    consumed: tuple[FileEntry, ...]
    """Files that the merge removes in any case."""
    versions: tuple[FileEntry, ...] = ()
    """Files of valid versions, which the merge rewrites together with the files of the table that have the same keys."""


def fits(table: OpenTable, form: TableFormat, file: FileEntry) -> bool:
    """Tell whether a sorted file has the table's order and types of today."""
    return file.sorted_by == form.spec.fingerprint and not table.is_outdated(file)


def merge_inputs(table: OpenTable, live: LiveFiles, form: TableFormat, s3: S3Settings) -> MergeInputs:
    """Divide the files to merge into those in the table's current order, format and types, and those to sort first."""
    pending = live.pending is not None
    rows_kept = _kept_to_sort(table, live)
    deltas = [*(file for file in rows_kept.files if file.kind is FileKind.DELTA), *live.landing(FileKind.DELTA)]
    pairs = [] if pending else list(pairs_of(live))
    kept = [pair for pair in pairs if fits(table, form, pair[0]) and _has_format(form, *pair)]
    others = [pair for pair in pairs if pair not in kept]
    landed = [file for file in rows_kept.files if file.kind is not FileKind.DELTA]
    to_sort = [*(rows for rows, _ in others), *landed, *(file for file in deltas if not fits(table, form, file))]
    if not pending and any(map(table.is_outdated, to_sort)) and table.raw_replays(live):
        return raw_inputs(table, live, form, s3)  # retyping makes a value null that does not fit; a cast would end the sync
    try:
        sources = _stored_for_merge(table, live, to_sort, UnfitValues.NULL if pending else UnfitValues.REFUSE, form, s3)
    except ConfigError:
        if pending or not table.raw_replays(live):
            raise
        return raw_inputs(table, live, form, s3)
    tombstones, old_tombstones = _tombstones(table, () if pending else live.of(FileKind.TOMBSTONE), form)
    runs = [file for file in deltas if fits(table, form, file)]
    known = {file.key: file for file in table.with_keys([*(rows for rows, _ in kept), *runs, *tombstones])}
    return MergeInputs(
        table=tuple((known[rows.key], known.get(final.key, final)) for rows, final in kept),
        runs=tuple(known[file.key] for file in runs),
        tombstones=tuple(known[file.key] for file in tombstones),
        unsorted=tuple(zip(to_sort, sources, strict=True)),
        consumed=(*deltas, *{file.key: file for pair in others for file in pair}.values(), *old_tombstones),
    )


def _kept_to_sort(table: OpenTable, live: LiveFiles) -> Kept:
    """Return the kept rows, with their raw files if some of those that landed can only be rewritten from raw rows."""
    kept = table.kept
    landed = [file for file in kept.files if file.kind is not FileKind.DELTA]
    return replace(kept, files=kept.raw) if only_in_raw(table, live, landed) and total_rows(kept.raw) == kept.rows else kept


def raw_inputs(table: OpenTable, live: LiveFiles, form: TableFormat, s3: S3Settings) -> MergeInputs:
    """Use all raw rows of the table as input, in place of all files made from them."""
    raw = live.settled(FileKind.RAW)
    sources = _stored_for_merge(table, live, raw, UnfitValues.REFUSE, form, s3)
    consumed = live.settled(FileKind.FINAL, FileKind.STATE, FileKind.DELTA, FileKind.TOMBSTONE)
    return MergeInputs((), (), (), tuple(zip(raw, sources, strict=True)), consumed)


def pairs_of(live: LiveFiles) -> Iterator[tuple[FileEntry, FileEntry]]:
    """Yield for each final file the file with its rows for merges: its merge state, or the final file itself."""
    states = {file.copy_of: file for file in live.of(FileKind.STATE)}
    for final in live.of(FileKind.FINAL):
        yield states.get(final.key, final), final


def replaced_rows(table: OpenTable, live: LiveFiles, form: TableFormat) -> list[FileEntry] | None:
    """Return the files with the rows that a pending generation replaces, or None if some have another key, other types or format."""
    pairs = list(pairs_of(live))
    return [rows for rows, _ in pairs] if all(fits(table, form, rows) and _has_format(form, rows, final) for rows, final in pairs) else None


def _has_format(form: TableFormat, rows: FileEntry, final: FileEntry) -> bool:
    return format_of(final.key) is format_of(form.options.extension) and (rows.kind is FileKind.STATE) == form.has_state


def _tombstones(table: OpenTable, buried: Sequence[FileEntry], form: TableFormat) -> tuple[tuple[FileEntry, ...], tuple[FileEntry, ...]]:
    """Divide tombstone files into those of the table's current key and type of it, and the others, with a warning about these."""
    current = tuple(file for file in buried if file.sorted_by == form.spec.of_deletions.fingerprint)
    old = tuple(file for file in buried if file not in current)
    if old:
        logger.warning(
            "stream %s: tombstones of %d keys are dropped, because they are of another primary key or another type of it. An older record "
            "of such a key that arrives now brings its row back.",
            table.stream.id, sum(file.rows for file in old),
        )  # fmt: skip
    return current, old


def _stored_for_merge(
    table: OpenTable, live: LiveFiles, files: Sequence[FileEntry], unfit: UnfitValues, form: TableFormat, s3: S3Settings
) -> list[Stored]:
    sources = stored(table, live, files, unfit, s3)
    if form.plan is None:
        return sources
    plan = control_plan(table.stream, form.spec)
    return [replace(source, plans=(plan,)) for source in sources]
