"""What a sync says: its start, its commits, and a summary in words and for programs that is what its tables hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import pytest

from destination_s3_spark.sync.story.story import EVERY_S
from unit_tests.lake.chain_reader import StreamName
from unit_tests.lake.contents import USERS
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, state, stream, users

ORDERS: StreamName = ("shop", "orders")
TYPED = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "age": {"type": "integer"}, "born": {"type": "string", "format": "date"}},
}
AGES = [*range(20), "old", "young"]


@dataclass(frozen=True, slots=True)
class Told:
    """A sync with values that do not fit, and the lake it left."""

    lake: Lake
    outcome: Outcome


@pytest.fixture(scope="module")
def told(make_lake: Callable[[], Lake]) -> Told:
    lake = make_lake()
    orders = stream("orders", mode="append_dedup", primary_key=[["id"]], cursor_field=["id"])
    people = [record({"id": number, "age": age, "born": "soon" if number == 3 else "2020-01-02"}) for number, age in enumerate(AGES)]
    messages = [*people, state(1), *users([*range(30), *range(10)], "orders"), state(2, "orders"), complete(), complete("orders")]
    streams = catalog(stream(schema=TYPED), orders, stream("nothing"))
    return Told(lake, lake.connector().write(streams, [*messages, complete("nothing")]).expect_success())


def test_the_start_says_what_where_and_by_what(told: Told) -> None:
    place = f"s3://{told.lake.bucket.name}/{BUCKET_PATH}/ at {told.lake.bucket.server.endpoint}"
    first = told.outcome.log_text.splitlines()[0]
    assert first.startswith(f"destination-s3-spark {version('destination-s3-spark')} syncs 3 streams to {place}: ")
    assert "shop.users (incremental, append), shop.orders (incremental, append_dedup)" in first
    assert "As a connector of the registry: generations and stream statuses. Spark runs on local[2], records are typed " in first


def test_each_commit_is_a_line_in_words(told: Told) -> None:
    place = f"s3://{told.lake.bucket.name}/{BUCKET_PATH}/shop"
    assert f"shop.users: committed 22 records to {place}/users/ (2 files, " in told.outcome.log_text
    assert f"shop.orders: committed 40 records to {place}/orders/ (2 files, " in told.outcome.log_text
    assert "shop.orders: wrote 30 rows (1 file, " in told.outcome.log_text


def test_the_summary_in_words_names_every_stream(told: Told) -> None:
    assert "sync succeeded after " in told.outcome.log_text
    assert "shop.users: 22 records read, 22 committed, 22 rows in the table, 2 files, " in told.outcome.log_text
    assert (
        "3 values nulled or cut: age nulled 2 times (DESTINATION_SERIALIZATION_ERROR), born nulled 1 time (DESTINATION_SERIALIZATION_ERROR)"
        in told.outcome.log_text
    )
    assert "shop.orders: 40 records read, 40 committed, 30 rows in the table, 3 files, " in told.outcome.log_text
    assert "1 stream had no records: shop.nothing" in told.outcome.log_text


def test_the_summary_for_programs_is_what_the_tables_hold(told: Told) -> None:
    summary = told.outcome.summary
    chains = told.lake.chains()
    by_name = {(found["namespace"], found["name"]): found for found in summary["streams"]}
    assert list(by_name) == [USERS, ORDERS]
    for name, found in by_name.items():
        files = [file for block in chains[name].blocks for file in block["event"].get("files", ())]
        assert found["rows_in_table"] == len(told.lake.rows(name))
        assert (found["files_written"], found["bytes_written"]) == (len(files), sum(file["bytes"] for file in files))
    changes = Counter(change["field"] for row in told.lake.rows(USERS) for change in row["_airbyte_meta"]["changes"])
    assert {change["field"]: change["values"] for change in by_name[USERS]["values_changed"]} == changes == {"age": 2, "born": 1}
    assert (summary["ending"], summary["records_read"], summary["records_committed"]) == ("succeeded", 62, 62)
    assert summary["states_acknowledged"] == len(told.outcome.states) == 2
    assert summary["streams_without_records"] == ["shop.nothing"]
    assert {"opening", "reading", "landing", "committing", "merging", "publishing"} <= summary["seconds_by_phase"].keys()


def test_nothing_of_spark_or_java_is_said_and_nothing_of_the_data(told: Told) -> None:
    assert told.outcome.stderr == ""
    assert "young" not in told.outcome.log_text


def test_a_small_sync_has_no_heartbeat_and_the_summary_is_its_last_message(told: Told) -> None:
    """A busy machine may take longer than one heartbeat for it."""
    heartbeats = sum(line.startswith("after ") for line in told.outcome.log_text.splitlines())
    assert heartbeats <= told.outcome.summary["seconds"] // EVERY_S
    assert "sync summary as JSON: " in told.outcome.messages[-1]["log"]["message"]
