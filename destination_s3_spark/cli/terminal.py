"""Printing for a person or a program: tables, JSON and CSV on stdout, in the width, colours and character set that stdout has.

On stderr stands the progress of what takes longer than a moment: a bar on a terminal, elsewhere a line every ten seconds.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import orjson
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table
from rich.text import Text

from destination_s3_spark.cli import filtered_output, presentable, unfiltered
from destination_s3_spark.wording import LINE_END, printable_json, spreadsheet_cell

ENDLESS_LINE = 100_000
"""Width of output that nothing may cut: files, pipes, and terminals with --wide."""

ITEM_NAME = 44
"""Width of the names of items."""
SHOWN_AFTER_S = 2.0
"""Seconds after which a bar appears. What is over by then shows none."""
LINE_EVERY_S = 10.0
REDRAWN_EVERY_S = 0.1


class Output(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a printed table: its title, and the text of a row's cell. Numbers are aligned to the right."""

    title: str
    text: Callable[[Any], str | None]
    number: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to print: dataclasses of one type, and the cells of their table. `none` is said instead of a table without rows."""

    rows: Sequence[Any]
    row_type: type[Any]
    cells: Sequence[Cell]
    none: str


class Terminal:
    """Standard output for a person. On a terminal, cells that do not fit continue on the next line, unless lines may be longer (`wide`)."""

    def __init__(self, *, wide: bool = False) -> None:
        bounded = sys.stdout.isatty() and not wide
        self._console = Console(
            file=unfiltered(sys.stdout),
            width=None if bounded else ENDLESS_LINE,
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=False,
        )

    def section(self, title: str) -> None:
        title = presentable(title)
        self._console.print(Text(f"\n{title}\n{'═' * len(title)}", style="bold"))

    def say(self, text: str, style: str = "") -> None:
        self._console.print(Text(presentable(text), style=style))

    def item(self, sign: str, style: str, name: str, detail: str) -> None:
        """Print a sign in a style, a name and a detail, which continues below itself."""
        columns = Column(no_wrap=True), Column(width=ITEM_NAME, no_wrap=True), Column(overflow="fold")
        table = Table.grid(*columns, padding=(0, 1, 0, 0))
        table.add_row(Text(sign, style=style), Text(presentable(name)), Text(presentable(detail)))
        self._console.print(table)

    def facts(self, facts: Mapping[str, str | None]) -> None:
        """Print names and values in two columns, without those that have no value."""
        table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for name, value in facts.items():
            if value:
                table.add_row(Text(name, style="bold"), Text(presentable(value)))
        self._console.print(table)

    def table(self, shown: Rows) -> None:
        if not shown.rows:
            self.say(shown.none)
            return
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for cell in shown.cells:
            table.add_column(cell.title, justify="right" if cell.number else "left", no_wrap=cell.number, overflow="fold")
        for row in shown.rows:
            table.add_row(*(Text(presentable(cell.text(row) or "")) for cell in shown.cells))
        self._console.print(table)


def write_json(value: Any) -> None:
    """Write a value as one indented JSON document in UTF-8: dataclasses become objects, their properties are left out."""
    _write_bytes(printable_json(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)))


def write_csv(rows: Iterable[Any], fields: Sequence[str]) -> None:
    """Write dataclasses as CSV in UTF-8 with a header, for spreadsheets. Nested values are JSON, and None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow([_csv_value(getattr(row, field)) for field in fields])
    _write_bytes(text.getvalue().encode())


def write_rows(shown: Rows, output: Output, terminal: Terminal) -> None:
    match output:
        case Output.TABLE:
            terminal.table(shown)
        case Output.JSON:
            write_json(shown.rows)
        case Output.CSV:
            write_csv(shown.rows, [field.name for field in dataclasses.fields(shown.row_type)])


def _write_bytes(data: bytes) -> None:
    """Write to stdout whatever its encoding is: a program reads them, and both forms are UTF-8 by definition."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _csv_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    nested = isinstance(value, tuple | list | dict) or dataclasses.is_dataclass(value)
    text = orjson.dumps(value).decode() if nested else value
    return spreadsheet_cell(text) if isinstance(text, str) else text


def number_text(number: int | None) -> str:
    """Return a number with separators, or a question mark if it is unknown."""
    return "?" if number is None else f"{number:,}"


def moment(time: datetime | None) -> str:
    """Return a time to the second, or a question mark if it is unknown."""
    return "?" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def share_text(share: float) -> str:
    """Return a share in percent. A share above zero is never shown as zero."""
    return "< 0.01 %" if 0 < share < 0.0001 else f"{share:.2%}".replace("%", " %")


def arrow_text(data_type: pa.DataType) -> str:
    """Return an Arrow type in the common short form: `struct<a: int64>`, `list<string>`."""
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {arrow_text(field.type)}" for field in data_type) + ">"
    if pa.types.is_list(data_type):
        return f"list<{arrow_text(data_type.value_type)}>"
    return str(data_type)


class Progress:
    """Display of the progress of one thing. `update` may be called from any thread, as often as one likes."""

    def __init__(self, doing: str, total: int | None = None, *, line_every_s: float = LINE_EVERY_S) -> None:
        self._doing = presentable(doing, LINE_END)
        self._total = total
        self._done = 0
        self._note = ""
        self._line_every_s = line_every_s
        self._over = threading.Event()
        self._began = time.monotonic()
        self._watcher = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._counting = threading.Lock()

    def __enter__(self) -> Progress:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def advance(self) -> None:
        with self._counting:
            self._done += 1

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Set what is done so far. `total` replaces the total if given, `note` is shown behind the numbers."""
        self._done, self._total, self._note = done, self._total if total is None else total, presentable(note, LINE_END)

    def _watch(self) -> None:
        if sys.stderr.isatty():
            if not self._over.wait(SHOWN_AFTER_S):
                self._draw()
            return
        while not self._over.wait(self._line_every_s):
            sys.stderr.write(f"{self._line()}\n")
            sys.stderr.flush()

    def _draw(self) -> None:
        note = TextColumn("{task.fields[note]}", markup=False)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            note,
        )
        # Text on stdout goes through the bar's console only if it appears on the same screen.
        console = Console(file=unfiltered(sys.stderr))
        with Bar(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar, filtered_output():
            task = bar.add_task(self._doing, total=self._total, note=self._note)
            while not self._over.wait(REDRAWN_EVERY_S):
                bar.update(task, completed=self._done, total=self._total, note=self._note)

    def _line(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        counts = f": {self._done:,}{of}" if self._done or self._total is not None else ""
        note = f", {self._note}" if self._note else ""
        return f"{self._doing}{counts}{note}, {time.monotonic() - self._began:.0f} s"
