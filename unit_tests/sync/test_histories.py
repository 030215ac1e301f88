"""Histories of deduplicated tables through whole syncs, against the table that plain Python keeps of each moment."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.parquet_footer import read_footer
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import MergeTime
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, state
from unit_tests.sampling import sample
from unit_tests.sync.logged_lake import manifests, records_of
from unit_tests.sync.process_ends import ends, ends_at
from unit_tests.sync.versioned_lake import (
    COLUMNS,
    HISTORY,
    Change,
    Life,
    Row,
    as_of,
    brief,
    check,
    history,
    ids_of_live_rows,
    kept_at,
    lines,
    moment,
    refresh,
    sync,
    users,
)

STEP = 13
"""With each commit, one end of a process in so many is tried."""
PAGE = Path(__file__).parents[2] / "docs" / "history.md"


def stored(lake: Lake, file: FileEntry) -> bytes:
    return lake.store.get(file.key)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": HISTORY})


def test_the_life_of_rows(lake: Lake) -> None:
    a, b = {"name": "a"}, {"name": "b"}
    sync(lake, Change(1, 1, a), Change(1, 2, b), Change(2, 1, a), Change(3, 1, a), Change(3, 4, None))
    first = [(1, "a", 1, 2), (1, "b", 2, None), (2, "a", 1, None), (3, "a", 1, 4, "deleted")]
    assert brief(history(lake)) == first
    sync(lake, Change(2, 5, a), Change(1, 2, b), Change(3, 1, a))  # the same values, and records that came before
    assert brief(history(lake)) == first
    sync(lake, Change(2, 3, b), Change(1, 0, b), Change(3, 2, b), Change(4, 7, a))  # records that are late, and a new row
    late = [(2, "a", 1, 3), (2, "b", 3, 5), (2, "a", 5, None), (3, "a", 1, 2), (3, "b", 2, 4, "deleted"), (4, "a", 7, None)]
    assert brief(history(lake)) == [(1, "b", 0, 1), (1, "a", 1, 2), (1, "b", 2, None), *late]
    before = {file.key for file in lake.live(FileKind.CLOSED)}
    sync(lake, Change(3, 2, b), Change(1, 0, b), Change(2, 3, b))
    assert {file.key for file in lake.live(FileKind.CLOSED)} == before
    sync(lake, Change(1, 9, None), Change(3, 10, b))
    assert brief(history(lake))[2:3] == [(1, "b", 2, 9, "deleted")]
    check(lake, history(lake))


def test_the_queries_of_the_page(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 2, {"name": "b"}))
    sync(lake, Change(1, 6, {"name": "c"}), Change(2, 7, None))
    store, folder = lake.store, tmp_path / "history"
    folder.mkdir()
    for found in store.list("lake/airbyte_history/"):
        (folder / found.key.rpartition("/")[2]).write_bytes(store.get(found.key))
    monkeypatch.chdir(folder)
    sql = PAGE.read_text().split("```sql\n")[1].split("```")[0]
    with duckdb.connect() as connection:
        view, *queries = [text for text in sql.split(";") if text.strip()]
        connection.execute(view)
        as_of_then, changed, deleted = [connection.execute(query).fetchall() for query in queries]
        names = [column[0] for column in connection.execute("DESCRIBE history").fetchall()]
    assert sorted((row[names.index("id")], row[names.index("name")]) for row in as_of_then) == [(1, "a"), (2, "b")]
    assert changed == [(1,)]
    assert [row[0] for row in deleted] == [2]


def test_a_refresh_is_compared_with_the_rows_it_replaces(lake: Lake) -> None:
    plain = {name: column for name, column in COLUMNS.items() if not name.startswith("_ab_cdc_")}

    def refresh(generation: int, *rows: Row, at: int) -> None:
        catalog = users(generation, generation, plain)
        lake.sync(catalog, [lines(rows, moment(at)), state(generation), complete()])

    refresh(1, {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}, at=1)
    current = lake.live(FileKind.CURRENT)
    refresh(2, {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}, at=2)
    assert lake.live(FileKind.CURRENT) == current
    refresh(3, {"id": 1, "name": "a"}, {"id": 2, "name": "x"}, {"id": 4, "name": "d"}, at=3)
    found = history(lake)
    assert [row[:4] for row in brief(found) if row[0] != 3] == [(1, "a", 1, None), (2, "b", 1, 3), (2, "x", 3, None), (4, "d", 3, None)]
    [deleted] = [row for row in found if row["id"] == 3]
    assert deleted["_is_deleted"]
    assert datetime.now(UTC) - deleted["_valid_to"] < timedelta(minutes=5)
    check(lake, found)
    refresh(4, at=4)
    assert not lake.live(FileKind.CURRENT)
    assert sum(row["_is_deleted"] for row in history(lake)) == 4


def test_a_record_that_the_table_forgot_at_a_refresh_adds_nothing(lake: Lake) -> None:
    a, b = Change(1, 1, {"name": "a"}), Change(2, 1, {"name": "b"})
    gone = [Change(1, 4, None), Change(2, 5, None)]
    sync(lake, a, b)
    sync(lake, *gone)
    refresh(lake, 2, Change(3, 6, {"name": "c"}), at=7)
    known = [(1, "a", 1, 4, "deleted"), (2, "b", 1, 5, "deleted"), (3, "c", 6, None)]
    assert brief(history(lake)) == known
    sync(lake, a, gone[0], Change(1, 2, {"name": "x"}), catalog=users(2))  # the end of a log that began before the refresh
    known = [(1, "a", 1, 2), (1, "x", 2, 4, "deleted"), (2, "b", 1, 5, "deleted"), (3, "c", 6, None)]
    assert brief(history(lake)) == known
    check(lake, history(lake))
    lake.started_at = moment(9)
    sync(lake, b, catalog=users(2))  # the table has the row again, but it was gone in between
    assert brief(history(lake)) == [*known[:3], (2, "b", 9, None), known[3]]
    refresh(lake, 3, Change(1, 1, {"name": "y"}), b, at=12)
    again = [(1, "y", 12, None), (2, "b", 1, 5, "deleted"), (2, "b", 9, None), (3, "c", 6, 12, "deleted")]
    assert brief(history(lake)) == [*known[:2], *again]
    check(lake, history(lake))


def test_another_value_at_an_old_time_counts_from_the_refresh_that_shows_it(lake: Lake) -> None:
    sync(lake, Change(1, 3, {"name": "a"}), Change(2, 3, {"name": "b"}))
    refresh(lake, 2, Change(1, 3, {"name": "x"}), Change(2, 2, {"name": "y"}), at=7)
    assert brief(history(lake)) == [(1, "a", 3, 7), (1, "x", 7, None), (2, "b", 3, 7), (2, "y", 7, None)]
    check(lake, history(lake))


def test_changes_that_wait_when_a_refresh_replaces_them_are_versions(lake: Lake) -> None:
    a = Change(1, 1, {"name": "a"})
    sync(lake, a, Change(2, 1, {"name": "a"}))
    lake.options = {"tables": {**HISTORY, "merge": [{"stream": "*", "when_runs_mb": 1_000_000}]}}
    sync(lake, Change(1, 2, {"name": "b"}), Change(1, 3, {"name": "c"}), Change(2, 3, {"name": "b"}), Change(3, 4, {"name": "d"}))
    refresh(lake, 2, Change(1, 3, {"name": "c"}), at=6, merged=False)  # shown before the next one begins
    lake.merge_limits = {"time": MergeTime(timedelta())}
    sync(lake, Change(1, 7, {"name": "e"}), catalog=users(2))
    lake.options = {"tables": HISTORY}
    refresh(lake, 3, Change(1, 9, {"name": "f"}), Change(2, 3, {"name": "b"}), at=10)
    versions = [(1, "a", 1, 2), (1, "b", 2, 3), (1, "c", 3, 7), (1, "e", 7, 9), (1, "f", 9, None)]
    second = [(2, "a", 1, 3), (2, "b", 3, 6, "deleted"), (2, "b", 10, None)]
    assert brief(history(lake)) == [*versions, *second, (3, "d", 4, 6, "deleted")]
    check(lake, history(lake))


def test_a_record_from_before_changes_that_wait_for_a_refresh_has_its_place_before_them(lake: Lake) -> None:
    lake.options = {"tables": {**HISTORY, "merge": [{"stream": "*", "when_runs_mb": 1_000_000}]}}
    sync(lake, Change(1, 1, {"name": "a"}))
    sync(lake, Change(2, 7, {"name": "b"}), Change(3, 7, {"name": "c"}), Change(3, 9, {"name": "d"}))
    refresh(lake, 2, Change(1, 1, {"name": "a"}), Change(2, 7, {"name": "b"}), Change(3, 9, {"name": "d"}), at=10, merged=False)
    lake.options = {"tables": HISTORY}
    sync(lake, Change(2, 4, {"name": "x"}), Change(3, 8, {"name": "y"}), catalog=users(2))
    of_3 = [(3, "c", 7, 8), (3, "y", 8, 9), (3, "d", 9, None)]
    assert brief(history(lake)) == [(1, "a", 1, None), (2, "x", 4, 7), (2, "b", 7, None), *of_3]
    check(lake, history(lake))


def test_a_refresh_that_waits_counts_from_its_own_start(lake: Lake) -> None:
    sync(lake, *(Change(id_, 1, {"name": "a"}) for id_ in (1, 2, 3)))
    refresh(lake, 2, Change(1, 1, {"name": "a"}), at=5, merged=False)
    lake.started_at = moment(8)
    sync(lake, Change(2, 7, {"name": "a"}), Change(1, 7, {"name": "b"}), catalog=users(2))
    versions = [(1, "a", 1, 7), (1, "b", 7, None), (2, "a", 1, 5, "deleted"), (2, "a", 7, None), (3, "a", 1, 5, "deleted")]
    assert brief(history(lake)) == versions
    check(lake, history(lake))


def test_a_history_begins_with_the_rows_there_are_and_ends_beside_the_table(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.options = {}
    sync(lake, Change(1, 1, {"name": "a"}), Change(2, 1, {"name": "b"}))
    lake.options = {"tables": HISTORY}
    sync(lake, Change(2, 5, {"name": "c"}))
    begun = [(1, "a", 1, None), (2, "b", 1, 5), (2, "c", 5, None)]
    assert brief(history(lake)) == begun
    lake.options = {}
    sync(lake, Change(2, 6, {"name": "d"}))
    assert "its history 1 ends here" in caplog.text
    sync(lake, Change(2, 7, {"name": "e"}))
    assert caplog.text.count("ends here") == 1
    assert brief(history(lake)) == begun
    lake.options = {"tables": HISTORY}
    sync(lake, Change(2, 8, {"name": "f"}))
    assert brief(history(lake)) == begun
    assert brief(history(lake, 2)) == [(1, "a", 1, None), (2, "e", 7, 8), (2, "f", 8, None)]
    check(lake, history(lake, 2))


def test_only_named_columns_make_versions_and_another_key_another_history(lake: Lake) -> None:
    lake.options = {"tables": {"history": [{"stream": "users", "columns": ["name"]}]}}
    sync(lake, Change(1, 1, {"name": "a", "amount": 1}), Change(1, 2, {"name": "a", "amount": 2}), Change(2, 3, {"name": "b"}))
    assert brief(history(lake)) == [(1, "a", 1, None), (2, "b", 3, None)]
    recorded = lake.own_chain().head.schema or {}
    assert recorded["history"] == {"columns": ["name"], "validFrom": "_ab_cdc_updated_at"}
    sync(lake, Change(1, 5, {"name": "b"}), catalog=users(2, 2, key="name"))
    assert brief(history(lake)) == [(1, "a", 1, None), (2, "b", 3, None)]
    assert brief(history(lake, 2)) == [(1, "b", 5, None)]
    lake.options = {"tables": {"history": [{"stream": "users", "columns": ["nome"]}]}}
    with pytest.raises(ConfigError, match="'nome'"):
        sync(lake, Change(1, 6, None))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_type_that_changes_in_place_begins_another_history_with_all_rows_there_are(lake: Lake, waits: bool, raw: bool) -> None:
    later = {"merge": [{"stream": "*", "when_runs_mb": 1_000}]}
    rewriting = {**HISTORY, "schema_change": "rewrite", "raw_tables": raw}
    lake.options = {"tables": rewriting}
    sync(lake, Change(1, 1, {"name": "a", "amount": 1}), Change(2, 2, {"name": "b"}), Change(3, 3, {"name": "c"}))
    sync(lake, Change(1, 4, {"name": "a", "amount": 4}), Change(3, 5, None))
    before = history(lake)
    if waits:
        lake.options = {"tables": {**rewriting, **later}}
        sync(lake, Change(2, 6, {"name": "waits", "amount": 6}))
        assert history(lake) == before
        lake.options = {"tables": rewriting}
    texts = {**COLUMNS, "amount": {"type": ["null", "string"]}}
    sync(lake, Change(1, 7, {"name": "a", "amount": "seven"}), Change(3, 8, {"name": "back"}), catalog=users(columns=texts))
    assert history(lake) == before
    of_two = [(2, "b", 2, 6), (2, "waits", 6, None)] if waits else [(2, "b", 2, None)]
    earlier, ended = ([(1, "a", 1, 4)], [(3, "c", 3, 5, "deleted")]) if raw else ([], [])  # raw rows are typed anew, and all make versions
    assert brief(history(lake, 2)) == [*earlier, (1, "a", 4, 7), (1, "a", 7, None), *of_two, *ended, (3, "back", 8, None)]
    assert {row["amount"] for row in history(lake, 2)} == {"4", "seven", None, *(["6"] if waits else []), *(["1"] if raw else [])}
    check(lake, history(lake, 2))
    sync(lake, Change(1, 9, {"name": "z", "amount": "nine"}), catalog=users(columns=texts))
    assert brief(history(lake, 2))[1 + raw : 3 + raw] == [(1, "a", 7, 9), (1, "z", 9, None)]
    check(lake, history(lake, 2))


def test_valid_versions_are_rows_of_the_table_and_begin_when_these_changed(lake: Lake) -> None:
    lake.options = {"tables": HISTORY, "publish": {"delta": True}}
    sync(lake, *(Change(id_, 1, {"name": "a", "amount": id_}) for id_ in range(9)))
    [begun] = [pq.read_table(pa.BufferReader(stored(lake, file))) for file in lake.live(FileKind.FINAL)]
    sync(lake, Change(3, 4, {"name": "b"}), Change(4, 5, None), Change(10, 6, {"name": "c"}), Change(5, 7, {"name": "a", "amount": 5}))
    [final], [current] = ([stored(lake, file) for file in lake.live(kind)] for kind in (FileKind.FINAL, FileKind.CURRENT))
    table, versions = (pq.read_table(pa.BufferReader(file)) for file in (final, current))
    assert table.schema.equals(begun.schema, check_metadata=True)
    assert versions.select(table.column_names).equals(table)
    began = {row["id"]: (row["_valid_from"], row["_valid_from_sync_id"]) for row in versions.to_pylist()}
    assert began == {**{id_: (moment(1), 1) for id_ in (0, 1, 2, 5, 6, 7, 8)}, 3: (moment(4), 1), 10: (moment(6), 1)}
    footers = [read_footer(file, len(file)) for file in (final, current)]
    end, other_end = (footer.pages_end for footer in footers)
    assert final[:end] == current[:end]
    assert end < other_end
    check(lake, history(lake))
    log = lake.store.list("lake/users/_delta_log/")
    assert not any(b"_valid_from" in lake.store.get(found.key) for found in log)


def test_files_of_partitions_have_files_of_versions_beside_them(lake: Lake) -> None:
    lake.options = {"tables": {**HISTORY, "partition_by": [{"stream": "*", "column": "id", "transform": "identity"}]}}
    sync(lake, *(Change(id_, 1, {"name": "a"}) for id_ in range(5)))
    sync(lake, Change(1, 4, {"name": "b"}), Change(3, 5, {"name": "c"}), Change(4, 6, None), Change(7, 7, {"name": "d"}))
    current, final = lake.live(FileKind.CURRENT), lake.live(FileKind.FINAL)
    beside = {file.copy_of: file for file in current if file.copy_of is not None}
    rewritten = [file for file in final if file.key in beside]
    assert {"1", "3", "7"} <= {file.partition for file in rewritten}
    for file in rewritten:
        table, versions = (pq.read_table(pa.BufferReader(stored(lake, one))) for one in (file, beside[file.key]))
        assert versions.select(table.column_names).equals(table)
    sync(lake, Change(1, 8, None), Change(0, 9, {"name": "e"}), Change(7, 10, {"name": "f"}))
    found = history(lake)
    assert brief(row for row in found if row["id"] in (1, 7)) == [
        (1, "a", 1, 4), (1, "b", 4, 8, "deleted"), (7, "d", 7, 10), (7, "f", 10, None)
    ]  # fmt: skip
    check(lake, found)


def test_a_merge_reads_the_rows_of_both_files_once(lake: Lake) -> None:
    sync(lake, *(Change(id_, 1, {"name": "a"}) for id_ in range(9)))
    for changes in (
        [Change(3, 4, {"name": "b"})],
        [Change(3, 5, None), Change(5, 6, {"name": "c"}), Change(9, 7, {"name": "n"})],
    ):
        [final], [current] = lake.live(FileKind.FINAL), lake.live(FileKind.CURRENT)
        assert (current.copy_of, current.rows) == (final.key, final.rows)
        lake.store.delete([final.key])
        sync(lake, *changes)
    assert lake.ids_in_folder() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    found = history(lake)
    assert brief(row for row in found if row["id"] in (3, 5)) == [
        (3, "a", 1, 4), (3, "b", 4, 5, "deleted"), (5, "a", 1, 6), (5, "c", 6, None)
    ]  # fmt: skip
    check(lake, found)


def test_softly_deleted_rows_have_no_version_in_the_file_beside_them(lake: Lake) -> None:
    lake.options = {"tables": {**HISTORY, "cdc_deletion_mode": "soft"}}
    sync(lake, *(Change(id_, 1, {"name": f"n{id_}"}) for id_ in range(6)))
    sync(lake, Change(2, 3, None))
    sync(lake, Change(4, 5, {"name": "x"}))
    current = [(row["id"], row["name"]) for row in history(lake) if row["_is_current"]]
    assert current == [(0, "n0"), (1, "n1"), (3, "n3"), (4, "x"), (5, "n5")]
    [final], [versions] = (lake.live(kind) for kind in (FileKind.FINAL, FileKind.CURRENT))
    assert (final.rows, versions.rows, versions.copy_of) == (6, 5, None)
    check(lake, history(lake))


def test_a_merge_beside_softly_deleted_rows_reads_and_writes_each_file_once(lake: Lake) -> None:
    lake.options = {"tables": {**HISTORY, "cdc_deletion_mode": "soft"}}
    sync(lake, *(Change(id_, 1, {"name": "a"}) for id_ in range(6)))
    sync(lake, Change(2, 3, None))
    before = [lake.live(kind)[0].key for kind in (FileKind.FINAL, FileKind.CURRENT)]
    lake.memory.forget()
    sync(lake, Change(4, 5, {"name": "b"}))
    calls = Counter((call.action, call.key) for call in lake.memory.calls)
    after = [lake.live(kind)[0].key for kind in (FileKind.FINAL, FileKind.CURRENT)]
    assert [calls["GetObject", key] for key in before] == [1, 1]
    assert [calls["CreateMultipartUpload", key] for key in after] == [1, 1]
    assert not [key for action, key in calls if action == "GetObject" and key in after]


def test_a_log_that_begins_beside_a_history_has_the_rows_of_files_that_stay(lake: Lake) -> None:
    lake.merge_limits = {"least_file_bytes": 600_000}
    lake.merge_budget_bytes = 2**20
    sync(lake, *(Change(id_, 1, {"name": random.Random(id_).randbytes(10_000).hex()}) for id_ in range(300)))
    before = {file.key for file in lake.live(FileKind.CURRENT)}
    lake.options = {"tables": HISTORY, "change_log": {"enabled": True, "format": "jsonl"}}
    sync(lake, Change(3, 6, {"name": "z"}))
    assert before & {file.key for file in lake.live(FileKind.CURRENT)}
    [manifest] = manifests(lake)
    assert sorted(record["key"]["id"] for record in records_of(lake, manifest)) == list(range(300))
    check(lake, history(lake))


def test_files_of_versions_that_a_refresh_left_go_on_beside_other_files_of_the_table(lake: Lake) -> None:
    lake.merge_limits = small = {"least_file_bytes": 600_000}
    lake.merge_budget_bytes = 2**20
    rows = [Change(id_, 1, {"name": random.Random(id_).randbytes(10_000).hex(), "amount": 1}) for id_ in range(300)]
    sync(lake, *rows)
    before = {file.key for file in lake.live(FileKind.CURRENT)}
    assert len(before) > 4
    refresh(
        lake, 2, *rows[:150], Change(150, 3, {"name": "x"}), *rows[151:], *(Change(id_, 3, {"name": "n"}) for id_ in range(300, 400)), at=4
    )
    left = {file.key for file in lake.live(FileKind.CURRENT)} & before
    assert 0 < len(left) < len(before)
    lake.merge_limits = small
    changes = [Change(id_, 6, {"name": "z"}) for id_ in (0, 149, 299, 350)] + [Change(id_, 7, None) for id_ in (1, 151)]
    sync(lake, *changes, catalog=users(2))
    found = history(lake)
    check(lake, found)
    assert {row["id"]: row["name"] for row in found if row["_is_current"] and row["_valid_from"] == moment(6)} == dict.fromkeys(
        (0, 149, 299, 350), "z"
    )
    assert {row["id"] for row in found if row["_is_deleted"]} == {1, 151}
    assert sorted(row["id"] for row in found if row["_is_current"]) == lake.ids_in_folder()


@pytest.mark.parametrize("waits", [False, True])
def test_rows_that_were_deleted_softly_have_no_version_after_deletions_are_hard(lake: Lake, waits: bool) -> None:
    def options(deletion: str) -> dict[str, Any]:
        merge = [{"stream": "*", "when_runs_mb": 1_000_000}] if waits and deletion == "soft" else []
        return {"tables": {**HISTORY, "cdc_deletion_mode": deletion, "merge": merge}}

    lake.options = options("hard")
    sync(lake, *(Change(id_, 1, {"name": "a"}) for id_ in range(4)))
    lake.options = options("soft")
    sync(lake, Change(1, 2, None), Change(2, 2, None))
    lake.options = options("hard")
    sync(lake, Change(1, 4, {"name": "b"}), Change(3, 4, None))
    of_1 = [(1, "a", 1, 2, "deleted"), (1, "b", 4, None)]
    versions = [(0, "a", 1, None), *of_1, (2, "a", 1, 2, "deleted"), (3, "a", 1, 4, "deleted")]
    assert brief(history(lake)) == versions
    # A deletion is as hard as the merge that takes it.
    assert (lake.ids_in_folder(), ids_of_live_rows(lake)) == ([0, 1] if waits else [0, 1, 2], [0, 1])
    check(lake, history(lake))
    sync(lake, Change(2, 6, None), Change(3, 6, {"name": "c"}))
    assert brief(history(lake)) == [*versions, (3, "c", 6, None)]
    check(lake, history(lake))


def test_ended_versions_are_joined_and_expire(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.tables.history.group.MOST_CLOSED_FILES", 3)
    lake.merge_limits = {"least_file_bytes": 6_000}
    lake.merge_budget_bytes = 2**20
    changes = [Change(id_, at, {"name": f"{id_} {at}" * 40, "amount": at}) for at in range(1, 9) for id_ in range(100)]
    for at in range(1, 9):
        sync(lake, *(change for change in changes if change.at == at))
    assert len(lake.live(FileKind.CURRENT)) > 1
    rows = history(lake)
    check(lake, rows)
    assert [as_of(rows, at) for at in (1, 5, 8)] == [kept_at(changes, at) for at in (1, 5, 8)]
    assert len(rows) == 8 * 100
    lake.options = {"tables": {**HISTORY, "history_retention_days": 1}}
    monkeypatch.setattr(Chain, "now", lambda _: datetime.now(UTC) + timedelta(days=3))
    sync(lake, Change(1, 20, {"name": "x"}))
    assert len(history(lake)) in {100, 101}
    check(lake, history(lake))


def test_versions_expire_in_files_that_are_written_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_s3_spark.tables.history.group.MOST_CLOSED_FILES", 1)
    lake.options = {"tables": {**HISTORY, "history_retention_days": 1}}
    for day in range(6):
        monkeypatch.setattr(Chain, "now", lambda _, day=day: moment(1_440 * day + 10))
        sync(lake, Change(1, 1_440 * day + 5, {"name": str(day)}))
    found = history(lake)
    assert {"4", "5"} <= {row["name"] for row in found} <= {"3", "4", "5"}
    sync(lake, Change(1, 1_500, {"name": "late"}))  # from a time of which nothing is kept
    assert history(lake) == found
    check(lake, found)


@pytest.mark.parametrize("refreshes", [False, True])
def test_a_sync_of_a_table_with_a_history_may_die_at_any_request(lake: Lake, refreshes: bool) -> None:
    life = Life(lake, random.Random(1))
    sync(lake, *life.new(9))
    for call, end in ends(STEP):
        changes = life.new(0 if refreshes else 3)
        life.delete_without_a_word(1 if refreshes else 0)
        life.changes += [Change(9, life.now, {"name": f"n{life.now}", "amount": call})] if refreshes else []
        lake.started_at = moment(life.now)
        with ends_at(lake, call, end) as seen:
            life.send_all(lake) if refreshes else sync(lake, *changes)
        life.send_all(lake) if refreshes else sync(lake, *changes)  # the next attempt
        rows = history(lake)
        assert list(life.missing(rows)) == [], f"{end} at call {call} ({seen[-1]})"
        assert lake.memory.uploads == {}
        if len(seen) < call:
            break
    assert call > 12
    check(lake, history(lake))


@pytest.mark.parametrize("seed", sample(range(24), 6))
def test_a_history_at_any_time_is_the_source_of_that_time(lake: Lake, seed: int) -> None:
    partitions = [{"stream": "*", "column": "id", "transform": "identity"}] * (seed % 2)
    deletions = (("hard",), ("hard", "soft"), ("soft",))[seed % 3]
    life = Life(lake, random.Random(seed), partitions=partitions, deletions=deletions)
    for _ in range(12):
        life.step()
    lake.options, lake.started_at = {"tables": {**HISTORY, "partition_by": life.partitions}}, moment(life.now)
    sync(lake, *life.new(2), catalog=life.catalog())
    rows = history(lake)
    check(lake, rows)
    current = {row["id"]: row["name"] for row in rows if row["_is_current"]}
    assert sorted(current) == ids_of_live_rows(lake)
    assert list(life.missing(rows)) == []
