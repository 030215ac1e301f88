from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from destination_s3_spark.cli.report.scales import (
    LABEL_ROOM,
    measure_scale,
    number_scale,
    place_ticks,
    size_classes,
    size_scale,
    time_ticks,
)
from unit_tests.cases import each

START = datetime(2026, 2, 27, 23, 58, 30, tzinfo=UTC)


@each(
    ("most", "labels", "unit"),
    [
        (0, ["0", "1"], "rows"),
        (1, ["0", "1"], "rows"),
        (7, ["0", "2", "4", "6", "8"], "rows"),
        (999_999, ["0", "250,000", "500,000", "750,000", "1,000,000"], "rows"),
        (4_300_000, ["0", "2", "4", "6"], "million rows"),
        (1_000_000_000, ["0", "0.25", "0.5", "0.75", "1"], "billion rows"),
    ],
)
def test_axes_of_counts_have_round_numbers(most: int, labels: list[str], unit: str) -> None:
    scale = number_scale(most, "rows")

    assert ([tick.text for tick in scale.ticks], scale.unit) == (labels, unit)
    assert 0 <= scale.share(most) <= 1
    assert (scale.ticks[0].at, scale.ticks[-1].at) == (0, 1)


def test_axes_of_quantities_may_have_fractions() -> None:
    assert [tick.text for tick in measure_scale(0.013, "%").ticks] == ["0", "0.005", "0.01", "0.015"]


@each(
    ("most", "labels", "unit"),
    [(3, ["0", "1", "2", "3"], "B"), (1_500, ["0", "0.5", "1", "1.5"], "kB"), (12 * 10**12, ["0", "5", "10", "15"], "TB")],
)
def test_axes_of_sizes_have_a_suitable_unit(most: int, labels: list[str], unit: str) -> None:
    scale = size_scale(most)

    assert ([tick.text for tick in scale.ticks], scale.unit) == (labels, unit)


@each(
    ("span", "labels"),
    [
        (timedelta(0), ["23:58:30"]),
        (timedelta(milliseconds=300), ["23:58:30"]),
        (timedelta(seconds=8), ["23:58:30", "23:58:35"]),
        (timedelta(minutes=3), ["02-27 23:59", "02-28 00:00", "02-28 00:01"]),
        (timedelta(days=5), ["Feb 28", "Mar 1", "Mar 2", "Mar 3", "Mar 4"]),
        (timedelta(days=400), ["Jul 2026", "Jan 2027"]),
        (timedelta(days=9_000), ["2030", "2035", "2040", "2045", "2050"]),
    ],
)
def test_axes_of_time_have_round_times(span: timedelta, labels: list[str]) -> None:
    ticks = time_ticks(START, START + span)

    assert [tick.text for tick in ticks] == labels
    assert all(0 <= tick.at <= 1 for tick in ticks)


def test_labels_fit_below_an_axis_of_any_length() -> None:
    for hours in range(1, 24 * 3_000, 97):
        ticks = time_ticks(START, START + timedelta(hours=hours))
        assert sum(len(tick.text) + 2 for tick in ticks) <= LABEL_ROOM
        assert len(ticks) >= 2


def test_places_have_as_many_labels_as_have_room() -> None:
    assert [tick.text for tick in place_ticks(["1", "2", "3"])] == ["1", "2", "3"]
    many = place_ticks([str(41_000 + number) for number in range(60)])
    assert [tick.text for tick in many] == ["41000", "41012", "41024", "41036", "41048"]
    assert many[0].at == pytest.approx(0.5 / 60)


@each(
    ("sizes", "bounds"),
    [
        ([0], (1, 2)),
        ([1_500_000], (1_000_000, 2_000_000)),
        ([2_000_000], (2_000_000, 5_000_000)),
        ([1_500, 30_000], (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)),
        ([5, 3 * 10**9], tuple(10**power for power in range(11))),
    ],
)
def test_classes_of_sizes_cover_all_files(sizes: list[int], bounds: tuple[int, ...]) -> None:
    assert size_classes(sizes) == bounds
