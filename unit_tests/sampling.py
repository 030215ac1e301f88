"""How much of what could be tried without end is tried: a fixed sample for each commit, more and other cases at night.

`make test-nightly` chooses a seed, prints it and sets TEST_SEED. A run with the same seed tries the same cases.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

from hypothesis import settings

VARIABLE = "TEST_SEED"
"""Environment variable with the seed of a nightly run. Other runs leave it unset."""
SEED = os.environ.get(VARIABLE)
IS_NIGHTLY = SEED is not None
USUAL = 100
"""Examples of a property that asks for no number, at night."""

Case = TypeVar("Case")


def chance(name: str) -> random.Random:
    """Return the source of the random cases of this name: the same in each run, but for those with different seeds."""
    return random.Random(f"{name} {SEED or 'every commit'}")


def sample(cases: Sequence[Case], size: int) -> list[Case]:
    """Return `size` of the cases in their order, the same in each run for a commit, or all of them at night."""
    if IS_NIGHTLY or size >= len(cases):
        return [*cases]
    chosen = sorted(random.Random(f"{len(cases)} cases").sample(range(len(cases)), size))
    return [cases[index] for index in chosen]


def rounds(usual: int, nightly: int) -> int:
    """Return how many random cases a run tries."""
    return nightly if IS_NIGHTLY else usual


def moments(step: int) -> Iterator[int]:
    """Yield the numbers from 1 on, one in `step` of them, or each at night."""
    return count(1, 1 if IS_NIGHTLY else step)


def examples(size: int) -> settings:
    """Return settings of a property that is tried with `size` examples where others have USUAL, and in proportion elsewhere."""
    return settings(max_examples=max(1, size * settings().max_examples // USUAL))
