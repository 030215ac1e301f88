"""A test that is a table runs each case, and names those that failed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from unit_tests.cases import each


def test_every_case_runs_and_the_failed_ones_are_named() -> None:
    seen = []

    @each("number, text", [(1, "a"), (2, "b"), (3, "c")])
    def odd(number: int, text: str) -> None:
        seen.append(text)
        assert number % 2

    with pytest.raises(BaseExceptionGroup, match="1 of 3 cases failed") as caught:
        odd()
    assert seen == ["a", "b", "c"]
    assert caught.value.exceptions[0].__notes__ == ["case number=2, text='b'"]


def test_a_case_that_fails_by_a_missing_error_is_named_too() -> None:
    @each("number", [0, 1])
    def divided(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            1 // number

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed"):
        divided()


def test_decorators_multiply_and_leave_the_fixtures() -> None:
    seen = []

    @each("number", [1, 2])
    @each("text", ["a", "b"], ids=str.upper)
    def both(number: int, text: str, tmp_path: Path) -> None:
        seen.append((number, text))

    both(tmp_path=Path())
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert [*inspect.signature(both).parameters] == ["tmp_path"]


def test_a_table_without_cases_or_with_other_parameters_is_refused() -> None:
    with pytest.raises(AssertionError, match="no case"):
        each("number", [])
    with pytest.raises(AssertionError, match="2 values"):
        each("one, other", [(1,)])
    with pytest.raises(AssertionError, match="does not take all"):
        each("number", [1])(lambda text: None)
