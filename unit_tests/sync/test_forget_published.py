"""Forgetting of rows of published tables: no bound of a value stays in what is published, and readers see the table without the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from destination_s3_spark.errors import ConfigError, TransientError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.sampling import sample
from unit_tests.sync.forgetful_lake import MARK, NUMBER, ForgetfulLake, forgotten_wherever_it_dies, history, person, somebody
from unit_tests.tables.publishers.iceberg.lake import reader

HISTORY = {"tables": {"history": [{"stream": "*"}]}}


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> ForgetfulLake:
    return published(s3_settings, tmp_path)


def published(settings: S3Settings, directory: Path) -> ForgetfulLake:
    lake = ForgetfulLake(settings, directory)
    lake.options = publishing(lake)
    lake.keep_versions()
    return lake


def publishing(lake: ForgetfulLake, **more: Any) -> dict[str, Any]:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{lake.directory}/catalog.db", "catalog_name": "lake"}
    return {"publish": {"iceberg": iceberg, "delta": True}, **more}


def catalog(lake: ForgetfulLake) -> Catalog:
    return reader(lake.directory, lake.settings)


def shown(lake: ForgetfulLake, name: str = "users") -> list[int]:
    return sorted(catalog(lake).load_table(("default", name)).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
@pytest.mark.parametrize("options", [{}, HISTORY], ids=["", "with a history"])
def test_iceberg_tables_begin_anew(lake: ForgetfulLake, mode: str, options: dict[str, Any]) -> None:
    lake.options = publishing(lake, **(options if mode == "append_dedup" else {}))
    history(lake, mode)
    if mode == "append":
        assert NUMBER in shown(lake)
    before = [one for one in shown(lake) if one != NUMBER]
    lake.forget({"id": NUMBER})
    assert lake.holding() == []
    assert shown(lake) == before
    assert len(catalog(lake).load_table(("default", "users")).snapshots()) == 1
    if options and mode == "append_dedup":
        assert set(shown(lake, "users_history")) == set(before)
    lake.check()
    lake.check_delta()
    lake.options = publishing(lake, **(options if mode == "append_dedup" else {}))
    lake.go(mode, [somebody(50)])
    assert shown(lake) == [*before, 50]
    lake.check()


def test_metadata_of_a_publication_that_is_off_is_refused(lake: ForgetfulLake) -> None:
    lake.go("append", [person(1), somebody(1)])
    lake.options = {}
    before = sorted(lake.versions())
    with pytest.raises(ConfigError, match=r"nothing publishes it now.*switch publish\.iceberg on"):
        lake.forget({"id": NUMBER})
    assert sorted(lake.versions()) == before


def test_a_table_of_others_in_the_catalog_stays(served_settings: S3Settings, tmp_path: Path) -> None:
    lake = published(served_settings, tmp_path)  # the others write, too
    lake.go("append", [person(1), somebody(1)])
    table = catalog(lake).load_table(("default", "users"))
    table.transaction().set_properties({"airbyte.table-id": "s3://another"}).commit_transaction()
    with pytest.raises(TransientError, match="belongs to the table under"):
        lake.forget({"id": NUMBER})
    catalog(lake).drop_table(("default", "users"))
    lake.forget({"mail": f"{MARK}1@example.org"})
    assert lake.holding() == []
    assert shown(lake) == [1]
    lake.check()


@pytest.mark.parametrize("start", sample(range(7), 1))
def test_a_command_that_dies_anywhere_ends_when_it_is_run_again(start: int, lake: ForgetfulLake) -> None:
    lake.options = publishing(lake, **HISTORY)
    history(lake, "append_dedup")
    forgotten_wherever_it_dies(lake, start)
    assert shown(lake) == [*range(40), 41]
