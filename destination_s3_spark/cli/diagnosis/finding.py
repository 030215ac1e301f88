"""Finding of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The result of one look."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    """A sync works, but perhaps not as intended."""
    BAD = "bad"
    """A sync cannot work."""
    SKIPPED = "skipped"
    """Not looked at, because something it needs is bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `part`: the part of the setup. `check`: what was looked at. `detail`: what was found, or what to do."""

    part: str
    check: str
    verdict: Verdict
    detail: str
