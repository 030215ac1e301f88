"""Patterns for the names of streams and columns."""

from __future__ import annotations

from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each


@each(
    ("pattern", "names"),
    [
        ("x1", ["x1"]),
        ("shop.x?", ["x1"]),
        ("x*", ["x1", "x[1]"]),
        ("x[1]", ["x[1]"]),
        ("shop.x[1]", ["x[1]"]),
        ("*[*", ["x[1]"]),
        ("x[[]1]", []),
    ],
)
def test_patterns_have_stars_and_question_marks_and_nothing_else(pattern: str, names: list[str]) -> None:
    assert [name for name in ("x1", "x[1]") if StreamId("shop", name).matches(pattern)] == names
