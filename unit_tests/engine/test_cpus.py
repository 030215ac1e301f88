import os
from pathlib import Path

import pytest

from destination_s3_spark.engine.cpus import available_cpus

MACHINE = len(os.sched_getaffinity(0))


def cgroup_v2(root: Path, line: str) -> Path:
    (root / "cpu.max").write_text(line)
    return root


def cgroup_v1(root: Path, quota: str, period: str) -> Path:
    (root / "cpu").mkdir()
    (root / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (root / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    return root


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 64 CPUs, such as a cluster's node."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


@pytest.mark.usefixtures("many_cpus")
def test_the_quota_of_cgroup_v2_counts(tmp_path: Path) -> None:
    assert available_cpus(cgroup_v2(tmp_path, "200000 100000\n")) == 2


@pytest.mark.usefixtures("many_cpus")
def test_the_quota_of_cgroup_v1_counts(tmp_path: Path) -> None:
    assert available_cpus(cgroup_v1(tmp_path, "400000", "100000")) == 4


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(("quota", "cpus"), [("50000", 1), ("150000", 2), ("10000000", 64)])
def test_a_part_of_a_cpu_is_one_more_and_a_quota_adds_none(tmp_path: Path, quota: str, cpus: int) -> None:
    assert available_cpus(cgroup_v2(tmp_path, f"{quota} 100000\n")) == cpus


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path) == MACHINE
    assert available_cpus(cgroup_v2(tmp_path, "max 100000\n")) == MACHINE


def test_the_minus_one_cgroup_v1_uses_for_no_quota_is_none(tmp_path: Path) -> None:
    assert available_cpus(cgroup_v1(tmp_path, "-1", "100000")) == MACHINE
