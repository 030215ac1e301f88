"""One attempt with real processes: a source, the installed connector, and between them what Airbyte's orchestrator does."""

from __future__ import annotations

import subprocess
import threading
from collections import deque
from dataclasses import dataclass, field

from integration_tests.connector import TIMEOUT_S, Connector, Sync
from integration_tests.platform.sources import RealSource
from unit_tests.lake.outcome import Outcome
from unit_tests.sync.platform.connection import Job, JobKind
from unit_tests.sync.platform.orchestrator import Orchestrator

QUEUE = 200
"""Messages that the platform holds between a source and a destination that reads more slowly."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """Whom SIGKILL hits, and when: the source after so many messages, the destination so many seconds after so many.

    `undelivered`: messages in the platform's queue that are lost with the source. `grace_s`: how long a destination may work on after that.
    """

    source_after: int | None = None
    undelivered: int = 0
    destination_after: int | None = None
    destination_delay_s: float = 0.0
    grace_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of an attempt. `delivered` counts the messages that the destination was sent."""

    source_exit_code: int
    outcome: Outcome
    delivered: int

    @property
    def succeeded(self) -> bool:
        return (self.source_exit_code, self.outcome.exit_code) == (0, 0)

    @property
    def killed(self) -> bool:
        """Whether the destination was."""
        return self.outcome.exit_code < 0


def run(job: Job, source: RealSource, connector: Connector, deaths: Deaths = Deaths()) -> Attempt:
    """One attempt of the job. The connection then has the states that the destination acknowledged."""
    job.start_attempt()
    catalog, states = job.catalog(), job.connection.state.messages
    orchestrator = Orchestrator(catalog, job.connection.definition.supports_refreshes)
    with connector.start(catalog) as sync:
        delivery = Delivery(sync, deaths)
        if job.kind is JobKind.CLEAR:
            exit_code = 0
            delivery.send([line for line in map(orchestrator.take, job.empty_source()) if line])
        else:
            exit_code = relay(source.start(catalog, states), orchestrator, delivery, deaths)
        delivery.send(orchestrator.end(exit_code))
        sync.end_input()
        limit_s = TIMEOUT_S if exit_code == 0 else deaths.grace_s
        guard = threading.Timer(limit_s, sync.kill)
        guard.start()
        outcome = sync.finish()
        guard.cancel()
        delivery.stop()
    for state in outcome.states:
        job.connection.state.take(state)
    return Attempt(exit_code, outcome, delivery.count)


def relay(process: subprocess.Popen[bytes], orchestrator: Orchestrator, delivery: Delivery, deaths: Deaths) -> int:
    """Deliver what the source sends until it ends or dies, and return its exit code. A destination that died ends it, too."""
    assert process.stdout is not None
    queue: deque[bytes] = deque()
    forwarded = 0
    for line in process.stdout:
        message = orchestrator.take(line)
        if message is None:
            continue
        queue.append(message)
        forwarded += 1
        if forwarded == deaths.source_after or delivery.sync.ended:
            process.kill()
            break
        if len(queue) > QUEUE:
            delivery.send([queue.popleft()])
    process.stdout.close()
    exit_code = process.wait(TIMEOUT_S)
    kept = len(queue) if exit_code == 0 else max(0, len(queue) - deaths.undelivered)
    delivery.send(list(queue)[:kept])
    return exit_code


@dataclass
class Delivery:
    """The way to the destination, which dies on it when its time has come."""

    sync: Sync
    deaths: Deaths
    count: int = 0
    _timers: list[threading.Timer] = field(default_factory=list)

    def send(self, lines: list[bytes]) -> None:
        for line in lines:
            self.sync.send(line)
            self.count += 1
            if self.count == self.deaths.destination_after:
                self._timers.append(threading.Timer(self.deaths.destination_delay_s, self.sync.kill))
                self._timers[-1].start()

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
