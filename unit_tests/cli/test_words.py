from __future__ import annotations

from destination_s3_spark import wording
from destination_s3_spark.cli import terminal
from unit_tests.cases import each


@each(("size", "text"), [(999, "999 B"), (1_000, "1.0 kB"), (2_500_000, "2.5 MB"), (12 * 10**12, "12,000.0 GB"), (None, "?")])
def test_sizes_use_the_unit_that_suits_them(size: int | None, text: str) -> None:
    assert wording.size_text(size) == text


@each(("seconds", "text"), [(1.94, "1.9 s"), (61, "1 min 01 s"), (7_325, "2 h 02 min"), (None, "?")])
def test_durations_use_two_units(seconds: float | None, text: str) -> None:
    assert wording.duration_text(seconds) == text


@each(("share", "text"), [(0, "0.00 %"), (0.00001, "< 0.01 %"), (0.123, "12.30 %"), (2, "200.00 %")])
def test_a_share_that_is_not_zero_is_not_shown_as_zero(share: float, text: str) -> None:
    assert terminal.share_text(share) == text
