"""Story of one sync: it logs the start, the heartbeat while the sync goes on, and the summary at its end, however it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from destination_s3_spark.config.config import Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.environment import package_version
from destination_s3_spark.kernel import HOW_LINES_ARE_TYPED
from destination_s3_spark.protocol.catalog import Catalog
from destination_s3_spark.protocol.messages import InputCounts
from destination_s3_spark.sync.spool import Spool
from destination_s3_spark.sync.story.lines import (
    Ending,
    Pulse,
    SyncFigures,
    heartbeat_line,
    start_line,
    stream_figures,
    summary_for_programs,
    summary_lines,
)
from destination_s3_spark.sync.story.phases import Phases
from destination_s3_spark.tables.stream_table import StreamTable

PACKAGE = "destination-s3-spark"
EVERY_S = 10.0
"""Seconds between two beats. A sync that ends earlier has none."""
LAST_BEAT_S = 1.0
"""Seconds to wait for a beat that is being written. It can only hang if the platform does not read the output."""

logger = logging.getLogger("airbyte")


class Story:
    """What a sync has done so far, as its parts have counted it. The record path counts nothing for it."""

    def __init__(self, catalog: Catalog, counts: InputCounts, phases: Phases, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._counts = counts
        self.phases = phases
        self._clock = clock
        self._began = clock()
        self._tables: Mapping[int, StreamTable] = {}
        self._spool: Spool | None = None
        self._engine: Engine | None = None
        self._last: Pulse | None = None
        self.states_acknowledged = 0

    def watch(self, tables: Mapping[int, StreamTable], spool: Spool, engine: Engine) -> None:
        """Take the figures from these parts of the sync from now on."""
        self._tables, self._spool, self._engine = tables, spool, engine

    @contextmanager
    def logged(self, config: Config, place: str) -> Iterator[None]:
        """Run a sync inside. Log its start, its heartbeat and its summary."""
        master = config.spark.master
        typed = HOW_LINES_ARE_TYPED if is_local(master) else f"{HOW_LINES_ARE_TYPED} by workers of this machine"
        logger.info("%s", start_line(_version(), typed, self._catalog, master, place))
        ending = Ending.STOPPED
        try:
            with Heartbeat(lambda: heartbeat_line(self.pulse())):
                yield
            ending = Ending.SUCCEEDED
        except Exception:
            ending = Ending.FAILED
            raise
        finally:
            self._sum_up(ending)

    def pulse(self) -> Pulse:
        """Return the figures of this moment. The rates are those since the last call."""
        now = self._clock() - self._began
        records, size = (0, 0) if self._spool is None else self._spool.totals()
        last = self._last
        since, records_before, size_before = (0.0, 0, 0) if last is None else (last.seconds, last.records_read, last.bytes_read)
        passed = max(now - since, 0.001)
        silent = self.phases.silent_since
        self._last = Pulse(
            seconds=now,
            records_read=records,
            bytes_read=size,
            records_per_s=(records - records_before) / passed,
            bytes_per_s=(size - size_before) / passed,
            records_committed=sum(table.writer.written.handled for table in self._tables.values()),
            spark_starting=self._engine is not None and self._engine.session.starting,
            activities=self.phases.active,
            silent_s=None if silent is None else self._clock() - silent,
        )
        return self._last

    def figures(self, ending: Ending) -> SyncFigures:
        spool, counts = self._spool, self._counts
        streams = [] if spool is None else [stream_figures(index, table, spool) for index, table in self._tables.items()]
        return SyncFigures(
            version=_version(),
            ending=ending,
            seconds=round(self._clock() - self._began, 3),
            seconds_by_phase={phase.value: round(seconds, 3) for phase, seconds in self.phases.seconds.items()},
            records_read=sum(stream.records_read for stream in streams),
            bytes_read=sum(stream.bytes_read for stream in streams),
            records_committed=sum(stream.records_committed for stream in streams),
            states_read=counts.states,
            states_acknowledged=self.states_acknowledged,
            messages_ignored=counts.ignored.total(),
            records_of_unknown_streams=counts.unknown_streams.total(),
            streams=tuple(stream for stream in streams if not stream.empty),
            streams_without_records=tuple(stream.full_name for stream in streams if stream.empty),
        )

    def _sum_up(self, ending: Ending) -> None:
        """Log the summary. A failure of that must not hide how the sync ended."""
        try:
            figures = self.figures(ending)
            for line in summary_lines(figures):
                logger.info("%s", line)
            logger.info("%s", summary_for_programs(figures))
        except Exception as error:  # noqa: BLE001
            logger.warning("the sync cannot be summed up (%s)", type(error).__name__)


def _version() -> str:
    """Return the connector's version. Nothing else depends on it, so a copy that is not installed runs as well."""
    return package_version(PACKAGE) or "of unknown version"


class Heartbeat:
    """A thread that logs what `beat` returns. It sleeps in between, and neither a beat nor its failure disturbs the sync."""

    def __init__(self, beat: Callable[[], str], every_s: float | None = None) -> None:
        self._beat = beat
        self._every_s = EVERY_S if every_s is None else every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        with suppress(RuntimeError):  # the system refuses more threads, which the sync will notice where it needs one
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Return when no further beat will be written."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(LAST_BEAT_S)

    def _run(self) -> None:
        due = time.monotonic() + self._every_s
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += self._every_s
            try:
                logger.info("%s", self._beat())
            except Exception:  # a sync must not fail because of what is said about it
                logger.debug("the heartbeat has failed and ends", exc_info=True)
                return
