"""`merge` as an operator or a scheduler runs it: beside syncs, ended at each of its calls, and after syncs that died."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import AT_ONCE, Lake
from unit_tests.lake.memory_bucket import Crash, Fate, S3Call
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.sampling import sample

SCHEMA: JsonObject = {"type": "object", "properties": {"id": {"type": "integer"}, "round": {"type": "integer"}}}
RAW: JsonObject = {"raw_tables": True, "history": [{"stream": "versioned"}, {"stream": "even*"}]}
LATER: JsonObject = {**RAW, "merge": [{"stream": "*", "at_least_every_hours": 1000}]}
DEDUP: JsonObject = {"schema": SCHEMA, "mode": "append_dedup", "primary_key": [["id"]], "cursor_field": ["round"]}
MOST_CALLS = 90
"""More than a merge of one table makes."""
MOMENTS = 30
"""So many of these calls are tried with each commit, all at night."""


def dedup(*names: str, sync_id: int = 7, **more: Any) -> JsonObject:
    return catalog(*(stream(name, sync_id=sync_id, **DEDUP, **more) for name in names))


def messages(number: int, *names: str) -> list[bytes]:
    """Of each stream: two rows that change in every round, and one that is new."""
    return [
        line
        for name in names
        for line in (*(record({"id": one, "round": number}, name) for one in (1, 2, 100 + number)), state(number, name), complete(name))
    ]


def after(*rounds: int) -> list[tuple[int, int]]:
    """A table, as (id, round), after the merge of these rounds."""
    return [(1, rounds[-1]), (2, rounds[-1]), *((100 + number, number) for number in rounds)]


def table(lake: Lake, name: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["round"]) for row in lake.rows(("shop", name)))


def versions(lake: Lake, name: str) -> list[tuple[int, int, bool]]:
    """A history, as (id, round, whether it is valid)."""
    keys = lake.bucket.list_keys(f"{BUCKET_PATH}/airbyte_history/shop/{name}/1/")
    files = [pq.read_table(pa.BufferReader(lake.bucket.read(key))) for key in keys]
    return sorted((row["id"], row["round"], row["_is_current"]) for file in files for row in file.to_pylist())


def every_version(*rounds: int) -> list[tuple[int, int, bool]]:
    """The history after these rounds."""
    of_two = [(one, number, number == rounds[-1]) for one in (1, 2) for number in rounds]
    return sorted([*of_two, *((100 + number, number, True) for number in rounds)])


def operate(connector: InlineConnector, command: str, *options: str) -> tuple[int, str]:
    done = connector.run(command, *options)
    assert done.exit_code in (0, 1), done.describe()
    return done.exit_code, done.text


@dataclass(frozen=True, slots=True)
class Moment:
    """Before a call of this action on such keys, or on those of the table's files, with so many like it before."""

    action: str
    key: str = ""
    skip: int = 0


OVERTAKEN = {
    "before_it_opens_the_table": Moment("PutObject", "/chain/"),
    "while_it_merges": Moment("CreateMultipartUpload"),
    "before_its_block": Moment("PutObject", "/chain/", skip=1),
    "after_its_block": Moment("CompleteMultipartUpload"),
}
"""When another sync begins, by the name of the table that is merged."""
TABLES = ("users", "orders", "versioned", "beside_running", "beside_idle", "died", "refreshed", *OVERTAKEN)


@pytest.fixture(scope="module")
def lake(make_lake: Callable[[], Lake]) -> Lake:
    """Tables with a merged round and one that waits, and one that has nothing to merge. Each test has some of its own."""
    lake = make_lake()
    connector = lake.connector(tables=LATER)
    viewers = stream("viewers", schema=SCHEMA)
    connector.write(catalog(*dedup(*TABLES)["streams"], viewers), messages(0, *TABLES, "viewers")).expect_success()
    connector.write(dedup(*TABLES), messages(1, *TABLES)).expect_success()
    assert table(lake, "users") == after(0)
    return lake


def test_it_merges_what_waits_and_the_tables_are_as_after_a_sync(lake: Lake) -> None:
    connector = lake.connector(tables=RAW)
    connector.write(dedup("users"), messages(2, "users"), tables=LATER).expect_success()
    code, said = operate(connector, "merge", "--stream", "us*")
    assert code == 0
    assert re.fullmatch(r"shop.users: merged 6 rows of 2 runs \([\d.]+ kB\) in [\d.]+ s, 5 rows in the table\n", said)
    assert (table(lake, "users"), table(lake, "orders")) == (after(0, 1, 2), after(0))
    code, said = operate(connector, "merge", "--stream", "*ers")
    assert (code, [line.partition(":")[0] for line in said.splitlines()]) == (0, ["shop.orders"])
    assert table(lake, "orders") == after(0, 1)
    lake.verify_at_rest({"users", "orders", "viewers"})
    assert operate(connector, "merge", "--stream", "*ers") == (0, "nothing to merge\n")

    connector.write(dedup("users", "orders"), messages(3, "users", "orders")).expect_success()
    assert (table(lake, "users"), table(lake, "orders")) == (after(0, 1, 2, 3), after(0, 1, 3))
    lake.verify_at_rest({"users", "orders"})


def test_a_history_gets_every_version_that_waited(lake: Lake) -> None:
    connector = lake.connector(tables=RAW)
    connector.write(dedup("versioned"), messages(2, "versioned"), tables=LATER).expect_success()
    assert versions(lake, "versioned") == every_version(0)
    assert operate(connector, "merge", "--stream", "versioned")[0] == 0
    assert (table(lake, "versioned"), versions(lake, "versioned")) == (after(0, 1, 2), every_version(0, 1, 2))
    code, said = operate(connector, "verify", "--stream", "versioned")
    assert (code, "all is well" in said) == (0, True), said
    connector.write(dedup("versioned"), messages(3, "versioned")).expect_success()
    assert versions(lake, "versioned") == every_version(0, 1, 2, 3)
    lake.verify_at_rest({"versioned"})


def test_a_sync_that_is_running_keeps_its_table_and_the_others_are_merged(lake: Lake) -> None:
    running, sent = replace(lake, limits=AT_ONCE, states=[]), messages(2, "beside_running")

    def blocks() -> Iterator[bytes]:
        yield from sent[:-1]
        yield from running.silence(1)
        code, said = operate(lake.connector(tables=RAW), "merge", "--stream", "beside_*")
        assert code == 1
        assert "shop.beside_running: failed. A sync may be writing to it (sync id 8, " in said
        assert "shop.beside_idle: merged 3 rows of 1 run" in said
        yield sent[-1]

    running.sync(dedup("beside_running", sync_id=8), blocks(), tables=RAW)
    assert (table(lake, "beside_running"), table(lake, "beside_idle")) == (after(0, 1, 2), after(0, 1))
    lake.verify()


@pytest.fixture(scope="module")
def overtaken(lake: Lake) -> dict[str, tuple[int, str]]:
    """What the command said of each table, which a sync took over, and left as expected; and so did one more sync of all."""
    connector, found = lake.connector(tables=RAW), {}
    for name, moment in OVERTAKEN.items():
        won: list[Outcome] = []
        lake.memory.hook = _runs_once(moment, name, partial(connector.write, dedup(name, sync_id=9), messages(2, name)), won)
        found[name] = operate(lake.connector(tables=RAW), "merge", "--stream", name)
        lake.memory.hook = None
        assert len(won) == 1, name
        assert table(lake, name) == after(0, 1, 2), name
    connector.write(dedup(*OVERTAKEN), messages(3, *OVERTAKEN)).expect_success()
    assert {name: table(lake, name) for name in OVERTAKEN} == dict.fromkeys(OVERTAKEN, after(0, 1, 2, 3))
    lake.verify_at_rest(set(OVERTAKEN))
    return found


def _runs_once(moment: Moment, name: str, sync: Callable[[], Outcome], won: list[Outcome]) -> Callable[[S3Call], None]:
    """Return a hook that runs a sync at the moment. The calls of the sync pass."""
    alike, key = count(), moment.key or f"/shop/{name}/"

    def hook(call: S3Call) -> None:
        if call.action == moment.action and key in call.key and next(alike) == moment.skip:
            won.append(sync().expect_success())

    return hook


@pytest.mark.parametrize("moment", OVERTAKEN)
def test_a_sync_that_begins_meanwhile_goes_first(overtaken: dict[str, tuple[int, str]], moment: str) -> None:
    code, said = overtaken[moment]
    if moment == "before_it_opens_the_table":
        assert (code, said) == (0, f"shop.{moment}: nothing to merge any more\n")
    else:
        assert code == 1
        assert f"shop.{moment}: failed. A sync has begun and taken the table over" in said


def test_after_a_sync_that_died_it_merges_when_told_and_the_next_attempt_doubles_nothing(lake: Lake) -> None:
    connector, files = lake.connector(tables=RAW), f"{BUCKET_PATH}/shop/"
    lake.memory.hook = lambda call: Fate.CRASH_BEFORE if call.action == "CreateMultipartUpload" and call.key.startswith(files) else None
    with pytest.raises(Crash):
        lake.sync(dedup("died"), messages(2, "died"), tables=RAW)
    lake.memory.hook = None
    code, said = operate(connector, "merge", "--stream", "died")
    assert code == 1
    assert "A sync may be writing to it (sync id 7, " in said
    assert operate(connector, "merge", "--take-over", "--stream", "died")[0] == 0
    assert table(lake, "died") == after(0, 1, 2)
    connector.write(dedup("died"), messages(2, "died")).expect_success()
    assert len(lake.raw_rows(("shop", "died"))) == 9
    assert table(lake, "died") == after(0, 1, 2)
    lake.verify_at_rest({"died"})


def test_a_refresh_that_is_not_finished_is_left_alone(lake: Lake) -> None:
    connector = lake.connector(tables=RAW)
    sent, refresh = messages(2, "refreshed"), dedup("refreshed", generation=2, minimum_generation=2)
    lake.killed(refresh, sent[:-1], tables=RAW)
    code, said = operate(connector, "merge", "--take-over", "--stream", "refreshed")
    assert (code, said) == (
        0,
        "shop.refreshed: not merged: a refresh of it is not finished, and what it brings will replace what waits\nnothing to merge\n",
    )
    assert table(lake, "refreshed") == after(0)
    connector.write(refresh, sent[-2:]).expect_success()
    assert table(lake, "refreshed") == after(2)


def dies(lake: Lake, name: str, calls: int) -> bool:
    """Run the command for a table, and end it after so many calls about the table. Returns whether it made as many."""
    so_far = count()

    def hook(call: S3Call) -> Fate | None:
        is_about_it = name in call.key or call.action in {"DeleteObjects", "ListMultipartUploads"}
        return Fate.CRASH_AFTER if is_about_it and next(so_far) == calls else None

    lake.memory.hook = hook
    try:
        assert lake.connector(tables=RAW).run("merge", "--stream", name).exit_code == 0
    except Crash:
        return True
    finally:
        lake.memory.hook = None
    return False


def test_killed_at_any_call_it_leaves_tables_that_the_next_merge_or_the_next_sync_makes_right(make_lake: Callable[[], Lake]) -> None:
    lake, moments = make_lake(), sample(range(MOST_CALLS), MOMENTS)
    names = [f"{'even' if number % 2 == 0 else 'odd'}_{number:02}" for number in range(len(moments))]
    connector = lake.connector(tables=RAW)
    for number in range(2):
        connector.write(dedup(*names), messages(number, *names), tables=LATER).expect_success()
    died: list[str] = []
    for calls, name in zip(moments, names, strict=True):
        if not dies(lake, name, calls):
            break
        died.append(name)
        assert table(lake, name) in (after(0), after(0, 1)), f"killed after {calls} calls"
    assert 15 < moments[len(died)] < MOST_CALLS, died
    lake.verify()

    assert operate(connector, "merge", "--stream", "even*")[0] == 0
    whole(lake, [name for name in died if name.startswith("even")], after(0, 1))
    connector.write(dedup(*names), messages(2, *names)).expect_success()
    whole(lake, names, after(0, 1, 2))
    even = [name for name in names if name.startswith("even")]
    assert {name: versions(lake, name) for name in even} == dict.fromkeys(even, every_version(0, 1, 2))
    lake.verify_at_rest()


def whole(lake: Lake, names: Sequence[str], expected: list[tuple[int, int]]) -> None:
    tables = lake.tables([("shop", name) for name in names])
    assert {stream: sorted((row["id"], row["round"]) for row in rows) for stream, rows in tables.items()} == {
        ("shop", name): expected for name in names
    }
    lake.verify()
