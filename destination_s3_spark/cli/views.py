"""Tables as a person sees them: the cells of each query's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.commits import ChangedValue, Commit, MergeCost, RecordedSync, SyncEnd, session_label, session_text
from destination_s3_spark.cli.inspection.summary import PublisherState, ReaderState, TableSummary
from destination_s3_spark.cli.inspection.table import FileStatus, FileTotals, InspectedColumn, RecordedChange, TableFile
from destination_s3_spark.cli.terminal import Cell, Rows, moment, number_text, share_text
from destination_s3_spark.wording import counted, duration_text, size_text

_UNSETTLED_SEEN = "block {} is written and all its files are there: the next sync or `repair` finishes it"
_UNSETTLED_UNSEEN = (
    "block {} is written, its files are not all there and not shown here: the next sync or `repair` finishes it or takes it back"
)

SUMMARIES = (
    Cell("table", lambda t: t.table),
    Cell("generation", lambda t: str(t.generation), number=True),
    Cell("rows", lambda t: number_text(t.rows), number=True),
    Cell("columns", lambda t: str(t.columns), number=True),
    Cell("files", lambda t: number_text(t.files), number=True),
    Cell("size", lambda t: size_text(t.bytes), number=True),
    Cell("raw files", lambda t: number_text(t.raw_files), number=True),
    Cell("raw size", lambda t: size_text(t.raw_bytes), number=True),
    Cell("last sync (UTC)", lambda t: moment(t.last_sync_started_at)),
    Cell("ended", lambda t: t.last_session_end.value),
)
TOTALS = (
    Cell("kind", lambda f: _label(f.kind, f.standing)),
    Cell("files", lambda f: number_text(f.files), number=True),
    Cell("rows", lambda f: number_text(f.rows), number=True),
    Cell("size", lambda f: size_text(f.bytes), number=True),
)
FILES = (
    Cell("kind", lambda f: _label(f.kind, f.standing)),
    Cell("rows", lambda f: number_text(f.rows), number=True),
    Cell("size", lambda f: size_text(f.bytes), number=True),
    Cell("partition", lambda f: f.partition),
    Cell("first key", lambda f: f.first_key),
    Cell("last key", lambda f: f.last_key),
    Cell("block", lambda f: number_text(f.block), number=True),
    Cell("committed (UTC)", lambda f: moment(f.committed_at)),
    Cell("file", lambda f: f.key),
)
COLUMNS = (
    Cell("column", lambda c: c.column),
    Cell("type", lambda c: c.type),
    Cell("since schema", lambda c: None if c.since_schema is None else str(c.since_schema), number=True),
    Cell(
        "remark",
        lambda c: f"holds values of {c.recovered_from}" if c.recovered_from else None if c.declared else "the source has it no more",
    ),
)
SCHEMAS = (
    Cell("schema", lambda s: str(s.schema_id), number=True),
    Cell("version", lambda s: s.version),
    Cell("time (UTC)", lambda s: moment(s.time)),
    Cell("block", lambda s: number_text(s.block), number=True),
    Cell("columns", lambda s: number_text(s.columns), number=True),
    Cell("change", lambda s: s.change),
    Cell("path", lambda s: s.path),
    Cell("types", lambda s: " -> ".join(text for text in (s.old, s.new) if text)),
)
SYNCS = (
    Cell("sync", lambda s: session_label(s.sync_id)),
    Cell("started (UTC)", lambda s: moment(s.started_at)),
    Cell("took", lambda s: duration_text(s.duration_s), number=True),
    Cell("ended", lambda s: s.end.value),
    Cell("rows", lambda s: number_text(s.rows), number=True),
    Cell("size", lambda s: size_text(s.bytes), number=True),
    Cell("rewritten", lambda s: size_text(s.bytes_rewritten), number=True),
    Cell("values changed", lambda s: number_text(s.values_changed), number=True),
    Cell("commits", lambda s: number_text(s.commits), number=True),
    Cell("rewrites", lambda s: number_text(s.rewrites), number=True),
    Cell("blocks", lambda s: f"{s.first_block}-{s.last_block}", number=True),
)
VALUES = (
    Cell("sync", lambda v: session_label(v.sync_id)),
    Cell("time (UTC)", lambda v: moment(v.time)),
    Cell("field", lambda v: v.field or "(not recorded)"),
    Cell("change", lambda v: v.change),
    Cell("reason", lambda v: v.reason),
    Cell("values", lambda v: number_text(v.values), number=True),
    Cell("per row", lambda v: share_text(v.share), number=True),
)
COMMITS = (
    Cell("block", lambda c: str(c.block), number=True),
    Cell("time (UTC)", lambda c: moment(c.time)),
    Cell("kind", lambda c: c.kind),
    Cell("what it says", lambda c: f"taken back: {c.summary}" if c.taken_back else c.summary),
)


def summaries(rows: Sequence[TableSummary], place: str) -> Rows:
    return Rows(rows, TableSummary, SUMMARIES, f"No tables under {place}.")


def files(rows: Sequence[TableFile]) -> Rows:
    empty = {"partition"} if all(row.partition is None for row in rows) else set()
    empty |= {"first key", "last key"} if all(row.first_key is None for row in rows) else set()
    return Rows(rows, TableFile, [cell for cell in FILES if cell.title not in empty], "No files.")


totals = partial(Rows, row_type=FileTotals, cells=TOTALS, none="No files.")
columns = partial(Rows, row_type=InspectedColumn, cells=COLUMNS, none="No schema yet.")
schemas = partial(Rows, row_type=RecordedChange, cells=SCHEMAS, none="No schema yet.")
syncs = partial(Rows, row_type=RecordedSync, cells=SYNCS, none="No sync yet.")
values = partial(Rows, row_type=ChangedValue, cells=VALUES, none="Every value fitted its declared type.")
commits = partial(Rows, row_type=Commit, cells=COMMITS, none="No blocks.")


def reader_line(row: PublisherState) -> str:
    match row.state:
        case ReaderState.BEHIND:
            return f"{row.publisher}: behind by {counted(row.blocks_behind or 0, 'block')}"
        case ReaderState.REFUSED:
            return f"{row.publisher}: refused: {row.reason}"
        case _:
            return f"{row.publisher}: {row.state.value}"


def facts(table: TableSummary, merges: MergeCost | None = None) -> Mapping[str, str | None]:
    return {
        "stream": table.table,
        "table": table.table_id,
        "final root": table.final_root,
        "mode": table.mode,
        "primary key": ", ".join(table.primary_key),
        "generation": str(table.generation),
        "pending": pending(table),
        "rows": number_text(table.rows),
        "waiting": None if table.waiting is None else str(table.waiting),
        "merges": None if merges is None else str(merges),
        **{f"history {one.number}": str(one) for one in table.histories},
        "forgotten": None if not table.barred_keys else _barred(table),
        "last sync": _last_sync(table),
        "ended": "cleanly" if table.last_session_end is SyncEnd.CLEAN else "not yet, or not cleanly",
        "settled": _settled(table),
        "replaced": None if not table.replaced_files else _replaced(table),
    }


def _barred(table: TableSummary) -> str:
    return f"{counted(table.barred_keys, 'key')} for good, {counted(table.records_barred, 'record')} left out since"


def pending(table: TableSummary) -> str | None:
    if table.pending_generation is None:
        return None
    if table.held_back:
        return f"{counted(table.pending_rows, 'row')} held back, which accept publishes and discard drops"
    if table.waiting is not None:
        return f"generation {table.pending_generation} is complete, and replaces the table when it is merged"
    began = session_text(table.pending_since_sync)
    return f"generation {table.pending_generation} waits to replace the table, begun by {began}"


def _label(kind: FileKind, standing: FileStatus) -> str:
    return kind.value if standing is FileStatus.LIVE else f"{kind.value}, {standing.value}"


def _last_sync(table: TableSummary) -> str | None:
    if table.last_sync_id is None:
        return "none among the blocks that were read"
    return f"{session_label(table.last_sync_id)}, started {moment(table.last_sync_started_at)}, epoch {table.epoch}"


def _replaced(table: TableSummary) -> str:
    return f"{counted(table.replaced_files, 'file')}, {size_text(table.replaced_bytes)}, kept for running queries"


def _settled(table: TableSummary) -> str:
    if table.unsettled_block is None:
        return "no data yet" if table.last_data_block is None else f"all data, up to block {table.last_data_block}"
    return (_UNSETTLED_SEEN if table.unsettled_is_read else _UNSETTLED_UNSEEN).format(table.unsettled_block)
