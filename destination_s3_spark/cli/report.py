"""Reports about tables and chains in plain text, at most 100 characters wide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from enum import Enum
from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import (
    AddData,
    Close,
    MergeData,
    OpenEpoch,
    ReplaceData,
    Seed,
    SetDataSchema,
    Snapshot,
    UnknownEvent,
    Void,
)
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection import InspectedTable, ValueChange
from destination_s3_spark.tables.publishers.publication import Standing

WIDTH = 100
"""Characters per line."""
CELL = 26
"""Longest text of a value in a list of rows; longer ones are cut."""
GAP = "  "


class Align(Enum):
    """The alignment of a cell in its column."""

    LEFT = "left"
    RIGHT = "right"


def section(title: str, text: str) -> str:
    """Return a titled section of a report, followed by a blank line."""
    return f"{title}\n{'═' * len(title)}\n{text}\n"


def grid(header: Sequence[tuple[str, Align]], rows: Iterable[Sequence[str]]) -> str:
    """Return a header, a rule and the rows. The last column is cut so that lines fit into WIDTH."""
    lines = [[title for title, _ in header], *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    before_last = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    widths[-1] = max(1, min(widths[-1], WIDTH - before_last))
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(_line(line, widths, [align for _, align in header]) for line in lines)


def overview(tables: Iterable[InspectedTable]) -> str:
    """List the tables, one line each: rows, files and sizes of the final and the raw table."""
    header = (
        ("table", Align.LEFT),
        ("generation", Align.RIGHT),
        ("rows", Align.RIGHT),
        ("columns", Align.RIGHT),
        ("files", Align.RIGHT),
        ("size", Align.RIGHT),
        ("raw files", Align.RIGHT),
        ("raw size", Align.RIGHT),
    )
    return grid(header, map(_overview_row, tables))


def table_state(table: InspectedTable) -> str:
    """List facts about a table and about its last sync."""
    state = table.state
    schema = state.schema or {}
    pending = table.readable.contents.pending
    facts = {
        "stream": str(table.stream),
        "table": state.identity.table_id,
        "final root": state.identity.final_root,
        "mode": schema.get("mode"),
        "primary key": ", ".join(".".join(path) for path in schema.get("primaryKey") or ()) or None,
        "generation": table.readable.contents.generation,
        "pending": None
        if pending is None
        else f"generation {pending.generation} waits to replace the table, begun by sync {pending.sync_id}",
        "rows": f"{table.readable.contents.rows:,}",
        "last sync": f"{state.opener.sync_id}, started {moment(state.opener.started_at)}, epoch {state.epoch}",
        "ended": "cleanly" if state.closed else "not yet, or not cleanly",
        "settled": _settled(table),
    }
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts.items() if value not in (None, ""))


def readers(table: InspectedTable) -> str:
    """List the publishers, one line each: whether readers see the table's last data."""
    return "\n".join(f"{found.name}: {_standing(found, table.last_data)}" for found in table.standings)


def not_current(tables: Iterable[InspectedTable]) -> str:
    """List the publishers through which readers do not see the last data of a table, one line each."""
    return "\n".join(
        f"{table.stream}, {found.name}: {_standing(found, table.last_data)}"
        for table in tables
        for found in table.standings
        if found.refusal is not None or found.is_behind(table.last_data)
    )


def files(table: InspectedTable) -> str:
    """List the live files by kind. Files of a pending generation, and dropped ones that are not deleted yet, have separate lines."""
    live = table.readable.live
    header = (("kind", Align.LEFT), ("files", Align.RIGHT), ("rows", Align.RIGHT), ("size", Align.RIGHT))
    groups = {
        f"{kind.value}{', pending' if pending else ''}": [file for file in live.of(kind) if live.is_pending(file) is pending]
        for kind in FileKind
        for pending in (False, True)
    }
    groups["given up"] = list(live.dropped)
    rows = [
        (name, f"{len(group):,}", f"{sum(file.rows for file in group):,}", size_text(sum(file.bytes for file in group)))
        for name, group in groups.items()
        if group
    ]
    if live.adopted:
        rows.append((FileKind.ADOPTED.value, f"{len(live.adopted):,}", "?", "?"))
    return grid(header, rows) if rows else "No files."


def columns(table: InspectedTable) -> str:
    """List the final table's columns with their Arrow types."""
    if table.columns is None:
        return "No schema yet."
    header = (("column", Align.LEFT), ("type", Align.LEFT))
    return grid(header, [(field.name, type_text(field.type)) for field in table.columns])


def first_rows(rows: pa.Table, count: int) -> str:
    """Show the first rows, with as many data columns as fit into a line."""
    shown = rows.slice(0, count)
    cells: list[list[str]] = []
    room = WIDTH
    names = [name for name in rows.column_names if not name.startswith("_airbyte_")]
    for name in names:
        column = [name, *(value_text(value) for value in shown[name].to_pylist())]
        room -= max(map(len, column)) + len(GAP)
        if room < -len(GAP):
            break
        cells.append(column)
    header = [(column[0], Align.LEFT) for column in cells]
    text = grid(header, zip(*(column[1:] for column in cells), strict=True))
    more = len(names) - len(cells)
    return text if not more else f"{text}\n… and {more} more columns"


def changes(found: Sequence[ValueChange]) -> str:
    """List the values that did not fit their type: field, change, reason, count and one full path."""
    if not found:
        return "Every value fitted its declared type."
    header = (("field", Align.LEFT), ("change", Align.LEFT), ("reason", Align.LEFT), ("values", Align.RIGHT), ("for example", Align.LEFT))
    return grid(header, [(change.field, change.change, change.reason, f"{change.count:,}", change.example) for change in found])


def chain(table: InspectedTable) -> str:
    """List the blocks, one line each."""
    header = (("block", Align.RIGHT), ("time (UTC)", Align.LEFT), ("kind", Align.LEFT), ("what it says", Align.LEFT))
    text = grid(header, [(str(b.sequence_number), moment(b.system_time), block_kind(b), block_summary(b)) for b in table.blocks])
    first = table.blocks[0].sequence_number
    return text if first == 0 else f"(blocks 0 to {first - 1} are summed up in the Snapshot)\n{text}"


def block_kind(block: Block) -> str:
    """Return the name of the block's event."""
    return block.event.kind if isinstance(block.event, UnknownEvent) else type(block.event).__name__


def block_summary(block: Block) -> str:
    """Summarize the block's event in a few words."""
    match block.event:
        case Seed() as event:
            adopted = f", {len(event.adopted)} files adopted" if event.adopted else ""
            return f"table {event.stream} begins, sync {event.sync_id}, generation {event.generation_id}{adopted}"
        case OpenEpoch() as event:
            return f"epoch {block.epoch}, sync {event.sync_id}, generation {event.generation_id}"
        case SetDataSchema() as event:
            return _schema_summary(event)
        case AddData() as event:
            return _add_data_summary(event)
        case MergeData() | ReplaceData() as event:
            return _rewrite_summary(event)
        case Void() as event:
            return f"takes back block {event.voided_sequence_number}"
        case Close():
            return "the sync ended cleanly"
        case Snapshot() as event:
            return f"all blocks before: {event.state.contents.rows:,} rows in {len(event.files)} files"
        case UnknownEvent():
            return "written by a newer version"


def type_text(data_type: pa.DataType) -> str:
    """Return an Arrow type in the common short form: `struct<a: int64>`, `list<string>`."""
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {type_text(field.type)}" for field in data_type) + ">"
    if pa.types.is_list(data_type):
        return f"list<{type_text(data_type.value_type)}>"
    return str(data_type)


def value_text(value: Any) -> str:
    """Return a value on one line, cut to CELL characters."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case datetime() | date():
            text = value.isoformat().replace("+00:00", "Z")
        case dict() | list():
            text = json.dumps(value, ensure_ascii=False, default=str)
        case _:
            text = str(value)
    return _cut(" ".join(text.split()), CELL)


def size_text(size_bytes: int) -> str:
    """Return a size in a suitable decimal unit."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moment(time: datetime) -> str:
    """Return a time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _rewrite_summary(event: MergeData | ReplaceData) -> str:
    rows = sum(file.rows for file in event.files if file.kind is FileKind.FINAL)
    what = f"generation {event.generation_id} is published" if isinstance(event, ReplaceData) else "rows come into the final table"
    return f"{what}: {len(event.files)} files with {rows:,} final rows in, {len(event.files_removed)} files out"


def _overview_row(table: InspectedTable) -> tuple[str, ...]:
    final, raw = table.files_of(FileKind.FINAL), table.files_of(FileKind.RAW)
    return (
        str(table.stream),
        str(table.readable.contents.generation),
        f"{table.readable.contents.rows:,}",
        str(len(table.columns or ())),
        str(len(final)),
        size_text(sum(file.bytes for file in final)),
        str(len(raw)),
        size_text(sum(file.bytes for file in raw)),
    )


def _settled(table: InspectedTable) -> str:
    state = table.state
    if state.unsettled is None:
        return "no data yet" if state.settled is None else f"all data, up to block {state.last_data}"
    number = state.unsettled.sequence_number
    if table.readable.left_out is None:
        return f"block {number} is written and all its files are there: the next sync or `repair` finishes it"
    return (
        f"block {number} is written, its files are not all there and not shown here: the next sync or `repair` finishes it or takes it back"
    )


def _schema_summary(event: SetDataSchema) -> str:
    text = f"schema {event.schema_id}, version {event.schema.get('version')}: {len(event.schema.get('fields', ()))} data columns"
    evolved = [f"{change['kind']} {change['path']}" for change in event.schema.get("changes", ())]
    return "; ".join([text, *evolved])


def _add_data_summary(event: AddData) -> str:
    interval = event.offset_interval
    size = size_text(sum(file.bytes for file in event.files))
    files, checkpoints = counted(len(event.files), "file"), counted(len(event.checkpoints), "checkpoint")
    text = f"{counted(interval.end - interval.start + 1, 'row')}, {files} ({size}), {checkpoints}"
    changed = sum(event.changes.values())
    return f"{text}, {changed:,} changed" if changed else text


def _standing(found: Standing, last_data: int) -> str:
    if found.refusal is not None:
        return f"refused: {found.refusal}"
    if found.block is None:
        return "nothing is published yet"
    return f"behind by {counted(last_data - found.block, 'block')}" if found.is_behind(last_data) else "current"


def _line(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> str:
    fitted = [_cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    placed = [
        cell.rjust(width) if align is Align.RIGHT else cell.ljust(width) for cell, width, align in zip(fitted, widths, aligns, strict=True)
    ]
    return GAP.join(placed).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
