"""A memory limit as a container has it: a command in a memory cgroup of its own, which it sees as its container's.

For root on a Linux with cgroup v1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup/memory")
ENDING_S = 10
ENTER = 'echo $$ > "$0/cgroup.procs" && exec unshare --mount sh -c \'mount --bind "$0" "$1" && shift && exec "$@"\' "$0" "$@"'
"""Shell: enter the cgroup `$0`, put it where a container's own is mounted, and become the command."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What the cgroup says. `peak_bytes` counts the page cache too, which fills up to the limit (`refused` times) and is given back."""

    peak_bytes: int
    refused: int
    killed: int


@dataclass(frozen=True, slots=True)
class Container:
    """A memory cgroup with a limit."""

    folder: Path

    def command(self, command: Sequence[str]) -> list[str]:
        """The command, inside."""
        return ["sh", "-c", ENTER, str(self.folder), str(ROOT), *command]

    def anonymous_bytes(self) -> int:
        """Memory that is no page cache: all that cannot be given back. Pages that processes share count once."""
        return self._counters("memory.stat")["total_rss"]

    def use(self) -> MemoryUse:
        """What there was since the beginning."""
        peak, refused = (int(self._read(name)) for name in ("memory.max_usage_in_bytes", "memory.failcnt"))
        return MemoryUse(peak, refused, self._counters("memory.oom_control")["oom_kill"])

    def _counters(self, name: str) -> dict[str, int]:
        return {counter: int(value) for counter, value in map(str.split, self._read(name).splitlines())}

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()


def obstacle() -> str | None:
    """Why there can be no container here, or None."""
    if not (ROOT / "memory.limit_in_bytes").exists():
        return f"{ROOT} is not a memory controller of cgroup v1"
    if os.geteuid() != 0:
        return "only root may make cgroups"
    return None


@contextmanager
def limited(limit_bytes: int) -> Iterator[Container]:
    """A cgroup with this limit; nothing may be started in it any more at the end."""
    container = Container(ROOT / f"merge-memory-{os.getpid()}")
    container.folder.mkdir()
    try:
        (container.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield container
    finally:
        _remove(container.folder)


def _remove(folder: Path) -> None:
    """Remove the cgroup once the last process in it has ended."""
    give_up = time.monotonic() + ENDING_S
    while (folder / "cgroup.procs").read_text() and time.monotonic() < give_up:
        time.sleep(0.1)
    folder.rmdir()
