"""Keys that are forgotten for good: whatever a source sends later, no byte of them lands, and all else does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from destination_s3_spark.chain.events import AddData, BarKeys, Close
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.errors import ConfigError, SyncError
from unit_tests.lake import messages
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import (
    MARK,
    NUMBER,
    SECRET,
    WAITING,
    ForgetfulLake,
    catalog,
    dying_everywhere,
    history,
    person,
    somebody,
)


def events(lake: ForgetfulLake, kind: type[Any]) -> list[Any]:
    return [block.event for block, _ in lake.own_chain().all_blocks() if isinstance(block.event, kind)]


def send(lake: ForgetfulLake, of: JsonObject, *parts: Iterable[Mapping[str, Any]], ends: bool = True) -> None:
    """Sync parts with a STATE after each."""
    lake.syncs += 1
    lines = [line for number, part in enumerate(parts) for line in (records(part, emitted_at=lake.syncs), state(100 * lake.syncs + number))]
    lake.sync(of, [*lines, complete() if ends else b"{\n"])


@pytest.fixture
def lake(s3_settings: Any, tmp_path: Any) -> ForgetfulLake:
    return ForgetfulLake(s3_settings, tmp_path)


def refreshed(mode: str, generation: int) -> JsonObject:
    return catalog(mode, generation=generation, minimum=generation)


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_no_byte_of_a_key_comes_back(lake: ForgetfulLake, mode: str) -> None:
    lake.keep_versions()
    history(lake, mode)
    record = lake.forget({"id": NUMBER}, forever=True)
    assert record["keysForever"] == 1
    assert lake.holding() == []
    before = len(lake.rows_of())

    lake.states.clear()
    send(lake, catalog(mode), [person(7), somebody(60), {**person(8), "id": f"{NUMBER}"}], [person(9)], [somebody(61)])
    assert [count for _, count in lake.acknowledged()] == [3, 1, 1]
    assert [event.records_barred for event in events(lake, AddData)][-1] == 3
    send(lake, catalog(mode), [person(10)])
    assert len(lake.states) == 4
    assert [event.records_barred for event in events(lake, Close)][-1] == 1
    contents = lake.own_chain().head.contents
    assert contents.records_barred == 4
    assert lake.holding() == []
    lake.check()

    lake.options = {}
    send(lake, catalog(mode), [person(11), somebody(62)])
    assert len(lake.rows_of()) == before + 3
    send(lake, refreshed(mode, 2), [person(12), somebody(1)], [person(13)])
    assert [row["id"] for row in lake.rows_of()] == [1]
    assert lake.own_chain().head.contents.records_barred == 7
    lake.rebuild()
    assert [row["id"] for row in lake.rows_of()] == [1]
    assert lake.holding() == []
    lake.check()


def test_a_refresh_of_which_nothing_lands_leaves_an_empty_table(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.forget({"id": NUMBER}, forever=True)
    send(lake, refreshed("append_dedup", 2), [person(2)], [person(3)])
    assert lake.rows_of() == []
    lake.check()
    send(lake, refreshed("append_dedup", 2), [somebody(4)])
    assert [row["id"] for row in lake.rows_of()] == [4]


def test_the_keys_of_rows_that_are_found_stay_out_too(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.forget({"mail": f"{MARK}1@example.org"}, forever=True)
    lake.go("append_dedup", [{"id": NUMBER, "mail": "other"}, {"id": 7, "mail": f"{MARK}1@example.org"}, somebody(2)])
    assert [row["id"] for row in lake.rows_of()] == [1, 2]
    assert lake.holding() == []


def test_keys_add_up_under_one_salt_and_no_block_has_them(lake: ForgetfulLake) -> None:
    lake.go("append_dedup", [person(1), somebody(1), somebody(2)])
    lake.forget({"id": 1}, {"id": 2, "mail": "2@1"}, forever=True)
    before = lake.own_chain().head.sequence_number
    assert lake.forget({"id": 1}, forever=True)["keysForever"] == 1
    assert lake.own_chain().head.sequence_number == before
    lake.forget({"id": NUMBER}, forever=True)
    first, last = events(lake, BarKeys)
    assert first.salt == last.salt
    assert {one.fields: len(one.digests) for one in first.keys} == {("id",): 2, ("id", "mail"): 1}
    assert {one.fields: len(one.digests) for one in last.keys} == {("id",): 3, ("id", "mail"): 1}
    lake.go("append_dedup", [person(2), somebody(1), somebody(2), somebody(3)])
    assert [row["id"] for row in lake.rows_of()] == [3]
    assert lake.holding() == []


def test_a_table_without_the_rows_keeps_the_key(lake: ForgetfulLake) -> None:
    lake.go("append", [somebody(1)])
    assert lake.forget({"id": NUMBER}, dry_run=True, forever=True) == {}
    assert lake.own_chain().head.barred is None
    lake.forget({"id": NUMBER}, forever=True)
    lake.go("append", [person(1), somebody(2)])
    assert [row["id"] for row in lake.rows_of()] == [1, 2]


def test_a_column_of_another_type_and_a_hashed_one_have_the_same_keys(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1), somebody(1)])
    rules = [{"stream": "users", "column": "mail", "action": "hash"}]
    lake.options = {"tables": {"columns": rules, "hash_secret": SECRET}}
    lake.go("append", [somebody(2)])
    lake.forget({"id": NUMBER}, {"mail": f"{MARK}@example.org"}, forever=True)
    lake.go(
        "append",
        [person(2), somebody(3), {"id": "four", "mail": f"{MARK}@example.org"}, {"id": f"{NUMBER}"}],
        properties={"id": {"type": "string"}},
    )
    assert sorted(str(row["id"]) for row in lake.rows_of()) == ["1", "2", "3"]
    assert lake.holding() == []


def test_a_field_that_is_not_declared_any_more_still_bars(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1), somebody(1)])
    lake.forget({"id": NUMBER}, {"mail": f"{MARK}1@example.org"}, forever=True)
    only_id = stream(schema=schema_of({"id": {"type": "integer"}}), generation=2, minimum_generation=2, sync_id=2)
    send(lake, messages.catalog(only_id), [{**person(1), "id": 2}, somebody(3)])
    assert [row["id"] for row in lake.rows_of()] == [3]
    assert lake.holding() == []


@pytest.mark.parametrize(
    ("mode", "form"), [("append", "CSV"), ("append", "JSONL"), *(("append_dedup", form) for form in ("CSV", "JSONL", "Avro"))]
)
def test_keys_stay_out_of_tables_in_other_formats(lake: ForgetfulLake, mode: str, form: str) -> None:
    lake.format = {"format_type": form}
    lake.go(mode, [somebody(1)])
    lake.forget({"id": NUMBER}, {"mail": f"{MARK}@example.org"}, forever=True)
    lake.go(mode, [person(2), somebody(2), {"id": 9, "mail": f"{MARK}@example.org"}])
    assert sorted(json.loads(row["_airbyte_data"])["id"] for row in lake.rows_of(FileKind.RAW)) == [1, 2]
    assert lake.own_chain().head.contents.records_barred == 2
    assert lake.holding() == []


def test_a_column_that_is_cut_bars_no_key(lake: ForgetfulLake) -> None:
    lake.options = {"tables": {"columns": [{"stream": "users", "column": "mail", "action": "truncate", "length": 3}]}}
    lake.go("append", [person(1)])
    before = sorted(lake.versions())
    with pytest.raises(ConfigError, match="records of others have the same rest"):
        lake.forget({"mail": f"{MARK}1@example.org"}, forever=True)
    assert sorted(lake.versions()) == before


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_records_that_come_again_after_a_sync_died_land_once(lake: ForgetfulLake, mode: str) -> None:
    lake.go(mode, [somebody(0)])
    lake.forget({"id": NUMBER}, forever=True)
    lake.limits = replace(lake.limits, batch_bytes=1)
    parts = [[somebody(1), person(1)], [person(2)], [somebody(2)], [person(3), person(4)], [somebody(3), person(5)]]
    with pytest.raises(SyncError):
        send(lake, catalog(mode), *parts, ends=False)
    committed = lake.own_chain().head.contents.records_barred
    lake.limits = replace(lake.limits, batch_bytes=2**30)
    lake.syncs -= 1
    send(lake, catalog(mode), *parts)
    assert [row["id"] for row in lake.rows_of()] == [0, 1, 2, 3]
    assert lake.own_chain().head.contents.landed == 4
    assert lake.own_chain().head.contents.records_barred >= committed
    assert lake.holding() == []
    lake.check()


@pytest.mark.parametrize("start", sample(range(9), 1))
def test_a_command_that_dies_anywhere_keeps_the_key_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    lake.keep_versions()
    lake.options = {"tables": WAITING}
    lake.go("append_dedup", [person(1), somebody(1)])
    lake.go("append_dedup", [person(2), somebody(2)])

    def forever() -> None:
        lake.forget({"mail": f"{MARK}2@example.org"}, forever=True)

    def source_still_has_it(at: int) -> None:
        if at % 2:
            lake.go("append_dedup", [{"id": NUMBER, "mail": "other"}, somebody(3)])

    dying_everywhere(lake, start, 9, forever, source_still_has_it)
    forever()
    lake.options = {}
    lake.go("append_dedup", [{"id": NUMBER, "mail": "other"}, person(2), somebody(4)])
    assert {row["id"] for row in lake.rows_of()} <= {1, 2, 3, 4}
    assert lake.holding() == []
    assert len(events(lake, BarKeys)) == 1
    lake.check()


def test_nothing_of_a_key_is_in_its_digests(lake: ForgetfulLake) -> None:
    lake.go("append", [somebody(1)])
    lake.forget({"id": NUMBER}, forever=True)
    (event,) = events(lake, BarKeys)
    assert len(bytes.fromhex(event.salt)) == 32
    assert str(NUMBER) not in json.dumps([event.salt, *(one.digests for one in event.keys)])
