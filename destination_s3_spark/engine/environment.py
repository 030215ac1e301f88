"""Requirements on an executor's environment: the driver's Python version, and the packages that tasks import.

The connector's own code is not a requirement, because the driver sends it. The probe is the first thing to run on an executor, so this
module imports nothing that may be missing there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED

PACKAGES = ("boto3", "isal", "msgspec", "numpy", "orjson", "pyarrow", "tzdata", "xxhash", "zstandard")
"""Direct dependencies of tasks. Their own dependencies come with them."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Python version (`3.11`), the versions of its packages (None for a missing package), and how this process types records."""

    python: str
    packages: Mapping[str, str | None]
    records_typed: str = HOW_LINES_ARE_TYPED


def environment(packages: Sequence[str] = PACKAGES) -> Environment:
    return Environment(f"{sys.version_info.major}.{sys.version_info.minor}", {name: package_version(name) for name in packages})


def shortcomings(executor: Environment, driver: Environment) -> str | None:
    """Return what the executor lacks to run tasks of the driver, or None if it lacks nothing.

    Tasks and results are pickled between the two, so packages must have the same major version (before 1.0 the same minor version). tzdata
    contains only data and may have any version.
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
    """Return the part of a version number that compatible releases share."""
    numbers = re.findall(r"\d+", text)
    return numbers[:2] if numbers[:1] == ["0"] else numbers[:1]


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
