"""Delta and Iceberg tables after `rebuild`, `repair` and compaction: readers have the rows of the chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.errors import TransientError
from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.messages import records, state, status
from unit_tests.sync.delta_lake import PROPERTIES, ROOT, DeltaLake, catalog, join_every_third_file, person, sync
from unit_tests.tables.publishers.delta_readers import Row
from unit_tests.tables.publishers.iceberg.lake import reader

MODES = pytest.mark.parametrize("mode", ["append", "append_dedup"])
NAMES = ("_airbyte_raw_id", "id", "name", "price", "day", "at", "address", "tags")


class ViewedLake(DeltaLake):
    """A table with a Delta log and in an Iceberg catalog."""

    def viewed(self) -> list[Row]:
        """The rows by `tables.read`, which all Delta readers have, and Iceberg's readers."""
        rows = self.check(filters=False)
        found = reader(self.directory, self.settings).load_table(("default", "users")).scan(selected_fields=NAMES).to_arrow()
        by_id = sorted(found.to_pylist(), key=lambda row: str(row["_airbyte_raw_id"]))
        assert by_id == [{name: row[name] for name in NAMES} for row in rows]
        return rows

    def ids_viewed(self) -> list[int]:
        return sorted(row["id"] for row in self.viewed())


@pytest.fixture
def lake(served_settings: S3Settings, tmp_path: Path) -> ViewedLake:
    iceberg = {"type": "sql", "database_uri": f"sqlite:///{tmp_path}/catalog.db", "catalog_name": "lake"}
    return ViewedLake(served_settings, tmp_path, options={"publish": {"delta": True, "iceberg": iceberg}})


def data_files(lake: ViewedLake) -> set[str]:
    found = {found.key.removeprefix(ROOT) for found in lake.store.list(ROOT)}
    return {key for key in found if "/" not in key}


@MODES
def test_after_a_rebuild(lake: ViewedLake, mode: str) -> None:
    sync(lake, catalog(mode=mode), map(person, range(6)))
    sync(lake, catalog({**PROPERTIES, "score": {"type": "number"}}, mode), [person(number, score=0.5) for number in range(6, 9)])
    before = data_files(lake)
    lake.rebuild()

    assert not before & data_files(lake)
    assert lake.ids_viewed() == list(range(9))


@MODES
def test_after_a_rebuild_of_a_table_whose_last_sync_failed(lake: ViewedLake, mode: str) -> None:
    sync(lake, catalog(mode=mode), map(person, range(4)))
    with pytest.raises(TransientError):
        lake.sync(catalog(mode=mode), [records(map(person, range(4, 6))), state(2), status("INCOMPLETE")])
    lake.rebuild()

    assert lake.ids_viewed() == list(range(6))


def test_after_a_compaction(lake: ViewedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    join_every_third_file(monkeypatch)
    for number in range(3):
        sync(lake, catalog(), map(person, range(3 * number, 3 * number + 3)))

    assert len(data_files(lake)) == 1
    assert lake.ids_viewed() == list(range(9))


DAMAGES: dict[str, Callable[[ViewedLake], None]] = {
    "the log is gone": lambda lake: _delete(lake, f"{ROOT}_delta_log/"),
    "the Iceberg table is gone": lambda lake: reader(lake.directory, lake.settings).drop_table(("default", "users")),
}


def _delete(lake: ViewedLake, prefix: str) -> None:
    lake.store.delete([found.key for found in lake.store.list(prefix)])


@pytest.mark.parametrize("damage", DAMAGES)
def test_after_a_repair(lake: ViewedLake, damage: str) -> None:
    sync(lake, catalog(), map(person, range(4)))
    sync(lake, catalog(mode="append"), map(person, range(4, 6)))
    DAMAGES[damage](lake)
    repaired: Any = lake.repair()

    assert set(repaired.published) == {"symlink", "delta", "iceberg"}
    assert lake.ids_viewed() == list(range(6))
    assert lake.repair() is None


def test_after_the_repair_of_a_failed_sync(lake: ViewedLake) -> None:
    sync(lake, catalog(), map(person, range(4)))
    with pytest.raises(TransientError):
        lake.sync(catalog(), [records(map(person, range(4, 6))), state(2), status("INCOMPLETE")])
    lake.repair()

    assert lake.ids_viewed() == list(range(6))
