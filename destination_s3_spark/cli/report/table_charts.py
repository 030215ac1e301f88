"""Charts of one table: its growth, its files by size, its syncs, and its values that were nulled or cut, by field and reason."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.commits import ChangedValue, Commit, RecordedSync, SyncEnd, session_label, session_text
from destination_s3_spark.cli.inspection.table import FileStatus
from destination_s3_spark.cli.report.figures import TableFigures
from destination_s3_spark.cli.report.scales import (
    LAST_PLACE,
    Absent,
    Chart,
    Datum,
    Mark,
    Numbers,
    Scale,
    Tick,
    bars,
    day_of,
    measure_scale,
    number_scale,
    place_ticks,
    size_classes,
    size_scale,
    steps,
    thinned,
    time_ticks,
)
from destination_s3_spark.cli.terminal import moment, number_text, share_text
from destination_s3_spark.wording import counted, duration_text, size_text

SYNCS_DRAWN = 60
"""Most syncs in a chart, the newest ones."""
DOTS_DRAWN = 30
"""Most points of a growth chart that are seen as dots."""
POINTS_OF_PAGE = 6_000
"""Points of all growth charts of one kind together."""
MOST_POINTS, FEWEST_POINTS = 240, 24

QUALITY_TITLE = "Values that did not fit their type"
FIELDS_DRAWN = 12
"""Most fields that have bars, those with the most values."""
ROWS_OF_NUMBERS = 500
"""Most rows in the table of the numbers."""
DATA_KINDS = frozenset({"AddData", "MergeData", "ReplaceData"})
SYNC_LOOKS = {SyncEnd.CLEAN: "plain", SyncEnd.UNCLEAN: "unclean", SyncEnd.OPEN: "open"}
END_TEXTS = {SyncEnd.CLEAN: "ended cleanly", SyncEnd.UNCLEAN: "ended not cleanly", SyncEnd.OPEN: "still open"}


def points_of(tables: int) -> int:
    """Return the most points in a growth chart of a page with this number of tables."""
    return min(MOST_POINTS, max(FEWEST_POINTS, POINTS_OF_PAGE // max(1, tables)))


def table_charts(table: TableFigures, most_points: int) -> tuple[Chart | Absent, ...]:
    return (
        growth(table, "table_rows", most_points),
        growth(table, "table_bytes", most_points),
        duration(table),
        throughput(table),
        files_by_size(table),
        *rewritten(table),
    )


def growth(table: TableFigures, what: Literal["table_rows", "table_bytes"], most_points: int) -> Chart | Absent:
    title = "Rows in the table" if what == "table_rows" else "Size of the table"
    every = data_commits(table)
    if not every:
        return Absent(title, "No commit of data among the blocks that were read.")
    drawn = thinned(every, most_points)
    values = [int(getattr(commit, what)) for commit in drawn]
    text: Callable[[int], str] = (lambda rows: counted(rows, "row")) if what == "table_rows" else size_text
    scale = number_scale(max(values), "rows") if what == "table_rows" else size_scale(max(values))
    first, last = drawn[0].time, drawn[-1].time
    titles = [f"{moment(commit.time)}, block {commit.block}: {text(value)}" for commit, value in zip(drawn, values, strict=True)]
    marks, line, dots = steps([commit.time for commit in drawn], values, scale, titles)
    now = f"{text(values[-1])} after {counted(len(every), 'commit')}"
    figure: Callable[[int], str] = number_text if what == "table_rows" else size_text
    rows = (
        (_number(commit.block), Datum(moment(commit.time)), Datum(figure(value), value))
        for commit, value in zip(drawn, values, strict=True)
    )
    return Chart(
        title,
        f"{now}, {text(values[0])} after the first of them." if len(every) > 1 else f"{now}.",
        scale,
        tuple(Tick(tick.at * LAST_PLACE, tick.text) for tick in time_ticks(first, last)),
        f"time of the commit (UTC{', ' * bool(day_of(first, last))}{day_of(first, last)})",
        marks,
        Numbers(("block", "committed (UTC)", "rows" if what == "table_rows" else "size"), tuple(rows)),
        line,
        dots if len(drawn) <= DOTS_DRAWN else "",
        f"{number_text(len(drawn))} of {number_text(len(every))} commits are drawn, evenly chosen." if len(drawn) < len(every) else "",
    )


def data_commits(table: TableFigures) -> tuple[Commit, ...]:
    """Return the commits that changed the table and were not taken back."""
    return tuple(commit for commit in table.commits if commit.kind in DATA_KINDS and not commit.taken_back)


def duration(table: TableFigures) -> Chart | Absent:
    syncs = table.syncs_without_maintenance[-SYNCS_DRAWN:]
    known = [sync.duration_s for sync in syncs if sync.duration_s is not None]
    if not known:
        return Absent("Duration of each sync", "No sync began among the blocks that were read.")
    factor, unit = next(
        (factor, unit) for factor, unit in ((3600, "hours"), (60, "minutes"), (1, "seconds")) if max(known) >= factor or factor == 1
    )
    values = [(sync.duration_s or 0.0) / factor for sync in syncs]
    ends = {end: sum(sync.end is end for sync in syncs) for end in SyncEnd}
    by_end = ", ".join(f"{number_text(count)} {END_TEXTS[end]}" for end, count in ends.items() if count)
    lead = f"The last took {duration_text(syncs[-1].duration_s)}, the longest {duration_text(max(known))}; {by_end}."
    return _of_syncs("Duration of each sync", lead, table, syncs, values, measure_scale(max(values), unit))


def throughput(table: TableFigures) -> Chart | Absent:
    syncs = table.syncs_without_maintenance[-SYNCS_DRAWN:]
    values = [rows_per_second(sync) or 0.0 for sync in syncs]
    if not any(values):
        return Absent("Rows per second of each sync", "No sync brought rows and told how long it took.")
    lead = f"The last: {counted(syncs[-1].rows, 'row')} at {_rate(values[-1])} per second; the fastest: {_rate(max(values))}."
    return _of_syncs("Rows per second of each sync", lead, table, syncs, values, measure_scale(max(values), "rows/s"))


def rewritten(table: TableFigures) -> tuple[Chart, ...]:
    """Return the chart of what merges and compactions wrote in each sync and by commands, if there were any."""
    drawn = [sync for sync in table.syncs if sync.sync_id is not None or sync.bytes_rewritten][-SYNCS_DRAWN:]
    values = [sync.bytes_rewritten for sync in drawn]
    if not any(values):
        return ()
    lead = f"The last: {size_text(values[-1])}; the most: {size_text(max(values))}; together: {size_text(sum(values))}."
    return (_of_syncs("Bytes rewritten by each sync", lead, table, drawn, values, size_scale(max(values))),)


def rows_per_second(sync: RecordedSync) -> float | None:
    """Return how many rows the sync brought per second that it had the table open, or None if that time is unknown."""
    return sync.rows / sync.duration_s if sync.duration_s else None


def _rate(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= 10 else f"{rows:.1f}"


def _of_syncs(title: str, lead: str, table: TableFigures, syncs: Sequence[RecordedSync], values: Sequence[float], scale: Scale) -> Chart:
    names = [session_text(sync.sync_id) for sync in syncs]
    titles = [f"{name}, {moment(sync.started_at)}: {_sync_text(sync)}" for name, sync in zip(names, syncs, strict=True)]
    every = len(table.syncs_without_maintenance)
    ends = [end for end in SyncEnd if any(sync.end is end for sync in syncs)]
    rows = (
        (
            Datum(session_label(sync.sync_id), sync.sync_id),
            Datum(moment(sync.started_at)),
            Datum(duration_text(sync.duration_s), sync.duration_s),
            _number(sync.rows),
            Datum("?" if (rate := rows_per_second(sync)) is None else _rate(rate)),
            Datum(size_text(sync.bytes_rewritten), sync.bytes_rewritten),
            Datum(sync.end.value),
        )
        for sync in syncs
    )
    return Chart(
        title,
        lead,
        scale,
        place_ticks([session_label(sync.sync_id) for sync in syncs]),
        "sync (id), oldest first",
        bars(values, scale, titles, [SYNC_LOOKS[sync.end] for sync in syncs]),
        Numbers(("sync", "started (UTC)", "took", "rows", "rows per second", "rewritten", "ended"), tuple(rows)),
        remark=f"The newest {len(syncs)} of {number_text(every)} syncs are drawn." if len(syncs) < every else "",
        legend=tuple((SYNC_LOOKS[end], END_TEXTS[end]) for end in ends) if ends != [SyncEnd.CLEAN] else (),
    )


def _sync_text(sync: RecordedSync) -> str:
    sizes = f"{size_text(sync.bytes)}, {size_text(sync.bytes_rewritten)} rewritten"
    return f"{duration_text(sync.duration_s)}, {counted(sync.rows, 'row')}, {sizes}, ended: {sync.end.value}"


def files_by_size(table: TableFigures) -> Chart | Absent:
    sizes = [
        file.bytes for file in table.files if file.kind is FileKind.FINAL and file.standing is FileStatus.LIVE and file.bytes is not None
    ]
    if not sizes:
        return Absent("Files by size", "The final table has no files.")
    bounds = size_classes(sizes)
    counts = [0] * (len(bounds) - 1)
    for size in sizes:
        counts[max(0, bisect_right(bounds, size) - 1)] += 1
    classes = [f"{_bound(low)} to {_bound(high)}" for low, high in pairwise(bounds)]
    scale = number_scale(max(counts), "files")
    middle = sorted(sizes)[len(sizes) // 2]
    range_text = f"{size_text(min(sizes))} to {size_text(max(sizes))}"
    lead = f"{counted(len(sizes), 'file')} of the final table: {range_text}, the middle one {size_text(middle)}."
    if len(sizes) == 1:
        lead = f"1 file of the final table: {size_text(middle)}."
    titles = [f"{name}: {counted(count, 'file')}" for name, count in zip(classes, counts, strict=True)]
    every = -(-len(bounds) // 5)  # about five bounds have a label
    return Chart(
        "Files by size",
        lead,
        scale,
        tuple(Tick(place / len(counts), _bound(bound)) for place, bound in enumerate(bounds) if place % every == 0),
        "size of the file",
        bars(counts, scale, titles),
        Numbers(("size", "files"), tuple((Datum(name), _number(count)) for name, count in zip(classes, counts, strict=True))),
    )


def _bound(size: int) -> str:
    return size_text(size).replace(".0 ", " ")


def _number(number: int) -> Datum:
    return Datum(number_text(number), number)


@dataclass(frozen=True, slots=True)
class FieldBars:
    """The bars of a field and a reason: the values of each sync per row. `last` is the share in the newest sync."""

    field: str
    change: str
    reason: str
    total: str
    last: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """The bars of all fields over the same syncs, all in one scale that ends at `top`, and their numbers."""

    title: str
    lead: str
    fields: tuple[FieldBars, ...]
    top: str
    x_ticks: tuple[Tick, ...]
    x_title: str
    numbers: Numbers
    remark: str


def quality(table: TableFigures) -> Quality | Absent:
    syncs = table.syncs_without_maintenance[-SYNCS_DRAWN:]
    found = [table.values.get(sync.first_block, ()) for sync in syncs]
    drawn = [value for of_sync in found for value in of_sync]
    if not drawn:
        return Absent(QUALITY_TITLE, _nothing(len(syncs), sum(value.values for of_sync in table.values.values() for value in of_sync)))
    groups: dict[tuple[str | None, str | None, str | None], dict[int, ChangedValue]] = defaultdict(dict)
    for place, of_sync in enumerate(found):
        for value in of_sync:
            groups[value.field, value.change, value.reason][place] = value
    ordered = sorted(groups.values(), key=lambda group: -sum(value.values for value in group.values()))
    scale = measure_scale(max(value.share for value in drawn) * 100, "%")
    every = len(table.syncs_without_maintenance)
    return Quality(
        QUALITY_TITLE,
        _lead(sum(value.values for value in drawn), sum(value.values for value in found[-1]), len(syncs)),
        tuple(_bars(group, syncs, scale) for group in ordered[:FIELDS_DRAWN]),
        f"{scale.ticks[-1].text} %",
        place_ticks([session_label(sync.sync_id) for sync in syncs]),
        "sync (id), oldest first",
        _numbers(drawn),
        _remark(len(groups), len(drawn), len(syncs), every),
    )


def _nothing(syncs: int, earlier: int) -> str:
    if not earlier:
        return "Every value fitted its declared type."
    newest = f"Every value of the newest {counted(syncs, 'sync')} fitted its declared type."
    return f"{newest} {counted(earlier, 'value')} of earlier syncs did not."


def _lead(total: int, newest: int, syncs: int) -> str:
    became = "became null or was cut" if total == 1 else "became null or were cut"
    return f"{counted(total, 'value')} in {counted(syncs, 'sync')} {became}; {number_text(newest)} in the last sync."


def _bars(group: Mapping[int, ChangedValue], syncs: Sequence[RecordedSync], scale: Scale) -> FieldBars:
    """Return the bars of the values of a field and a reason, which are by the places of their syncs."""
    shares = [100 * group[place].share if place in group else 0.0 for place in range(len(syncs))]
    counts = [group[place].values if place in group else 0 for place in range(len(syncs))]
    titles = [
        f"{session_text(sync.sync_id)}, {moment(sync.started_at)}: {counted(count, 'value')}, {share_text(share / 100)} of its rows"
        for sync, count, share in zip(syncs, counts, shares, strict=True)
    ]
    value = next(iter(group.values()))
    return FieldBars(
        value.field or "fields that are not recorded",
        (value.change or "changed").lower(),
        value.reason or "reason not recorded",
        counted(sum(counts), "value"),
        share_text(shares[-1] / 100),
        tuple(mark for mark, count in zip(bars(shares, scale, titles), counts, strict=True) if count),
    )


def _numbers(values: Sequence[ChangedValue]) -> Numbers:
    rows = (
        (
            Datum(session_label(value.sync_id), value.sync_id),
            Datum(moment(value.time)),
            Datum(value.field or "(not recorded)"),
            Datum(value.change or "?"),
            Datum(value.reason or "?"),
            Datum(number_text(value.values), value.values),
            Datum(share_text(value.share), value.share),
        )
        for value in values[-ROWS_OF_NUMBERS:]
    )
    return Numbers(("sync", "time (UTC)", "field", "change", "reason", "values", "per row"), tuple(rows))


def _remark(groups: int, rows: int, syncs: int, every: int) -> str:
    remarks = []
    if groups > FIELDS_DRAWN:
        remarks.append(f"The {FIELDS_DRAWN} of {number_text(groups)} fields and reasons with the most values are drawn.")
    if syncs < every:
        remarks.append(f"The newest {syncs} of {number_text(every)} syncs are drawn.")
    if rows > ROWS_OF_NUMBERS:
        remarks.append(f"The table has the newest {ROWS_OF_NUMBERS} of {number_text(rows)} numbers.")
    return " ".join(remarks)
