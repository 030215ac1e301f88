"""Data quality of a table: values that were nulled or cut, by field and reason, over its syncs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from destination_s3_spark.cli.inspection.commits import ChangedValue, RecordedSync, session_label, session_text
from destination_s3_spark.cli.report.figures import TableFigures
from destination_s3_spark.cli.report.scales import Absent, Datum, Mark, Numbers, Scale, Tick, bars, measure_scale, place_ticks
from destination_s3_spark.cli.report.table_charts import drawn_syncs
from destination_s3_spark.cli.terminal import moment, number_text, share_text
from destination_s3_spark.wording import counted

TITLE = "Values that did not fit their type"
FIELDS_DRAWN = 12
"""Most fields that have bars, those with the most values."""
ROWS_OF_NUMBERS = 500
"""Most rows in the table of the numbers."""


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
    syncs = drawn_syncs(table)
    places = {_key(sync): place for place, sync in enumerate(syncs)}
    found = [(place, value) for value in table.values if (place := _place(value, places)) is not None]
    if not found:
        return Absent(TITLE, _nothing(len(syncs), sum(value.values for value in table.values)))
    groups: dict[tuple[str | None, str | None, str | None], list[tuple[int, ChangedValue]]] = defaultdict(list)
    for place, value in found:
        groups[value.field, value.change, value.reason].append((place, value))
    ordered = sorted(groups.values(), key=lambda group: -sum(value.values for _, value in group))
    scale = measure_scale(max(value.share for _, value in found) * 100, "%")
    total = sum(value.values for _, value in found)
    newest = sum(value.values for place, value in found if place == len(syncs) - 1)
    every = sum(sync.sync_id is not None for sync in table.syncs)
    return Quality(
        TITLE,
        _lead(total, newest, len(syncs)),
        tuple(_bars(group, syncs, scale) for group in ordered[:FIELDS_DRAWN]),
        f"{scale.ticks[-1].text} %",
        place_ticks([session_label(sync.sync_id) for sync in syncs]),
        "sync (id), oldest first",
        _numbers([value for _, value in found]),
        _remark(len(groups), len(found), len(syncs), every),
    )


def _nothing(syncs: int, earlier: int) -> str:
    if not earlier:
        return "Every value fitted its declared type."
    newest = f"Every value of the newest {counted(syncs, 'sync')} fitted its declared type."
    return f"{newest} {counted(earlier, 'value')} of earlier syncs did not."


def _lead(total: int, newest: int, syncs: int) -> str:
    became = "became null or was cut" if total == 1 else "became null or were cut"
    return f"{counted(total, 'value')} in {counted(syncs, 'sync')} {became}; {number_text(newest)} in the last sync."


def _key(sync: RecordedSync) -> tuple[int | None, object]:
    return sync.sync_id, sync.started_at


def _place(value: ChangedValue, places: dict[tuple[int | None, object], int]) -> int | None:
    """Return the place of the value's sync. One that began before the blocks that were read has no start."""
    place = places.get((value.sync_id, value.time))
    return places.get((value.sync_id, None)) if place is None else place


def _bars(group: Sequence[tuple[int, ChangedValue]], syncs: Sequence[RecordedSync], scale: Scale) -> FieldBars:
    by_place = dict(group)
    shares = [100 * by_place[place].share if place in by_place else 0.0 for place in range(len(syncs))]
    counts = [by_place[place].values if place in by_place else 0 for place in range(len(syncs))]
    titles = [
        f"{session_text(sync.sync_id)}, {moment(sync.started_at)}: {counted(count, 'value')}, {share_text(share / 100)} of its rows"
        for sync, count, share in zip(syncs, counts, shares, strict=True)
    ]
    value = group[0][1]
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
