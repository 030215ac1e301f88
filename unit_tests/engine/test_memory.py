from pathlib import Path

from destination_s3_spark.engine.memory import container_memory_bytes, jvm_heap_mb, oom_kills

GIB = 2**30


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
