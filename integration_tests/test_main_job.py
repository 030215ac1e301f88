"""The main job by the installed command, on a real S3 server and a real Spark: `spec`, `check`, syncs that append, merge, refresh, die."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import destination_s3_spark
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.histories import StreamSync, sync, visible
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome

NAMESPACE = "shop"
SYNCS = (
    {"events": StreamSync([1, 2]), "customers": StreamSync([1, 2], "append_dedup"), "prices": StreamSync([1, 2])},
    {
        "events": StreamSync([3], status=None),
        "customers": StreamSync([2, 3], "append_dedup", status=None),
        "prices": StreamSync([3], generation=2, minimum=2, status=None),
    },
    {"events": StreamSync([4]), "customers": StreamSync([3, 4], "append_dedup"), "prices": StreamSync([4], generation=2, minimum=2)},
)
"""The second one is killed once its STATEs came back, and the third one is the source that goes on behind them."""
Seen = dict[str, list[tuple[int, int]]]
"""(id, round it was sent in) of each row of each table."""
BEFORE: Seen = {"customers": [(1, 1), (2, 1)], "prices": [(1, 1), (2, 1)]}
"""What readers of tables that are merged and replaced as a whole see until that is done."""


@dataclass(frozen=True)
class Story:
    """What readers saw after each sync, and what each sync said."""

    seen: list[Seen]
    outcomes: list[Outcome]


def see(lake: ProcessLake) -> Seen:
    return {name: sorted((row["id"], row["round"]) for row in rows) for name, rows in visible(lake, NAMESPACE).items()}


@pytest.fixture(scope="module", params=["moto", pytest.param("strict_server", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> S3Server:
    """Each S3 server. Ceph takes half a minute to start."""
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def story(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Three tables over three syncs."""
    lake = ProcessLake.of(new_bucket(server), tmp_path_factory.mktemp("main-job"))
    connector = lake.connector(batching={"max_batch_age_s": 1})
    outcomes, seen = [sync(connector, NAMESPACE, SYNCS[0], 1).expect_success()], [see(lake)]

    streams = SYNCS[1]
    with connector.start(catalog(*(part.entry(name, NAMESPACE, 2) for name, part in streams.items()))) as killed:
        killed.send(*(line for name, part in streams.items() for line in part.messages(name, NAMESPACE, 2)))
        killed.wait_for_states(len(streams))
        outcomes.append(killed.kill().finish())
    lake.verify()
    seen.append(see(lake))

    outcomes.append(sync(connector, NAMESPACE, SYNCS[2], 3).expect_success())
    seen.append(see(lake))
    lake.verify_at_rest()
    return Story(seen, outcomes)


def test_appended_rows_are_there_exactly_once_although_a_sync_died(story: Story) -> None:
    assert [seen["events"] for seen in story.seen[1:]] == [[(1, 1), (2, 1), (3, 2)], [(1, 1), (2, 1), (3, 2), (4, 3)]]


def test_a_key_has_its_newest_row_and_none_is_seen_half_merged(story: Story) -> None:
    assert story.seen[1]["customers"] == BEFORE["customers"]
    assert story.seen[2]["customers"] == [(1, 1), (2, 2), (3, 3), (4, 3)]


def test_a_refresh_replaces_the_rows_once_it_is_complete(story: Story) -> None:
    assert story.seen[1]["prices"] == BEFORE["prices"]
    assert story.seen[2]["prices"] == [(3, 2), (4, 3)]


def test_each_state_comes_back_once_and_only_by_the_sync_that_received_it(story: Story) -> None:
    for number, outcome in enumerate(story.outcomes, start=1):
        cursors = [found["stream"]["stream_state"]["cursor"] for found in outcome.states]
        assert cursors == [number] * len(SYNCS[0])


@pytest.fixture
def lake(server: S3Server, tmp_path: Path) -> ProcessLake:
    return ProcessLake.of(new_bucket(server), tmp_path)


def test_check_succeeds_and_leaves_nothing_behind(lake: ProcessLake) -> None:
    outcome = lake.connector().check()
    assert outcome.exit_code == 0, outcome.describe()
    assert outcome.connection_status["status"] == "SUCCEEDED", outcome.describe()
    assert lake.bucket.list_keys() == []
    assert lake.bucket.open_uploads() == []


def test_spec_is_the_one_that_is_packaged(moto_lake: ProcessLake) -> None:
    with moto_lake.connector().run("spec") as process:
        outcome = process.end_input().finish()
    (message,) = outcome.of_type("SPEC")
    assert message["spec"] == json.loads(Path(destination_s3_spark.__file__).with_name("spec.json").read_bytes())
