"""The proxy between processes and an S3 server that makes chosen calls fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from unit_tests.s3_proxy import Call, Reply, S3Proxy


class When(Enum):
    """Whether the server sees the request that fails."""

    BEFORE = "before the server acts"
    AFTER = "after the server acted"


@dataclass(slots=True)
class Fault:
    """What to do to `times` matching calls after the first `skip`: run `effect`, and answer `status`.

    Status 0 drops the connection without an answer, and None gives the server's own answer.
    """

    action: str | None = None
    key_contains: str = ""
    only: Callable[[Call], bool] = lambda _: True
    status: int | None = 503
    code: str = "SlowDown"
    when: When = When.BEFORE
    times: float = float("inf")
    skip: int = 0
    effect: Callable[[Call], object] | None = None
    message: Callable[[Call], str] = lambda _: "scripted by the test"
    seen: int = field(default=0, init=False)

    def takes(self, call: Call) -> bool:
        """Whether this call is one of those to fail. Counts it."""
        if (self.action not in (None, call.action)) or self.key_contains not in call.key or not self.only(call):
            return False
        self.seen += 1
        return self.skip < self.seen <= self.skip + self.times

    def reply(self, call: Call) -> Reply | None:
        """Do to the call what is to be done."""
        if self.effect and self.when is When.BEFORE:
            self.effect(call)
        own = call.forward() if self.when is When.AFTER or self.status is None else None
        if self.effect and self.when is When.AFTER:
            self.effect(call)
        if self.status is None:
            return own
        return Reply.error(self.status, self.code, self.message(call)) if self.status else None


class FaultProxy(S3Proxy):
    """The running proxy: `calls` so far, and the faults to inject."""

    def __init__(self, target: str, address: str) -> None:
        super().__init__(urlsplit(target).netloc, address)
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.script = self._reply

    def inject(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def forget(self) -> None:
        """Start anew: no calls, no faults."""
        with self._lock:
            self.calls = []
            self._faults.clear()

    def _reply(self, call: Call) -> Reply | None:
        with self._lock:
            fault = next((fault for fault in self._faults if fault.takes(call)), None)
        return call.forward() if fault is None else fault.reply(call)


@contextmanager
def fault_proxy(target: str, address: str = "127.0.0.1") -> Iterator[FaultProxy]:
    """Serve a proxy for the endpoint `target` on a free port of an address of this machine."""
    proxy = FaultProxy(target, address)
    try:
        yield proxy
    finally:
        proxy.close()
