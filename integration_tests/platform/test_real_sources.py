"""Sources from PyPI, read as Airbyte reads them, into the installed connector: both die at random moments, and the platform tries again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integration_tests.lake import ProcessLake
from integration_tests.platform.api import Api, manifest, running_api
from integration_tests.platform.attempt import Attempt, Deaths, run
from integration_tests.platform.sources import RealSource, installed, selected
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.sync.platform.connection import Connection, Definition, JobKind
from unit_tests.sync.platform.ideal import LEAST_PERCENT
from unit_tests.sync.platform.orchestrator import StreamName, name_of

pytestmark = pytest.mark.slow

SEED = 8
SECOND_BATCH_AGE = {"max_batch_age_s": 1}


@dataclass
class Replication:
    """A connection between a real source and the installed connector, and the tables that it fills."""

    source: RealSource
    connection: Connection
    lake: ProcessLake
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    messages: int = 0

    def __post_init__(self) -> None:
        self.connector = self.lake.connector(batching=SECOND_BATCH_AGE)

    def job(self, kind: JobKind = JobKind.SYNC, *, deadly: int = 0) -> Iterator[Attempt]:
        """The attempts of a job: `deadly` ones in which somebody dies, and then those that it takes to succeed, of which there is one."""
        job = self.connection.start_job(kind)
        for _ in range(deadly):
            attempt = run(job, self.source, self.connector, self.deaths())
            self.lake.verify()
            yield attempt
            if attempt.succeeded:
                return
        attempt = run(job, self.source, self.connector)
        self.messages = attempt.delivered
        yield attempt

    def succeed(self) -> None:
        """A job in which nobody dies."""
        (attempt,) = self.job()
        assert attempt.succeeded, attempt.outcome.describe()
        self.lake.verify_at_rest()

    def column(self, name: str, stream: StreamName) -> list[int]:
        """A column of a table, sorted; nothing where there is no table."""
        tables = self.lake.tables({stream})
        return sorted(row[name] for row in tables.get(stream, ()))

    def closed(self, stream: StreamName) -> bool:
        """Whether the last session of a table ended cleanly, after which nothing is recognised that comes again."""
        chains = self.lake.chains()
        return stream in chains and chains[stream].closed

    def deaths(self) -> Deaths:
        """Who dies in an attempt, and when."""
        chance = self.chance
        moment, delay_s = chance.randint(1, self.messages), chance.choice((0.0, 0.5, 1.5, 3.0))
        match chance.choice(("source", "source", "destination", "both")):
            case "source":
                return Deaths(source_after=moment, undelivered=chance.choice((0, 0, 7)), grace_s=30)
            case "destination":
                return Deaths(destination_after=moment, destination_delay_s=delay_s)
        return Deaths(source_after=moment, destination_after=moment, destination_delay_s=delay_s)


Make = Callable[..., Replication]


@pytest.fixture
def replication(moto: S3Server, tmp_path: Path) -> Make:
    """`replication(environment, program, config, definition, modes)`: `modes` are the sync modes of source and destination by stream."""

    def make(
        environment: str, program: str, config: dict[str, object], definition: Definition, modes: dict[str, tuple[str, str]]
    ) -> Replication:
        (tmp_path / "source").mkdir()
        source = RealSource(installed(environment, program), config, tmp_path / "source")
        offered = source.discover()
        streams = [selected(offered[name], *chosen) for name, chosen in modes.items()]
        return Replication(source, Connection(definition, streams), ProcessLake.of(new_bucket(moto), tmp_path / "lake"))

    return make


USERS: StreamName = (None, "users")
PRODUCTS: StreamName = (None, "products")
CUSTOMERS: StreamName = (None, "customers")
PEOPLE: StreamName = (None, "people")
EVENTS: StreamName = (None, "events")


@pytest.mark.nightly
@pytest.mark.parametrize("definition", list(Definition), ids=lambda one: one.value)
def test_faker_whose_full_refreshes_checkpoint_as_they_go(replication: Make, definition: Definition) -> None:
    """Its last STATE looks like the ones before, so a custom connector cannot know the end: it may lose what it is allowed to."""
    config: dict[str, object] = {"count": 600, "seed": 1, "records_per_slice": 100, "parallelism": 1, "always_updated": True}
    modes = {
        "products": ("full_refresh", "overwrite_dedup"),
        "users": ("full_refresh", "overwrite_dedup"),
        "purchases": ("incremental", "append_dedup"),
    }
    faker = replication("cdk6", "source-faker", config, definition, modes)
    faker.succeed()
    whole = {stream: faker.column("id", stream) for stream in map(name_of, faker.connection.streams)}
    assert (whole[USERS], whole[PRODUCTS]) == (list(range(1, 601)), list(range(1, 101)))

    for attempt in faker.job(deadly=1):
        for stream, ids in whole.items():
            found = faker.column("id", stream)
            least = LEAST_PERCENT if definition is Definition.CUSTOM and stream[1] != "purchases" else 100
            assert len(set(found)) == len(found) >= len(ids) * least / 100, f"{stream}: {attempt.outcome.describe()}"
    assert attempt.succeeded, attempt.outcome.describe()
    assert {stream: faker.column("id", stream) for stream in whole} == whole
    faker.lake.verify_at_rest()

    (cleared,) = faker.job(JobKind.CLEAR)  # no message at all comes of it, so only statuses tell it from a source that died at once
    if definition is Definition.CUSTOM:
        cleared.outcome.expect_failure("transient_error")
    assert cleared.succeeded is (definition is Definition.REGISTRY)
    assert [len(faker.column("id", stream)) for stream in whole] == [0 if cleared.succeeded else len(ids) for ids in whole.values()]


def test_hardcoded_records_whose_states_come_at_the_end(replication: Make) -> None:
    """Nothing is committed of a stream before its end, so every table is whole at all times."""
    modes = {
        "products": ("full_refresh", "overwrite"),
        "customers": ("full_refresh", "append"),
        "dummy_fields": ("full_refresh", "overwrite"),
    }
    records = replication("cdk7", "source-hardcoded-records", {"count": 200}, Definition.CUSTOM, modes)
    records.succeed()
    most = 2
    for attempt in records.job(deadly=1):
        rows = {stream[1]: len(found) for stream, found in records.lake.tables().items()}
        assert (rows["products"], rows["dummy_fields"]) == (200, 200), attempt.outcome.describe()
        assert rows["customers"] in range(200, 200 * most + 1, 200), attempt.outcome.describe()
        most += not attempt.succeeded and records.closed(CUSTOMERS)
    assert attempt.succeeded, attempt.outcome.describe()
    assert rows["customers"] >= 400
    records.lake.verify_at_rest()

    (cleared,) = records.job(JobKind.CLEAR)
    assert cleared.succeeded, cleared.outcome.describe()
    assert set(map(len, records.lake.tables().values())) == {0}
    records.lake.verify_at_rest()


@pytest.fixture
def api() -> Iterator[Api]:
    with running_api() as running:
        yield running


@pytest.mark.nightly
def test_a_low_code_source_whose_api_also_fails(replication: Make, api: Api) -> None:
    api.people, api.events = 170, 40
    modes = {"people": ("full_refresh", "overwrite"), "events": ("incremental", "append")}
    source = replication("cdk7", "source-declarative-manifest", manifest(api.address), Definition.REGISTRY, modes)
    source.succeed()
    people = list(range(170))
    assert (source.column("id", PEOPLE), source.column("id", EVENTS)) == (people, list(range(40)))

    api.people, api.events = 60, 110
    api.answers, api.fails_after = 0, source.chance.randint(1, 8)
    job = source.connection.start_job()
    failed = run(job, source.source, source.connector)
    assert failed.source_exit_code != 0
    api.fails_after = None
    for deaths in (source.deaths(), Deaths()):
        source.lake.verify()
        assert source.column("id", PEOPLE) in (people, list(range(60)))
        assert len(set(source.column("id", EVENTS))) == len(source.column("id", EVENTS)) >= 40
        last = run(job, source.source, source.connector, deaths)
    assert last.succeeded, last.outcome.describe()
    assert source.column("id", PEOPLE) == list(range(60))
    assert source.column("id", EVENTS) == list(range(110))
    source.lake.verify_at_rest()
