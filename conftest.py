"""Test settings of the whole repository: Airbyte's standard tests, Hypothesis, seeds, and when tests that need the image run."""

from __future__ import annotations

import os
import time
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["airbyte_cdk.test.standard_tests.pytest_hooks"]

SEED = os.environ.get("TEST_SEED")
"""The seed of a nightly run (see unit_tests/sampling.py). The CDK's own test command loads this file where that one cannot be imported."""

os.environ.setdefault("WORKER_JOB_ID", "1")  # tests stand for Airbyte's platform, where the ids of its first job count like all others

# The examples of a commit are always the same. How long one takes says what else the machine does, so no test fails for it.
settings.register_profile("commit", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
settings.register_profile("nightly", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100, print_blob=True)
settings.load_profile("commit" if SEED is None else "nightly")

_CEPH = {"ceph", "strict_server"}
"""The fixtures that start Ceph; some tests name one as a parameter."""
_LOOPS = 10_000_000
"""Rounds of the loop of pure Python whose time tells a slow machine from a slow suite."""


def pytest_configure(config: pytest.Config) -> None:
    """Let `airbyte-cdk connector test` work: the test it writes is in `.tmp`, which is no name of a package for importlib."""
    if any("/.tmp/" in argument for argument in config.args):
        config.option.importmode = "prepend"
    if SEED is not None:
        config.option.hypothesis_seed = SEED


def pytest_report_header() -> str:
    """Say which cases run."""
    return "cases: the same for each run" if SEED is None else f"cases: all, and random ones from TEST_SEED={SEED}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how a failure of a nightly run is repeated."""
    report = yield
    if SEED is not None and report.failed:
        report.sections.append(("repeat this test", f"TEST_SEED={SEED} .venv/bin/python -m pytest '{item.nodeid}'"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how fast this machine is in this minute: the best of three times of a loop of pure Python."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        for _ in range(_LOOPS):
            pass
        times.append(time.perf_counter() - begun)
    terminalreporter.write_line(f"a loop of {_LOOPS:,} rounds of pure Python takes {min(times):.3f} s here now")


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in this hook, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests run in one process, in which order, and which need the image."""
    _keep_together(items)
    _skip_without_image(config, items)


def _keep_together(items: list[pytest.Item]) -> None:
    """Run the tests of a file on one worker, where they share fixtures.

    Files that start Spark come one after the other, and so do the tests on Ceph: each worker with such tests would start its own.
    """
    # The fixture's session stays to the end, so tests that start and stop their own come first. Then those on Ceph and the files with the
    # longest tests: the short ones fill what is left of all processes.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(
        key=lambda item: (
            item.path.parent.name != "engine", "integration_tests" not in item.path.parts, not _on_ceph(item), item.path not in slow,
        )
    )  # fmt: skip
    with_spark = {item.path for item in items if item.path.parent.name == "engine" or "spark_session" in _fixtures(item)}
    with_spark |= {item.path for item in items if item.path.parent.match("integration_tests/formats")}  # with the fixtures of one that does
    for item in items:
        group = "spark" if item.path in with_spark else "ceph" if _on_ceph(item) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _on_ceph(item: pytest.Item) -> bool:
    return bool(_CEPH & (_fixtures(item) | _parameters(item)))


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def _parameters(item: pytest.Item) -> set[str]:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return {value for value in parameters.values() if isinstance(value, str)}


def _skip_without_image(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run image tests on a given image only. The CDK would build one with its own Dockerfile, which has no JVM."""
    if config.getoption("--connector-image"):
        return
    skip = pytest.mark.skip(
        reason="needs the image: `make image`, then pytest -m image_tests --connector-image=airbyte/destination-s3-spark:dev"
    )
    for item in items:
        if item.get_closest_marker("image_tests"):
            item.add_marker(skip)
