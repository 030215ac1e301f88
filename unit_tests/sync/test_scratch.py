from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.sync import scratch
from destination_s3_spark.sync.scratch import OWNER_FILE, PREFIX, UNTOUCHED_S, scratch_directory

PROCESS = """
import sys, time
from pathlib import Path
from unit_tests.sync.test_scratch import config
from destination_s3_spark.sync.scratch import scratch_directory
with scratch_directory(config(Path(sys.argv[1]))) as directory:
    (directory / "spool").mkdir()
    (directory / "spool" / "0").write_bytes(b"records")
    print(directory, flush=True)
    time.sleep(60)
"""


def config(parent: Path) -> Config:
    required = {"s3_bucket_name": "b", "s3_bucket_path": "lake", "s3_bucket_region": "us-east-1", "format": {"format_type": "Parquet"}}
    return Config.parse({**required, "batching": {"spool_dir": str(parent)}})


def started(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", PROCESS, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def there(parent: Path) -> set[Path]:
    return set(parent.iterdir())


def grow_old(directory: Path) -> None:
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (0, time.time() - UNTOUCHED_S - 60), follow_symlinks=False)


def dead(parent: Path, kernel: bytes) -> Path:
    """The directory of a process that is gone, and that ran on this kernel."""
    directory = parent / f"{PREFIX}dead"
    (directory / "spool").mkdir(parents=True)
    (directory / "spool" / "0").write_bytes(b"records")
    (directory / OWNER_FILE).write_bytes(kernel)
    return directory


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_lives_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "airbyte")
    killed, left = started(tmp_path)
    ended(killed)
    living, used = started(tmp_path)
    assert there(tmp_path) == {used}
    assert (used / "spool" / "0").read_bytes() == b"records"
    with scratch_directory(config(tmp_path)) as own:
        assert there(tmp_path) == {used, own}
        ended(living)
    assert there(tmp_path) == {used}
    with scratch_directory(config(tmp_path)) as own:
        assert there(tmp_path) == {own}
    assert there(tmp_path) == set()
    assert f"removed {used}" in caplog.text
    assert str(left) not in caplog.text, "the other process did it"


@pytest.mark.parametrize("kernel", [b"another machine", b""], ids=["another kernel", "no claim"])
def test_what_another_machine_may_use_goes_when_it_was_untouched_for_a_week(tmp_path: Path, kernel: bytes) -> None:
    directory = dead(tmp_path, kernel)
    with scratch_directory(config(tmp_path)):
        assert (directory / "spool" / "0").exists()
    grow_old(directory)
    (directory / "spool" / "0").write_bytes(b"more records")
    with scratch_directory(config(tmp_path)):
        assert (directory / "spool" / "0").exists()
    grow_old(directory)
    with scratch_directory(config(tmp_path)):
        assert not directory.exists()


def test_a_directory_without_an_owner_is_as_young_as_its_files(tmp_path: Path) -> None:
    directory = tmp_path / f"{PREFIX}new"
    directory.mkdir()
    with scratch_directory(config(tmp_path)):
        assert directory.exists()
    grow_old(directory)
    with scratch_directory(config(tmp_path)):
        assert not directory.exists()


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    parent, outside = tmp_path / "spool", tmp_path / "outside"
    parent.mkdir()
    (outside / "files").mkdir(parents=True)
    (outside / OWNER_FILE).write_bytes(scratch._kernel())
    (parent / f"{PREFIX}link").symlink_to(outside)
    (parent / f"{PREFIX}file").write_text("mine")
    (parent / "other").mkdir()
    left = dead(parent, scratch._kernel())
    (left / "link").symlink_to(outside)
    with scratch_directory(config(parent)) as own:
        assert there(parent) == {own, parent / f"{PREFIX}link", parent / f"{PREFIX}file", parent / "other"}
    assert {path.name for path in outside.iterdir()} == {"files", OWNER_FILE}


def test_a_start_that_is_killed_while_it_removes_is_followed_by_one_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = dead(tmp_path, scratch._kernel())
    rmtree = shutil.rmtree

    def killed(path: Path, *, ignore_errors: bool = False) -> None:
        if path.is_relative_to(left):
            raise OSError("as if the process had ended here")
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with scratch_directory(config(tmp_path)):
        assert (left / OWNER_FILE).exists()
    monkeypatch.undo()
    with scratch_directory(config(tmp_path)):
        assert not left.exists()


def test_starts_at_the_same_time_leave_each_other_alone(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def start(_: int) -> None:
        for _ in range(50):
            together.wait()
            with scratch_directory(config(tmp_path)) as own:
                (own / "spool").write_bytes(b"records")
                assert (own / "spool").read_bytes() == b"records"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    assert there(tmp_path) == set()


def test_a_directory_that_cannot_be_written_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Set batching\.spool_dir"), scratch_directory(config(tmp_path / "none")):
        pass
