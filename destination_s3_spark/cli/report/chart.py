"""Chart as data: axes, marks, and the numbers that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from destination_s3_spark.cli.report.scales import Scale, Tick

WIDTH = 1_000
HEIGHT = 160
"""Units of a plot. Its width is stretched to that of the page, and one unit of its height is a pixel."""

LAST_PLACE = 0.97
"""Place of the last point of a chart of steps, as a share of its width: its value holds until the end of the axis."""

_WIDEST_BAR = 90
_BAR_SHARE = 0.72

Item = TypeVar("Item")


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

    `lead` says in a sentence what it shows. It is what people hear who do not see the chart. `line` and `area` are SVG paths of a chart of
    steps, `dots` its points. `remark` says what was left out. `legend` has
    the looks of the marks with their meanings, where there is more than one.
    """

    title: str
    lead: str
    y: Scale
    x_ticks: tuple[Tick, ...]
    x_title: str
    marks: tuple[Mark, ...]
    numbers: Numbers
    line: str = ""
    area: str = ""
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


def steps(shares: Sequence[float], values: Sequence[float], y: Scale, titles: Sequence[str]) -> tuple[tuple[Mark, ...], str, str, str]:
    """Return marks, line, area and points of values that hold until the next one. `shares` are their places from the first to the last."""
    xs = [share * WIDTH * LAST_PLACE for share in shares]
    ys = [HEIGHT * (1 - y.share(value)) for value in values]
    line = f"M0 {ys[0]:.1f}" + "".join(f"H{x:.1f}V{height:.1f}" for x, height in zip(xs[1:], ys[1:], strict=True)) + f"H{WIDTH}"
    area = f"{line}V{HEIGHT}H0Z"
    # A line without a length and with round ends is a dot that stays round when the plot is stretched.
    dots = "".join(f"M{x:.1f} {height:.1f}h0" for x, height in zip(xs, ys, strict=True))
    middles = [0.0, *((left + right) / 2 for left, right in pairwise(xs)), float(WIDTH)]
    marks = [Mark(left, 0, right - left, HEIGHT, title) for left, right, title in zip(middles, middles[1:], titles, strict=False)]
    return tuple(marks), line, area, dots
