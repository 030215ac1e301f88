"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 100
"""Examples of a property that asks for no number, in profile `ci`."""


def examples(count: int, **others: Any) -> settings:
    """Settings of a property that is tried with `count` examples in profile `ci`, and in other profiles with as large a part as others."""
    return settings(max_examples=max(1, count * settings().max_examples // USUAL), **others)
