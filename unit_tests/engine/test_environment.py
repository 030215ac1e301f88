from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from destination_s3_spark.engine.environment import PACKAGES, Environment, environment, shortcomings
from unit_tests.cases import each

TASK_MODULES = (
    "capture.group",
    "compaction.join",
    "landing.land",
    "merge.scratch_runs",
    "merge.task",
    "stored.rewrite",
    "stored.row_digests",
)
"""Of `tables`: those whose functions run on executors."""
FORMATS = ("avro", "text_file")
"""Of `formats`: those that come with the options of a task's files."""
LOADED = "import sys; print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('destination_s3_spark.') and m.__file__))"
BROUGHT_ALONG = {"botocore", "urllib3"}
"""By boto3."""
DRIVER = Environment("3.11", {"pyarrow": "26.0.1", "msgspec": "0.22.3", "tzdata": "2026.1"})


def executor(python: str = "3.11", **packages: str | None) -> Environment:
    return Environment(python, {**DRIVER.packages, **packages})


def test_this_process_knows_what_it_runs_in_and_lacks_nothing() -> None:
    found = environment()

    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.packages == {name: version(name) for name in PACKAGES}
    assert shortcomings(found, environment()) is None
    assert environment(["no-such-package"]).packages == {"no-such-package": None}


@each("packages", [{}, {"pyarrow": "26.1.0"}, {"msgspec": "0.22.0"}, {"tzdata": "2030.4"}])
def test_releases_that_understand_each_other_are_fine(packages: dict[str, str]) -> None:
    assert shortcomings(executor(**packages), DRIVER) is None


@each(
    ("packages", "named"),
    [
        ({"pyarrow": None}, "pyarrow 26.0.1 (it has none)"),
        ({"pyarrow": "25.9.9"}, "pyarrow 26.0.1 (it has 25.9.9)"),
        ({"msgspec": "0.21.0"}, "msgspec 0.22.3 (it has 0.21.0)"),
        ({"tzdata": None}, "tzdata 2026.1 (it has none)"),
        ({"pyarrow": None, "tzdata": None}, "pyarrow 26.0.1 (it has none), tzdata 2026.1 (it has none)"),
    ],
)
def test_what_is_missing_or_too_different_is_named_with_both_versions(packages: dict[str, Any], named: str) -> None:
    assert shortcomings(executor(**packages), DRIVER) == named


def test_another_python_is_named_first() -> None:
    assert shortcomings(executor("3.12", pyarrow=None), DRIVER) == "Python 3.11 (it has 3.12), pyarrow 26.0.1 (it has none)"


def imported_at_once(module: Path) -> Iterator[str]:
    """The first names of what a module imports when it is loaded."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


def test_the_packages_are_what_the_modules_of_tasks_import() -> None:
    names = (*(f"tables.{name}" for name in TASK_MODULES), *(f"formats.{name}" for name in FORMATS))
    program = f"import {', '.join(f'destination_s3_spark.{name}' for name in names)}; {LOADED}"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    found = {name for path in answer.stdout.split() for name in imported_at_once(Path(path))}
    foreign = found - set(sys.stdlib_module_names) - {"destination_s3_spark"} - BROUGHT_ALONG
    assert foreign == set(PACKAGES) - {"tzdata"}
