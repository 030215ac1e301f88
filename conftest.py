"""Test settings of the whole repository: Airbyte's standard tests, Hypothesis, and when tests that need the image run."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["airbyte_cdk.test.standard_tests.pytest_hooks"]

TURN = "TEST_TURN"
"""The variable of unit_tests/rotation.py. The CDK's own test command loads this file where that one cannot be imported."""
os.environ.setdefault(TURN, str(datetime.now(UTC).toordinal()))  # workers of a run inherit it

os.environ.setdefault("WORKER_JOB_ID", "1")  # tests stand for Airbyte's platform, where the ids of its first job count like all others

# `--hypothesis-profile` takes another one. How long an example takes says what else the machine does, so no test fails for it.
for _profile, _examples in {"quick": 20, "ci": 100 if os.environ[TURN] == "all" else 30}.items():
    settings.register_profile(_profile, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=_examples)
settings.load_profile("quick")

_MAIN_JOB = "test_main_job.py"
"""The integration tests of `make test`."""

_LONG = (
    "test_blocks_w", "test_deferred", "test_delta_", "test_doors", "test_encodings", "test_failed_jobs", "test_foreign_o", "test_forget",
    "test_fresh", "test_given_up", "test_histor", "test_partition_", "test_partitioned", "test_partitions", "test_published_h",
    "test_refreshed", "test_replayed", "test_soft_d", "test_treated", "test_unfit", "test_verification", "test_waiting_h", "test_worker_",
)  # fmt: skip
"""The beginnings of the names of unit tests of features beside the main job that take long together. `make test` leaves them out."""

TURNS = 3
"""Of so many slow unit tests, and of tests with the mark `turns` of a file or with the same name in the mark, a run takes one."""

DAYS = 7
"""`make test-all` takes one in so many of the files without a quick test. No other turn goes by sevens, so each test has its day."""

_CEPH = {"ceph", "strict_server"}
"""The fixtures that start Ceph; some tests name one as a parameter."""


def pytest_configure(config: pytest.Config) -> None:
    """Let `airbyte-cdk connector test` work: the test it writes is in `.tmp`, which is no name of a package for importlib."""
    if any("/.tmp/" in argument for argument in config.args):
        config.option.importmode = "prepend"


def pytest_report_header() -> str:
    """Say which of the cases that take turns run."""
    return f"{TURN}={os.environ[TURN]}"


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in this hook, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests run, in which order, and which of them in one process."""
    _take_turns(config, items)
    _mark_quick(items)
    _mark_today(items)
    _keep_together(items)
    _skip_without_image(config, items)


def _take_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with the mark `turns` and the slow unit tests whose turn it is not."""
    marked: dict[Path | str, list[pytest.Item]] = {}
    slow = [item for item in items if item.get_closest_marker("slow") and "unit_tests" in item.path.parts]
    for item in items:
        if mark := item.get_closest_marker("turns"):
            marked.setdefault(mark.args[0] if mark.args else item.path, []).append(item)
    if marked or slow:
        from unit_tests.rotation import draw, taken  # noqa: PLC0415 (see TURN)

        out = {item for alike in marked.values() for item in alike if item not in taken(alike, TURNS, draw(alike[0].nodeid, TURNS))}
        out |= {item for item in slow if os.environ[TURN] != "all" and draw(item.nodeid, TURNS)}
        config.hook.pytest_deselected(items=[*out])
        items[:] = [item for item in items if item not in out]


def _mark_quick(items: list[pytest.Item]) -> None:
    """Mark what `make test` runs: the main job and the unit tests, but the slow and the long ones."""
    for item in items:
        is_short = "unit_tests" in item.path.parts and not item.path.name.startswith(_LONG)
        if (item.path.name == _MAIN_JOB or is_short) and not item.get_closest_marker("slow"):
            item.add_marker("quick")


def _mark_today(items: list[pytest.Item]) -> None:
    """Mark what `make test-all` runs: the files with quick tests, and those of the others whose turn it is."""
    if quick := {item.path for item in items if item.get_closest_marker("quick")}:
        from unit_tests.rotation import taken  # noqa: PLC0415 (see TURN)

        today = quick | {*taken(sorted({item.path for item in items} - quick), DAYS)}
        for item in items:
            if item.path in today:
                item.add_marker("today")


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
