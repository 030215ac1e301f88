"""A second client: PyAirbyte with source-faker, by the recipe of docs/pyairbyte.md. All it needs is installed from PyPI, once."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.connector import PASSED_ON, SCRIPT
from integration_tests.lake import ProcessLake

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
INSTALLED = ROOT / ".cache" / "pyairbyte"
ENVIRONMENTS = {"pyairbyte": "airbyte==0.71.3", "faker": "airbyte-source-faker==7.2.1"}
TIMEOUT_S = 300
SECOND_SYNC = (
    "\nagain = destination.write(source, cache=False, state_cache=states)\nsys.stdout.write(f'{again.processed_records} records\\n')\n"
)
USERS, PRODUCTS = 2_000, 100


@pytest.fixture(scope="module")
def environments() -> Path:
    """A directory with the recipe's environments; the connector's is the one that runs the tests."""
    for name, package in ENVIRONMENTS.items():
        done = INSTALLED / f"{name}.{package}"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", INSTALLED / name], check=True)
            subprocess.run([*installer(INSTALLED / name / "bin" / "python"), package], check=True, timeout=TIMEOUT_S)
            done.touch()
    return INSTALLED


def installer(python: Path) -> list[str]:
    """uv where there is one, which takes half the time, else pip."""
    if importlib.util.find_spec("uv"):
        return [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    return [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]


@pytest.fixture
def workplace(environments: Path, moto_lake: ProcessLake) -> Path:
    """Where the recipe runs: the environments under their names there, and the configuration."""
    directory = moto_lake.directory / "recipe"
    (directory / "s3-spark" / "bin").mkdir(parents=True)
    (directory / "s3-spark" / "bin" / SCRIPT.name).symlink_to(SCRIPT)
    (directory / "faker").symlink_to(environments / "faker")
    config = moto_lake.connector().config()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def recipe() -> str:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pyairbyte.md").read_text(), re.DOTALL)
    return str(program)


def test_two_syncs_of_the_recipe_leave_one_row_a_key(environments: Path, workplace: Path, recipe: str, moto_lake: ProcessLake) -> None:
    bare = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    ended = subprocess.run(
        [environments / "pyairbyte" / "bin" / "python", "-c", recipe + SECOND_SYNC],
        cwd=workplace,
        env={**bare, "AIRBYTE_OFFLINE_MODE": "1", "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    said = ended.stdout.splitlines()
    assert said.count(f"{USERS + PRODUCTS} records") == 2, ended.stdout[-3000:]
    assert {name: len(rows) for name, rows in moto_lake.tables().items()} == {(None, "users"): USERS, (None, "products"): PRODUCTS}
    assert moto_lake.ids((None, "users")) == list(range(1, USERS + 1))
    moto_lake.verify_at_rest()
