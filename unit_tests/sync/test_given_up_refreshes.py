"""Refreshes with other types that never replace their table: the rows that are there keep their values and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.places import table_of

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
MODES = ["append", "append_dedup"]
Rows = list[tuple[int, Any]]


def catalog(of: Mapping[str, Any], mode: str, generation: int | None = 1, minimum: int = 0) -> JsonObject:
    """The catalog of a stream whose `name` has this type. Without a generation, as a custom connector gets it."""
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": None if generation is None else minimum, "sync_id": generation}
    return catalog_of(
        stream(
            schema=schema_of({"id": {"type": "integer"}, "name": of}),
            mode=mode,
            key="id",
            **ids,
        )
    )


def named(rows: Iterable[tuple[int, Any]], emitted_at: int = 1) -> bytes:
    return records(({"id": number, "name": value} for number, value in rows), emitted_at=emitted_at)


def rows_of(lake: Lake) -> Rows:
    """Each row's id and its value in whichever column has one, sorted."""
    filled = [(row["id"], [row[name] for name in row if name.startswith("name") and row[name] is not None]) for row in lake.glob()]
    return sorted(((number, *found) for number, found in filled), key=str)


@pytest.fixture(params=[True, False], ids=["raw tables", "no raw tables"])
def lake(s3_settings: S3Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": {"raw_tables": request.param}})


def hold_back(lake: Lake) -> None:
    """Four texts, and a refresh with one number that is held back."""
    lake.sync(catalog(TEXT, "overwrite", None), [named((number, f"u{number}") for number in range(4)), state(1)])
    with pytest.raises(ConfigError, match="accept"):
        lake.sync(catalog(NUMBER, "overwrite", None), [named([(0, 100)]), state(1)])


def cancel(lake: Lake, mode: str) -> None:
    """Four texts, and a refresh with one number that dies behind a STATE."""
    texts = named((number, f"u{number}") for number in range(4))
    lake.sync(catalog(TEXT, mode), [texts, state(1), complete()])
    with pytest.raises(TransientError):
        lake.sync(catalog(NUMBER, mode, 2, 2), [named([(0, 100)], 2), state(1)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "value"), [(TEXT, "u9"), (NUMBER, 9)], ids=["as before", "other type"])
@pytest.mark.parametrize("by", ["the command", "the next sync"])
def test_rows_keep_their_values_after_a_discard(lake: Lake, mode: str, of: Mapping[str, Any], value: Any, by: str) -> None:
    hold_back(lake)
    if by == "the command":
        assert lake.connector().run("discard").exit_code == 0
    lake.store.delete([f"{table_of('users').chain_prefix}hint.json"])  # what it knew is in the chain
    lake.sync(catalog(of, mode, None), [named([(9, value)]), state(2)])
    assert rows_of(lake) == [*((number, f"u{number}") for number in range(4)), (9, value)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "value"), [(TEXT, "u9"), (NUMBER, 9)], ids=["as before", "other type"])
@pytest.mark.parametrize("generation", [2, 3])
def test_rows_of_a_cancelled_refresh_join_those_that_were_there(
    lake: Lake, mode: str, generation: int, of: Mapping[str, Any], value: Any
) -> None:
    cancel(lake, mode)
    lake.sync(catalog(of, mode, generation), [named([(9, value)], 3), state(2), complete()])
    first: Rows = [(0, 100)] if mode == "append_dedup" else [(0, "u0"), (0, 100)]
    assert rows_of(lake) == sorted([*first, *((number, f"u{number}") for number in range(1, 4)), (9, value)], key=str)


@pytest.mark.parametrize("mode", MODES)
def test_rows_in_several_columns_of_a_field_stay_there_when_another_refresh_is_given_up(lake: Lake, mode: str) -> None:
    cancel(lake, mode)
    lake.sync(catalog(NUMBER, mode, 2), [named([(9, 9)], 3), state(2), complete()])
    with pytest.raises(TransientError):
        lake.sync(catalog({"type": "boolean"}, mode, 3, 3), [named([(8, True)], 4), state(1)])
    lake.sync(catalog(NUMBER, mode, 3), [named([(7, 7)], 5), state(2), complete()])
    first: Rows = [(0, 100)] if mode == "append_dedup" else [(0, "u0"), (0, 100)]
    texts: Rows = [(number, f"u{number}") for number in range(1, 4)]
    assert rows_of(lake) == sorted([*first, *texts, (7, 7), (8, True), (9, 9)], key=str)


def test_the_rows_are_rebuilt_as_they_are(lake: Lake) -> None:
    if not lake.options["tables"]["raw_tables"]:
        pytest.skip("nothing to rebuild from")
    cancel(lake, "append_dedup")
    lake.sync(catalog(TEXT, "append_dedup", 2), [named([(9, "u9")], 3), state(2), complete()])
    before = rows_of(lake)
    lake.rebuild()
    assert rows_of(lake) == before


def test_inspect_says_what_is_held_back(lake: Lake) -> None:
    hold_back(lake)
    before = lake.connector().run("inspect")
    assert before.exit_code == 0
    assert "Held back:\nusers: 1 row held back, which accept publishes and discard drops\n" in before.text
    assert lake.connector().run("discard").exit_code == 0
    after = lake.connector().run("inspect")
    assert after.exit_code == 0
    assert "Held back" not in after.text


def test_with_fail_a_discarded_refresh_changes_no_type(lake: Lake) -> None:
    lake.options = {"tables": {**lake.options["tables"], "schema_change": "fail"}}
    hold_back(lake)
    assert lake.connector().run("discard").exit_code == 0
    with pytest.raises(ConfigError, match="was string and is now integer"):
        lake.sync(catalog(NUMBER, "append", None), [named([(9, 9)]), state(2)])
    lake.sync(catalog(TEXT, "append", None), [named([(9, "u9")]), state(2)])
    assert rows_of(lake) == [*((number, f"u{number}") for number in range(4)), (9, "u9")]


def test_with_fail_rows_of_another_type_cannot_join_the_table(lake: Lake) -> None:
    lake.options = {"tables": {**lake.options["tables"], "schema_change": "fail"}}
    cancel(lake, "append")
    with pytest.raises(ConfigError, match="was string and is now integer"):
        lake.sync(catalog(TEXT, "append", 2), [named([(9, "u9")]), state(2), complete()])
    lake.sync(catalog(NUMBER, "append", 2, 2), [named([(1, 101)]), state(2), complete()])  # the refresh goes on
    assert rows_of(lake) == [(0, 100), (1, 101)]


def test_commands_after_a_discard_see_the_types_of_the_rows(lake: Lake) -> None:
    hold_back(lake)
    assert lake.connector().run("discard").exit_code == 0
    assert lake.connector().run("optimize").exit_code == 0
    assert lake.connector().run("verify").exit_code == 0
    assert rows_of(lake) == [(number, f"u{number}") for number in range(4)]
    forgets = lake.connector().run("forget", "--stream", "users", "--where", '{"name": "u1"}')
    assert forgets.exit_code == 0
    assert rows_of(lake) == [(0, "u0"), (2, "u2"), (3, "u3")]


@pytest.mark.parametrize("mode", MODES)
def test_a_refresh_that_replaces_the_table_after_another_one_was_given_up_decides_the_types(lake: Lake, mode: str) -> None:
    cancel(lake, mode)
    lake.sync(catalog({"type": "boolean"}, mode, 3, 3), [named([(5, True)], 3), state(2), complete()])
    lake.sync(catalog({"type": "boolean"}, mode, 3), [named([(6, False)], 4), state(3), complete()])
    assert rows_of(lake) == [(5, True), (6, False)]
    names = {name for file in lake.files(".parquet") for name in pq.read_schema(pa.BufferReader(file)).names}
    assert {name for name in names if name.startswith("name")} == {"name"}
