"""Scales of charts: round numbers, round times, and classes of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import floor, log10
from typing import TypeVar

Y_TICKS = 4
"""Most intervals on a vertical axis."""
LABEL_ROOM = 40
"""Most characters below a horizontal axis, with two between labels. A phone shows every second label."""
SIZE_CLASSES = 12
"""Most classes of sizes."""

_SPACES = 2
_ROUND = (1, 2, 2.5, 5, 10)
_UNITS = ((1, "B"), (10**3, "kB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB"))
_PREFIXES = ((10**9, "billion "), (10**6, "million "))
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, *(3600 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168, 336, 672)))
_MONTHS = (1, 2, 3, 6, 12, 24, 60)
WIDTH = 1_000
HEIGHT = 160
"""Units of a plot. Its width is stretched to that of the page, and one unit of its height is a pixel."""

LAST_PLACE = 0.97
"""Place of the last point of a chart of steps, as a share of its width: its value holds until the end of the axis."""

_WIDEST_BAR = 90
_BAR_SHARE = 0.72

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on an axis, `at` a share of its length."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Scale:
    """A vertical axis from zero to `top`. `unit` is the unit of its labels."""

    top: float
    unit: str
    ticks: tuple[Tick, ...]

    @property
    def widest(self) -> str:
        """The longest label, which needs the most room."""
        return max((tick.text for tick in self.ticks), key=len)

    def share(self, value: float) -> float:
        return value / self.top


def number_scale(most: float, unit: str) -> Scale:
    """Return an axis of counts that reaches at least `most`. Single things have no fractions."""
    factor, prefix = next(((factor, prefix) for factor, prefix in _PREFIXES if most >= factor), (1, ""))
    return _scale(most, factor, f"{prefix}{unit}", at_least=0 if prefix else 1)


def measure_scale(most: float, unit: str) -> Scale:
    """Return an axis of a quantity that may be a fraction of its unit."""
    return _scale(most, 1, unit, at_least=0)


def size_scale(most: float) -> Scale:
    factor, unit = next(((factor, unit) for factor, unit in reversed(_UNITS) if most >= factor), _UNITS[0])
    return _scale(most, factor, unit, at_least=1 if unit == "B" else 0)


def _scale(most: float, factor: float, unit: str, *, at_least: float) -> Scale:
    step = max(_round_step(most / factor / Y_TICKS), at_least)
    count = max(1, -int(-(most / factor) // step))
    ticks = tuple(Tick(index / count, _number(index * step)) for index in range(count + 1))
    return Scale(count * step * factor, unit, ticks)


def _round_step(rough: float) -> float:
    """Return the next round number that is not smaller."""
    if rough <= 0:
        return 1
    power = 10.0 ** floor(log10(rough))
    return next((factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9)), 10 * power)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4f}".rstrip("0")


def time_ticks(first: datetime, last: datetime) -> tuple[Tick, ...]:
    """Return round times between two times, as many as have room."""
    span = (last - first).total_seconds()
    if span < 1:
        return (Tick(0, f"{first:%H:%M:%S}"),)
    for step in _STEPS_S:
        if span / step < 8 and _fits(found := _times(first, last, step)):
            break
    else:
        found = next((found for months in _MONTHS if _fits(found := _month_times(first, last, months))), [])
    if len(found) < 2:
        text = _label(first, last, 1)
        found = [(first, text(first)), (last, text(last))]
    return tuple(Tick((moment - first).total_seconds() / span, label) for moment, label in found)


def day_of(first: datetime, last: datetime) -> str:
    """Return the day on which both times are, or nothing if they are on different days."""
    return f"{first:%Y-%m-%d}" if first.date() == last.date() else ""


def _times(first: datetime, last: datetime, step: int) -> list[tuple[datetime, str]]:
    midnight = datetime(first.year, first.month, first.day, tzinfo=UTC)
    text = _label(first, last, step)
    passed = -int(-(first - midnight).total_seconds() // step)
    times = (midnight + timedelta(seconds=index * step) for index in range(passed, passed + 9))
    return [(time, text(time)) for time in times if time <= last]


def _month_times(first: datetime, last: datetime, months: int) -> list[tuple[datetime, str]]:
    numbers = (number for number in range(first.year * 12, last.year * 12 + 12) if number % months == 0)
    times = (datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in numbers)
    form = "%b %Y" if months < 12 else "%Y"
    return [(time, time.strftime(form)) for time in times if first <= time <= last]


def _label(first: datetime, last: datetime, step: int) -> Callable[[datetime], str]:
    if step >= 86400:
        return lambda time: f"{time:%b} {time.day}"
    clock = "%H:%M:%S" if step < 60 else "%H:%M"
    if day_of(first, last):
        return lambda time: time.strftime(clock)
    return lambda time: time.strftime(f"%m-%d {clock}")


def _fits(found: Sequence[tuple[datetime, str]]) -> bool:
    return sum(len(label) + _SPACES for _, label in found) <= LABEL_ROOM


def place_ticks(texts: Sequence[str]) -> tuple[Tick, ...]:
    """Return labels for places of equal width, evenly left out where they have no room."""
    every = 1
    while sum(len(text) + _SPACES for text in texts[::every]) > LABEL_ROOM and every < len(texts):
        every += 1
    return tuple(Tick((place + 0.5) / len(texts), text) for place, text in enumerate(texts) if place % every == 0)


def size_classes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the bounds of classes of sizes: 1, 2 and 5 of each power of ten, or the powers alone if those would be too many."""
    least, most = max(1, min(sizes)), max(1, *sizes)
    for factors in ((1, 2, 5), (1,)):
        bounds = [factor * 10**power for power in range(16) for factor in factors]
        first = max(place for place, bound in enumerate(bounds) if bound <= least)
        last = min(place for place, bound in enumerate(bounds) if bound > most)
        if last - first <= SIZE_CLASSES:
            break
    return tuple(bounds[first : last + 1])


@dataclass(frozen=True, slots=True)
class Datum:
    """A cell of the table of a chart's numbers. `value` is the number as it is recorded, where the text is rounded."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar, or the place of a point, with a text that is shown when it is pointed at. `look` is a style: `plain`, `unclean` or `open`."""

    x: float
    y: float
    width: float
    height: float
    title: str
    look: str = "plain"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A table of numbers: the titles of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Datum, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    `lead` says in a sentence what it shows. It is what people hear who do not see the chart. `line` is the SVG path of a chart of steps,
    `dots` its points. `remark` says what was left out. `legend` has the looks of the marks with their meanings, where there is more than
    one.
    """

    title: str
    lead: str
    y: Scale
    x_ticks: tuple[Tick, ...]
    x_title: str
    marks: tuple[Mark, ...]
    numbers: Numbers
    line: str = ""
    dots: str = ""
    remark: str = ""
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """The words in place of a chart that would show nothing."""

    title: str
    words: str


def thinned(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """Return at most `most` of the items, evenly chosen, with the first and the last."""
    if len(items) <= most:
        return tuple(items)
    return tuple(items[round(place * (len(items) - 1) / (most - 1))] for place in range(most))


def bars(values: Sequence[float], y: Scale, titles: Sequence[str], looks: Sequence[str] | None = None) -> tuple[Mark, ...]:
    """Return a bar for each value, in places of equal width. A value above zero is always at least one pixel high."""
    place = WIDTH / len(values)
    width = min(place * _BAR_SHARE, _WIDEST_BAR)
    found = []
    for index, value in enumerate(values):
        height = max(HEIGHT * y.share(value), 1.0 if value else 0.0)
        look = "plain" if looks is None else looks[index]
        found.append(Mark((index + 0.5) * place - width / 2, HEIGHT - height, width, height, titles[index], look))
    return tuple(found)


def steps(times: Sequence[datetime], values: Sequence[float], y: Scale, titles: Sequence[str]) -> tuple[tuple[Mark, ...], str, str]:
    """Return marks, line and points of values that hold until the next one, from the first time to the last."""
    span = (times[-1] - times[0]).total_seconds()
    xs = [((time - times[0]).total_seconds() / span if span else 0.0) * WIDTH * LAST_PLACE for time in times]
    ys = [HEIGHT * (1 - y.share(value)) for value in values]
    line = f"M0 {ys[0]:.1f}" + "".join(f"H{x:.1f}V{height:.1f}" for x, height in zip(xs[1:], ys[1:], strict=True)) + f"H{WIDTH}"
    # A line without a length and with round ends is a dot that stays round when the plot is stretched.
    dots = "".join(f"M{x:.1f} {height:.1f}h0" for x, height in zip(xs, ys, strict=True))
    middles = [0.0, *((left + right) / 2 for left, right in pairwise(xs)), float(WIDTH)]
    marks = [Mark(left, 0, right - left, HEIGHT, title) for left, right, title in zip(middles, middles[1:], titles, strict=False)]
    return tuple(marks), line, dots
