"""Turns of cases that are alike: a run takes some of them, and the runs of a few days take all."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

VARIABLE = "TEST_TURN"
"""Environment variable with the number that chooses the cases, or `all`. conftest.py sets it to the number of the day; runs print it."""
Case = TypeVar("Case")
os.environ.setdefault(VARIABLE, "all")


def taken(cases: Sequence[Case], every: int, after: int = 0) -> Sequence[Case]:
    """One case in so many, and at least one, from another one on each day. `after` moves the beginning, for one choice of several."""
    chosen, every = os.environ[VARIABLE], min(every, len(cases))
    return cases if chosen == "all" or not cases else cases[(int(chosen) + after) % every :: every]


def draw(name: str, every: int) -> int:
    """Draw a number below `every`, anew each day, so that no other turn of the same cases can keep one away for ever."""
    return random.Random(f"{name} {os.environ[VARIABLE]}").randrange(every)


def moments(every: int) -> Iterator[int]:
    """Yield the numbers from 1 on, or one in so many of them, from another one on each day."""
    first, *_ = taken(range(1, every + 1), every)
    return count(first, 1 if os.environ[VARIABLE] == "all" else every)


def random_cases(name: str, number: int, every: int) -> tuple[random.Random, int]:
    """Return the source of as many random cases, others each day, and how many of them a run takes: one in so many."""
    chosen = os.environ[VARIABLE]
    return random.Random(f"{name} {chosen}"), number if chosen == "all" else number // every
