"""Whole syncs that publish to an Iceberg catalog: what another program reads through it after each sync mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, schema_of, state, stream, users
from unit_tests.lake.messages import catalog as catalog_of
from unit_tests.tables.publishers.iceberg.lake import reader

NAME = ("default", "users")


def lake(settings: S3Settings, directory: Path, **format_options: Any) -> Lake:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{directory}/catalog.db", "catalog_name": "lake"}
    return Lake(settings, directory, options={"publish": {"iceberg": iceberg}}, format={"format_type": "Parquet", **format_options})


def catalog(mode: str, generation: int = 1, minimum: int = 0, **columns: Any) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(schema=schema_of({"id": {"type": "integer"}, **columns}), mode=mode, key="id", **ids))


def shown(lake: Lake, condition: str = "id >= 0") -> list[int]:
    found = reader(lake.directory, lake.settings).load_table(NAME).scan(condition).to_arrow()
    return sorted(found["id"].to_pylist())


def opened(lake: Lake, condition: str) -> int:
    """The number of files that a reader opens for a condition."""
    table = reader(lake.directory, lake.settings).load_table(NAME)
    return sum(1 for _ in table.scan(condition).plan_files())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "iceberg" in record.getMessage()]


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_every_sync_mode_shows_its_rows(mode: str, served_settings: S3Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = lake(served_settings, tmp_path)
    for ids in (range(10), range(5, 15)):
        made.sync(catalog(mode), [*users(ids), state(1), complete()])
    every = [*range(15)] if mode == "append_dedup" else sorted([*range(10), *range(5, 15)])
    assert shown(made) == every == made.ids_in_folder()
    assert shown(made, "_airbyte_extracted_at >= '1970-01-01T00:00:00+00:00'") == every
    assert (opened(made, "id = 12"), opened(made, "id = 20")) == (1, 0), "files are skipped by their statistics"

    made.sync(catalog(mode, 2, 2), [*users(range(3)), state(1), complete()])
    assert shown(made) == [0, 1, 2]
    made.sync(catalog(mode, 2, 2), [complete()])
    assert shown(made) == [0, 1, 2]
    assert warnings(caplog) == []


def test_a_changed_type_is_shown_in_a_column_of_its_own(served_settings: S3Settings, tmp_path: Path) -> None:
    made = lake(served_settings, tmp_path)
    made.sync(catalog("append"), [*users(range(2)), state(1), complete()])
    made.sync(catalog("append", id={"type": "string"}), [*users(range(2)), state(1), complete()])

    table = reader(made.directory, made.settings).load_table(NAME)
    names = [name for name in table.schema().column_names if name.startswith("id")]
    assert len(names) == 2
    rows = table.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in rows if row[names[0]] is not None) == [(0, None), (1, None)]
    assert sorted(row[names[1]] for row in rows if row[names[0]] is None) == ["0", "1"]


@pytest.mark.parametrize("encoding", ["time", "local"])
def test_times_of_day_are_refused_until_a_refresh_with_integers(
    encoding: str, served_settings: S3Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opens: dict[str, Any] = {"opens": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}}
    made = lake(served_settings, tmp_path, time_encoding=encoding)
    made.sync(catalog("append", **opens), [*users(range(2)), state(1), complete()])
    assert made.acknowledged() != []
    (warning,) = warnings(caplog)
    assert "this one has opens. Set format.time_encoding to int64" in warning
    with pytest.raises(NoSuchTableError):
        shown(made)

    later = lake(served_settings, tmp_path, time_encoding="int64")
    later.sync(catalog("append", **opens), [*users(range(2, 4)), state(1), complete()])
    assert len(warnings(caplog)) == 2, "the table keeps its encoding"
    later.sync(catalog("append", 2, 2, **opens), [*users(range(3)), state(1), complete()])
    assert shown(later) == [0, 1, 2]
    assert len(warnings(caplog)) == 2


def test_milliseconds_are_refused_until_a_refresh(served_settings: S3Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Lake(served_settings, tmp_path).sync(catalog("append"), [*users(range(2)), state(1), complete()])
    made = lake(served_settings, tmp_path)
    made.sync(catalog("append"), [*users(range(2, 4)), state(1), complete()])
    (warning,) = warnings(caplog)
    assert "timestamps in milliseconds" in warning
    made.sync(catalog("append", 2, 2), [*users(range(3)), state(1), complete()])
    assert shown(made) == [0, 1, 2]


def test_a_catalog_that_is_gone_costs_a_warning_and_the_next_sync_catches_up(
    served_settings: S3Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = lake(served_settings, tmp_path)
    made.sync(catalog("append"), [*users(range(2)), state(1), complete()])
    down = Lake(served_settings, tmp_path, options={"publish": {"iceberg": {"type": "rest", "uri": "http://127.0.0.1:9"}}})
    down.sync(catalog("append"), [*users(range(2, 4)), state(2), complete()])
    assert down.acknowledged() != []
    assert shown(made) == [0, 1]
    (warning,) = warnings(caplog)
    assert "table users is not published for iceberg: The Iceberg catalog could not be reached" in warning
    made.sync(catalog("append"), [complete()])
    assert shown(made) == [0, 1, 2, 3]


def test_many_tables_are_published_at_once(served_settings: S3Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = lake(served_settings, tmp_path)
    names: Sequence[str] = [f"users_{number}" for number in range(8)]
    blocks = [block for name in names for block in (*users(range(3), name), state(1, name), complete(name))]
    made.sync(catalog_of(*map(stream, names)), blocks)

    found = reader(made.directory, made.settings)
    assert sorted(found.list_tables("default")) == [("default", name) for name in names]
    assert all(found.load_table(("default", name)).scan().count() == 3 for name in names)
    assert warnings(caplog) == []
