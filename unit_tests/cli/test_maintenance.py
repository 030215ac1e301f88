"""The common ground of commands that write to tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli import maintenance, operator_command
from destination_s3_spark.cli.maintenance import Workshop
from destination_s3_spark.errors import ConfigError, DataError, Fenced
from destination_s3_spark.protocol.catalog import parse_catalog
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.updates.resources import Resources, TaskResources
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import writer
from unit_tests.lake.inline_engine import InlineEngine
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, stream
from unit_tests.sync.logged_lake import send_five


def test_a_long_job_learns_now_and_then_whether_the_table_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket()
    made = writer(store)
    made.open()
    seldom = maintenance._lookout(made)
    monkeypatch.setattr(maintenance, "OWNER_CHECK_EVERY_S", 0.0)
    often = maintenance._lookout(made)
    calls = len(store.calls)
    seldom()
    assert len(store.calls) == calls
    often()
    assert len(store.calls) == calls + 1

    writer(store, sync_id=2).open()
    seldom()
    with pytest.raises(Fenced, match="sync id 2"):
        often()


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": {"compaction": "off"}})


@contextmanager
def workshop(lake: Lake) -> Iterator[tuple[Workshop, Table]]:
    """What a command works with, and the table."""
    factory = lake.factory()
    every, engine = factory.find(), InlineEngine()
    with ThreadPoolExecutor(2) as pool:
        resources = Resources(TaskResources(lake.settings, 2**26), 2, None)
        tools: Any = Workshop(replace(factory, map_files=pool.map), engine, pool, resources, factory.publishers(every))  # type: ignore[arg-type]
        yield tools, every.tables[0]


@pytest.mark.parametrize("damage", ["gone", "longer", "other bytes"])
@pytest.mark.parametrize("key", [None, "id"])
def test_rebuild_makes_up_for_a_file_that_is_gone_or_damaged(
    lake: Lake, key: str | None, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (0, 10):
        send_five(lake, number, key)
    ids, store = lake.ids_in_folder(), lake.store
    with workshop(lake) as (tools, found):
        file = tools.factory.read_chain(found).live_files().of(FileKind.FINAL)[0]
        if damage == "gone":
            store.delete([file.key])
        else:
            store.put(file.key, b"x" * (file.bytes + (damage == "longer")))
        assert maintenance._rebuild(tools, tools.table(found)) == 1
    lost = file.rows
    assert f"{10 - lost} rows are as before, 0 are gone, {lost} are new\n  1 file of the table could not be read" in capsys.readouterr().out
    assert lake.ids_in_folder() == ids
    assert lake.verified().problems == ()
    with workshop(lake) as (tools, found):
        assert maintenance._rebuild(tools, tools.table(found)) == 0


@pytest.mark.parametrize(
    ("format_type", "key", "said"),
    [
        ("JSONL", "id", "were not compared"),
        ("Avro", "id", "5 rows are as before, 0 are gone, 0 are new"),
        ("Avro", None, "were not compared"),
    ],
)
def test_rebuild_into_another_format_compares_rows_of_one_form(
    lake: Lake, format_type: str, key: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send_five(lake, 0, key)
    lake.format = {"format_type": format_type}
    with workshop(lake) as (tools, found):
        assert maintenance._rebuild(tools, tools.table(found)) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("key", [None, "id"])
def test_rebuild_says_that_a_raw_file_is_gone(lake: Lake, key: str | None) -> None:
    send_five(lake, 0, key)
    with workshop(lake) as (tools, found):
        [raw] = tools.factory.read_chain(found).live_files().of(FileKind.RAW)
        lake.store.delete([raw.key])
        with pytest.raises(DataError, match=rf"{raw.key} is gone"):
            maintenance._rebuild(tools, tools.table(found))


@pytest.mark.parametrize("key", [None, "id"])
def test_a_refresh_takes_a_table_over_from_rebuild(lake: Lake, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    send_five(lake, 0, key)
    run, generations = InlineEngine.run, iter([2])

    def interrupted(engine: InlineEngine, *given: Any) -> Any:
        for generation in generations:
            send_five(lake, 20, key, generation)
        return run(engine, *given)

    monkeypatch.setattr(InlineEngine, "run", interrupted)
    with workshop(lake) as (tools, found), pytest.raises(Fenced):
        maintenance._rebuild(tools, tools.table(found))
    assert lake.ids_in_folder() == [*range(20, 25)]
    assert lake.verified().problems == ()


def test_a_table_whose_first_sync_died_at_once_has_no_schema_and_is_not_damaged(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = lake.factory()
    factory.of_catalog(parse_catalog(json.dumps(catalog(stream())).encode()))[0].writer.open()
    with workshop(lake) as (tools, found), pytest.raises(ConfigError, match="has no schema yet"):
        tools.table(found)
    monkeypatch.setattr(maintenance, "read_config", lambda _: None)
    monkeypatch.setattr(maintenance, "table_factory", lambda _: factory)
    monkeypatch.setattr(maintenance, "workshop", lambda *_: nullcontext())
    assert maintenance.optimize("", None, None) == 0
    assert capsys.readouterr().out == "nothing to join\n"


@pytest.mark.parametrize("command", ["accept", "discard"])
def test_a_decision_is_not_taken_for_the_same_name_in_several_namespaces(
    command: str, make_table: Any, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in (None, "shop"):
        make_table(namespace, "users").writer().open()
    assert operator_command([command, "--config", str(config), "--stream", "users"]) == 1
    assert "2 tables of streams of the name users: shop.users, users. Nothing was changed." in capsys.readouterr().err
    for chosen in (["--stream", "users", "--namespace", ""], ["--stream", "shop.users"], ["--stream", "user*"], []):
        assert operator_command([command, "--config", str(config), *chosen]) == 0
        assert capsys.readouterr().out == "nothing is held back\n"
