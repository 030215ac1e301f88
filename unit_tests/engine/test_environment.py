from __future__ import annotations

import sys
from importlib.metadata import version

import pytest

from destination_s3_spark.engine.environment import PACKAGES, Environment, environment, shortcomings

DRIVER = Environment("3.11", {"pyarrow": "26.0.1", "msgspec": "0.22.3", "tzdata": "2026.1"})


def executor(python: str = "3.11", **packages: str | None) -> Environment:
    return Environment(python, {**DRIVER.packages, **packages})


def test_this_process_knows_what_it_runs_in_and_lacks_nothing() -> None:
    found = environment()

    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.packages == {name: version(name) for name in PACKAGES}
    assert shortcomings(found, environment()) is None
    assert environment(["no-such-package"]).packages == {"no-such-package": None}


@pytest.mark.parametrize("packages", [{}, {"pyarrow": "26.1.0"}, {"msgspec": "0.22.0"}, {"tzdata": "2030.4"}])
def test_releases_that_understand_each_other_are_fine(packages: dict[str, str]) -> None:
    assert shortcomings(executor(**packages), DRIVER) is None


@pytest.mark.parametrize(
    ("packages", "named"),
    [
        ({"pyarrow": None}, "pyarrow 26.0.1 (it has none)"),
        ({"pyarrow": "25.9.9"}, "pyarrow 26.0.1 (it has 25.9.9)"),
        ({"msgspec": "0.21.0"}, "msgspec 0.22.3 (it has 0.21.0)"),
        ({"tzdata": None}, "tzdata 2026.1 (it has none)"),
        ({"pyarrow": None, "tzdata": None}, "pyarrow 26.0.1 (it has none), tzdata 2026.1 (it has none)"),
    ],
)
def test_what_is_missing_or_too_different_is_named_with_both_versions(packages: dict[str, str | None], named: str) -> None:
    assert shortcomings(executor(**packages), DRIVER) == named


def test_another_python_is_named_first() -> None:
    assert shortcomings(executor("3.12", pyarrow=None), DRIVER) == "Python 3.11 (it has 3.12), pyarrow 26.0.1 (it has none)"
