"""Hosts of their own on this machine: network namespaces on a bridge, whose cables can be pulled."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SUBNET = "198.18"
"""Of 198.18.0.0/15, which is reserved for tests of networks."""


class NoNamespacesError(Exception):
    """This machine, or this user, makes no network namespaces."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where programs run: what is put before their commands, and the address they can be reached at."""

    address: str
    entry: tuple[str, ...] = ()
    cable: str = ""

    def cut_off(self) -> None:
        """Let no packet in or out any more; nobody is told."""
        _ip("link", "set", self.cable, "down")


HERE = Host("127.0.0.1")


@contextmanager
def network(size: int) -> Iterator[tuple[Host, ...]]:
    """This machine and `size` hosts beside it, at addresses of one network. Raises NoNamespacesError."""
    tag = secrets.token_hex(3)
    subnet = f"{SUBNET}.{secrets.randbelow(256)}"
    bridge, names = f"br{tag}", [f"host{number}-{tag}" for number in range(1, size + 1)]
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("address", "add", f"{subnet}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            hosts = [_host(name, f"{subnet}.{number}", f"v{number}{tag}", bridge) for number, name in enumerate(names, start=2)]
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNamespacesError(str(error)) from error
        yield (Host(f"{subnet}.1"), *hosts)
    finally:
        for number, name in enumerate(names, start=2):
            _ip("link", "delete", f"v{number}{tag}", check=False)  # or it would last as long as what is still on its way through it
            _ip("netns", "delete", name, check=False)
        _ip("link", "delete", bridge, check=False)


def _host(name: str, address: str, cable: str, bridge: str) -> Host:
    _ip("netns", "add", name)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", cable, "master", bridge, "up")
    for settings in (("address", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
        _ip("-netns", name, *settings)
    return Host(address, ("ip", "netns", "exec", name), cable)


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)
