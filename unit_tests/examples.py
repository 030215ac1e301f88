"""How much is tried in which lane: examples of properties, and values of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

from unit_tests.rotation import taken

USUAL = 100
"""Examples of a property that asks for no number, in profile `ci` with all cases."""
OTHERS = 4
"""Of so many further values of a parameter, a run takes one."""


def examples(count: int, **others: Any) -> settings:
    """Settings of a property that is tried with `count` examples where others have USUAL, and with as large a part as they elsewhere."""
    return settings(max_examples=max(1, count * settings().max_examples // USUAL), **others)


def quick_first(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Values of a parameter, or tuples of several: the first `count` in both lanes, and the others take turns in the slow one alone."""
    others = (value if isinstance(value, tuple) else (value,) for value in taken(values[count:], OTHERS))
    return [*values[:count], *(pytest.param(*other, marks=pytest.mark.slow) for other in others)]


def one_of(values: Sequence[Any]) -> list[Any]:
    """One value of a parameter, from day to day another one, in the slow lane alone."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in taken(values, len(values))]
