"""Refreshes with other types that never replace their table: the rows that are there keep their values and types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.cli import operator_command
from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.places import table_of
from unit_tests.sync.inline_lake import InlineEngine, InlineLake, line, state, status

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
MODES = ["append", "append_dedup"]
Rows = list[tuple[int, Any]]


def catalog(of: Mapping[str, Any], mode: str, generation: int | None = 1, minimum: int = 0) -> Catalog:
    """The catalog of a stream whose `name` has this type. Without a generation, as a custom connector gets it."""
    numbers = (None, None, None) if generation is None else (generation, minimum, generation)
    stream = {
        "stream": {
            "name": "users",
            "json_schema": {"type": "object", "properties": {"id": {"type": "integer"}, "name": of}},
            "supported_sync_modes": ["full_refresh"],
        },
        "sync_mode": "full_refresh",
        "destination_sync_mode": mode,
        "primary_key": [["id"]],
        **dict(zip(("generation_id", "minimum_generation_id", "sync_id"), numbers, strict=True)),
    }
    return parse_catalog(json.dumps({"streams": [stream]}).encode())


def records(rows: Iterable[tuple[int, Any]], emitted_at: int = 1) -> bytes:
    data = [{"id": number, "name": value} for number, value in rows]
    return b"".join(line({"type": "RECORD", "record": {"stream": "users", "emitted_at": emitted_at, "data": one}}) for one in data)


def rows_of(lake: InlineLake) -> Rows:
    """Each row's id and its value in whichever column has one, sorted."""
    store = S3Store(lake.settings)
    keys = [found.key for found in store.list("lake/users/") if found.key.endswith(".parquet")]
    rows = [row for key in keys for row in pq.read_table(pa.BufferReader(store.get(key))).to_pylist()]
    filled = [(row["id"], [row[name] for name in row if name.startswith("name") and row[name] is not None]) for row in rows]
    return sorted(((number, *found) for number, found in filled), key=str)


def run(lake: InlineLake, directory: Path, monkeypatch: pytest.MonkeyPatch, *command: str) -> int:
    monkeypatch.setattr("destination_s3_spark.sync.runtime.engine_of", lambda *_: InlineEngine())
    path = directory / "config.json"
    keys = {"access_key_id": "test-key", "secret_access_key": "test-secret", "s3_endpoint": lake.settings.endpoint}
    place = {"s3_bucket_name": lake.settings.bucket, "s3_bucket_path": "lake", "s3_bucket_region": "us-east-1"}
    path.write_text(json.dumps({**keys, **place, "format": lake.format, **lake.options}))
    return operator_command([command[0], "--config", str(path), *command[1:]])


@pytest.fixture(params=[True, False], ids=["raw tables", "no raw tables"])
def lake(s3_settings: S3Settings, tmp_path: Path, request: pytest.FixtureRequest) -> InlineLake:
    return InlineLake(s3_settings, tmp_path, options={"tables": {"raw_tables": request.param}})


def hold_back(lake: InlineLake) -> None:
    """Four texts, and a refresh with one number that is held back."""
    lake.sync(catalog(TEXT, "overwrite", None), [records((number, f"u{number}") for number in range(4)), state(1)])
    with pytest.raises(ConfigError, match="accept"):
        lake.sync(catalog(NUMBER, "overwrite", None), [records([(0, 100)]), state(1)])


def cancel(lake: InlineLake, mode: str) -> None:
    """Four texts, and a refresh with one number that dies behind a STATE."""
    texts = records((number, f"u{number}") for number in range(4))
    lake.sync(catalog(TEXT, mode), [texts, state(1), status("COMPLETE")])
    with pytest.raises(TransientError):
        lake.sync(catalog(NUMBER, mode, 2, 2), [records([(0, 100)], 2), state(1)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "value"), [(TEXT, "u9"), (NUMBER, 9)], ids=["as before", "other type"])
@pytest.mark.parametrize("by", ["the command", "the next sync"])
def test_rows_keep_their_values_after_a_discard(
    lake: InlineLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, of: Mapping[str, Any], value: Any, by: str
) -> None:
    hold_back(lake)
    if by == "the command":
        assert run(lake, tmp_path, monkeypatch, "discard") == 0
    S3Store(lake.settings).delete([f"{table_of('users').chain_prefix}hint.json"])  # what it knew is in the chain
    lake.sync(catalog(of, mode, None), [records([(9, value)]), state(2)])
    assert rows_of(lake) == [*((number, f"u{number}") for number in range(4)), (9, value)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "value"), [(TEXT, "u9"), (NUMBER, 9)], ids=["as before", "other type"])
@pytest.mark.parametrize("generation", [2, 3])
def test_rows_of_a_cancelled_refresh_join_those_that_were_there(
    lake: InlineLake, mode: str, generation: int, of: Mapping[str, Any], value: Any
) -> None:
    cancel(lake, mode)
    lake.sync(catalog(of, mode, generation), [records([(9, value)], 3), state(2), status("COMPLETE")])
    first: Rows = [(0, 100)] if mode == "append_dedup" else [(0, "u0"), (0, 100)]
    assert rows_of(lake) == sorted([*first, *((number, f"u{number}") for number in range(1, 4)), (9, value)], key=str)


@pytest.mark.parametrize("mode", MODES)
def test_rows_in_several_columns_of_a_field_stay_there_when_another_refresh_is_given_up(lake: InlineLake, mode: str) -> None:
    cancel(lake, mode)
    lake.sync(catalog(NUMBER, mode, 2), [records([(9, 9)], 3), state(2), status("COMPLETE")])
    with pytest.raises(TransientError):
        lake.sync(catalog({"type": "boolean"}, mode, 3, 3), [records([(8, True)], 4), state(1)])
    lake.sync(catalog(NUMBER, mode, 3), [records([(7, 7)], 5), state(2), status("COMPLETE")])
    first: Rows = [(0, 100)] if mode == "append_dedup" else [(0, "u0"), (0, 100)]
    texts: Rows = [(number, f"u{number}") for number in range(1, 4)]
    assert rows_of(lake) == sorted([*first, *texts, (7, 7), (8, True), (9, 9)], key=str)


def test_the_rows_are_rebuilt_as_they_are(lake: InlineLake) -> None:
    if not lake.options["tables"]["raw_tables"]:
        pytest.skip("nothing to rebuild from")
    cancel(lake, "append_dedup")
    lake.sync(catalog(TEXT, "append_dedup", 2), [records([(9, "u9")], 3), state(2), status("COMPLETE")])
    before = rows_of(lake)
    lake.rebuild()
    assert rows_of(lake) == before


def test_inspect_says_what_is_held_back(
    lake: InlineLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_back(lake)
    assert run(lake, tmp_path, monkeypatch, "inspect") == 0
    assert "Held back:\nusers: 1 row held back, which accept publishes and discard drops\n" in capsys.readouterr().out
    assert run(lake, tmp_path, monkeypatch, "discard") == 0
    assert run(lake, tmp_path, monkeypatch, "inspect") == 0
    assert "Held back" not in capsys.readouterr().out


def test_with_fail_a_discarded_refresh_changes_no_type(lake: InlineLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.options = {"tables": {**lake.options["tables"], "schema_change": "fail"}}
    hold_back(lake)
    assert run(lake, tmp_path, monkeypatch, "discard") == 0
    with pytest.raises(ConfigError, match="was string and is now integer"):
        lake.sync(catalog(NUMBER, "append", None), [records([(9, 9)]), state(2)])
    lake.sync(catalog(TEXT, "append", None), [records([(9, "u9")]), state(2)])
    assert rows_of(lake) == [*((number, f"u{number}") for number in range(4)), (9, "u9")]


def test_with_fail_rows_of_another_type_cannot_join_the_table(lake: InlineLake) -> None:
    lake.options = {"tables": {**lake.options["tables"], "schema_change": "fail"}}
    cancel(lake, "append")
    with pytest.raises(ConfigError, match="was string and is now integer"):
        lake.sync(catalog(TEXT, "append", 2), [records([(9, "u9")]), state(2), status("COMPLETE")])
    lake.sync(catalog(NUMBER, "append", 2, 2), [records([(1, 101)]), state(2), status("COMPLETE")])  # the refresh goes on
    assert rows_of(lake) == [(0, 100), (1, 101)]


def test_commands_after_a_discard_see_the_types_of_the_rows(lake: InlineLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_back(lake)
    assert run(lake, tmp_path, monkeypatch, "discard") == 0
    assert run(lake, tmp_path, monkeypatch, "optimize") == 0
    assert run(lake, tmp_path, monkeypatch, "verify") == 0
    assert rows_of(lake) == [(number, f"u{number}") for number in range(4)]
    forgets = run(lake, tmp_path, monkeypatch, "forget", "--stream", "users", "--where", '{"name": "u1"}')
    assert forgets == 0
    assert rows_of(lake) == [(0, "u0"), (2, "u2"), (3, "u3")]


@pytest.mark.parametrize("mode", MODES)
def test_a_refresh_that_replaces_the_table_after_another_one_was_given_up_decides_the_types(lake: InlineLake, mode: str) -> None:
    cancel(lake, mode)
    lake.sync(catalog({"type": "boolean"}, mode, 3, 3), [records([(5, True)], 3), state(2), status("COMPLETE")])
    lake.sync(catalog({"type": "boolean"}, mode, 3), [records([(6, False)], 4), state(3), status("COMPLETE")])
    assert rows_of(lake) == [(5, True), (6, False)]
    names = {name for file in lake.files(".parquet") for name in pq.read_schema(pa.BufferReader(file)).names}
    assert {name for name in names if name.startswith("name")} == {"name"}
