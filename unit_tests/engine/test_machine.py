import os
from pathlib import Path

import pytest

from destination_s3_spark.engine.machine import available_cpus, container_memory_bytes, jvm_heap_mb, oom_kills

GIB = 2**30
MACHINE = len(os.sched_getaffinity(0))


def test_cgroup_v2_limit_is_used(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{GIB}\n")
    assert container_memory_bytes((limit,)) == GIB


def test_cgroup_v1_limit_is_used(tmp_path: Path) -> None:
    limit = tmp_path / "memory" / "memory.limit_in_bytes"
    limit.parent.mkdir()
    limit.write_text(f"{GIB}\n")
    assert container_memory_bytes((tmp_path / "memory.max", limit)) == GIB


def test_without_a_cgroup_limit_the_machine_counts(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    machine = container_memory_bytes(())
    assert container_memory_bytes((limit,)) == machine > GIB // 4


def test_the_huge_number_cgroup_v1_uses_for_no_limit_is_capped_by_the_machine(tmp_path: Path) -> None:
    limit = tmp_path / "memory.limit_in_bytes"
    limit.write_text("9223372036854771712\n")
    assert container_memory_bytes((tmp_path / "absent", limit)) == container_memory_bytes(())


def test_the_heap_is_an_eighth_of_the_container_within_bounds() -> None:
    assert jvm_heap_mb(6 * GIB) == 768
    assert jvm_heap_mb(GIB) == 512
    assert jvm_heap_mb(64 * GIB) == 1024


def test_processes_killed_for_want_of_memory_are_counted(tmp_path: Path) -> None:
    events, control = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kills((events, control)) == 2
    events.write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills((events, control)) == 3
    assert oom_kills(()) == 0


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
