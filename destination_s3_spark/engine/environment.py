"""What an executor on another machine must have for our tasks to run there: the driver's Python, and the packages that tasks import.

Our own code is not among it: the driver brings that along. The probe runs on an executor before anything else, so this module imports
nothing that may be missing there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("boto3", "isal", "msgspec", "numpy", "orjson", "pyarrow", "tzdata", "xxhash", "zstandard")
"""What tasks need, besides what these bring along themselves."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter (`3.11`) and the versions of its packages, None for one that is not there."""

    python: str
    packages: Mapping[str, str | None]


def environment(packages: Sequence[str] = PACKAGES) -> Environment:
    """What this process runs in."""
    return Environment(f"{sys.version_info.major}.{sys.version_info.minor}", {name: _version(name) for name in packages})


def shortcomings(executor: Environment, driver: Environment) -> str | None:
    """What the executor must be given before tasks of the driver can run there; None when it has all.

    Tasks and results cross between the two, so packages must be of the same major version (the same minor one before 1.0); tzdata is
    data, of any version.
    """
    wanted = [
        f"{name} {ours} (it has {theirs or 'none'})"
        for name, ours in driver.packages.items()
        if not _fits(name, theirs := executor.packages.get(name), ours)
    ]
    if executor.python != driver.python:
        wanted.insert(0, f"Python {driver.python} (it has {executor.python})")
    return ", ".join(wanted) or None


def _fits(name: str, theirs: str | None, ours: str | None) -> bool:
    if theirs is None or ours is None or name == "tzdata":
        return theirs is not None
    return _compatible(theirs) == _compatible(ours)


def _compatible(text: str) -> Sequence[str]:
    """The part of a version number that is the same for releases that understand each other."""
    numbers = re.findall(r"\d+", text)
    return numbers[:2] if numbers[:1] == ["0"] else numbers[:1]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
