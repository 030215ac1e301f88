"""Directory of a sync on the local disk, for its spool and for Spark.

A process that is killed leaves its directory behind, so each start removes those whose owner is gone. The owner holds a lock on a file
inside for as long as it lives, also across containers that share the directory above. A lock is good on one machine; some network file
systems do not pass it on to another. So the file names the kernel that its owner runs on, and a directory of another kernel, which is
another machine or this one before it was started again, is removed only when nothing in it has changed for a week.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError

PREFIX = "destination-s3-spark-"
OWNER_FILE = "owner"
KERNEL_ID = Path("/proc/sys/kernel/random/boot_id")
UNTOUCHED_S = 7 * 24 * 3600
"""Seconds without a change after which a directory whose owner cannot be asked counts as left over. No sync is silent for that long."""

logger = logging.getLogger("airbyte")


@contextmanager
def scratch_directory(config: Config) -> Iterator[Path]:
    """Provide a new directory, remove it on exit, and remove those of dead processes first. Raises ConfigError if it cannot be created."""
    parent = config.batching.spool_dir
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        owner = _claim(directory)
    except OSError as error:
        where = f"spool directory {parent}" if parent else "system's temporary directory"
        raise ConfigError(f"The {where} cannot be written ({error.strerror}). Set batching.spool_dir to a writable directory.") from error
    try:
        _remove_leftovers(directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(owner)


def _claim(directory: Path) -> int:
    """Lock the new directory for this process, and return the descriptor that holds the lock. Where there are no locks, claim nothing."""
    owner = os.open(directory / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with suppress(OSError):
        fcntl.flock(owner, fcntl.LOCK_EX)
        os.write(owner, _kernel())  # only now: without it, nobody takes an unlocked directory for left over
    return owner


def _remove_leftovers(own: Path) -> None:
    """Remove the directories beside this one whose owner is gone. One that cannot be judged or removed stays."""
    with suppress(OSError), os.scandir(own.parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name != own.name and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_left_over(Path(entry.path))


def _remove_if_left_over(directory: Path) -> None:
    """Remove the directory if it is this user's and left over. Raises OSError if it is in use or cannot be judged."""
    if directory.stat().st_uid != os.geteuid():
        return
    owner: int | None = None
    try:
        with suppress(FileNotFoundError):  # the process died before it claimed the directory, or is just about to
            owner = os.open(directory / OWNER_FILE, os.O_RDWR | os.O_NOFOLLOW)
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        claimed_on = b"" if owner is None else os.read(owner, 100)
        if (claimed_on and claimed_on == _kernel()) or time.time() - _last_change(directory) > UNTOUCHED_S:
            _remove(directory)
    finally:
        if owner is not None:
            os.close(owner)


def _remove(directory: Path) -> None:
    """Remove the directory, its lock last, so that the next start goes on if this one is killed here."""
    for path in directory.iterdir():
        if path.name != OWNER_FILE:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    shutil.rmtree(directory)
    logger.info("removed %s, which a process that was killed had left behind", directory)


def _last_change(directory: Path) -> float:
    return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))


def _kernel() -> bytes:
    """Return the id of the running kernel, the same in all containers of a machine; empty if it has none."""
    try:
        return KERNEL_ID.read_bytes().strip()
    except OSError:
        return b""
