"""What the workflows and `.ci/run` name exists: modules, names in them, files, targets of make."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from unit_tests.cases import each

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PACKAGES = ("destination_s3_spark", "unit_tests", "integration_tests", "benchmarks", "demo")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def scripts_of(path: Path) -> Iterator[str]:
    """The shell scripts of a workflow's steps."""
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for step in job.get("steps", ()):
            yield step.get("run", "")


SCRIPTS = {path.name: "\n".join(scripts_of(path)) for path in WORKFLOWS} | {".ci/run": (ROOT / ".ci" / "run").read_text()}


@each("script", SCRIPTS.values())
def test_what_a_script_names_exists(script: str) -> None:
    for module, names in re.findall(r"from (\S+) import ([\w, ]+)", script):
        if module.split(".")[0] in PACKAGES:
            assert all(hasattr(importlib.import_module(module), name.strip()) for name in names.split(",")), module
    for module in re.findall(r"python -m ([\w.]+)", script):
        if module.split(".")[0] in PACKAGES:
            assert importlib.util.find_spec(module) is not None, module
    for target in re.findall(r"^\s*make ([a-z][\w-]*)", script, re.MULTILINE):
        assert target in TARGETS, target
    for path in re.findall(r"(?<![\w./-])((?:unit_tests|integration_tests|scripts|kernel|requirements)[\w./-]*)", script):
        if not path.startswith(tuple(f"{package}." for package in PACKAGES)):
            assert (ROOT / path).exists(), path


def test_there_are_workflows_and_targets() -> None:
    assert len(WORKFLOWS) >= 2
    assert {"test", "check", "coverage", "image"} <= TARGETS
