"""A file format and a publisher that the product does not know: each is what a module of theirs would hold, and one entry in a list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from destination_s3_spark.chain import territory
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.config.config import Config
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats import registry as formats
from destination_s3_spark.formats.file_format import (
    DifferentColumns,
    FileColumns,
    FileFormat,
    FileWriter,
    SeekableFile,
    Sink,
    require_columns,
)
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.storage.table_paths import PUBLISHED_FOLDERS
from destination_s3_spark.tables.publishers import registry as publishers
from destination_s3_spark.tables.publishers.publication import PublisherKind, ShownTable
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, state, stream, users
from unit_tests.lake.messages import catalog as catalog_of


class FeatherFile(FileWriter[pa.RecordBatch]):
    """One file of Arrow's own format on its way into a sink."""

    def __init__(self, sink: Sink, columns: pa.Schema) -> None:
        self._columns = columns
        self._writer = pa.ipc.new_stream(pa.PythonFile(sink, "w"), columns)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        require_columns(batch, self._columns)
        self._writer.write_batch(batch.cast(self._columns))
        self._rows += batch.num_rows

    def close(self) -> WrittenFile:
        self._writer.close()
        return WrittenFile(self._rows)

    def abandon(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FeatherOptions:
    extension: str = ".arrows"
    compressed: bool = False
    values: Values = Values.TYPED

    def require_fitting(self, columns: FileColumns) -> None:
        pass

    def open(self, sink: Sink, columns: FileColumns) -> FeatherFile:
        return FeatherFile(sink, columns.arrow)

    def open_joined(self, sink: Sink) -> FileWriter[SeekableFile]:
        raise DifferentColumns


@dataclass(frozen=True, slots=True)
class FeatherFormat:
    """What the configuration would hold."""

    format_type: str = "Feather"


FEATHER = FileFormat("Feather", "Feather", (".arrows",), typed=True, sorted_rows=False, options=lambda _: FeatherOptions())


@dataclass(frozen=True, slots=True)
class Listing:
    """Shows the final files of a table in an object of its own."""

    name: ClassVar[str] = "listing"

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        shown = {"block": state.sequence_number, "rows": [file.rows for file in live.of(FileKind.FINAL)]}
        store.put(f"{state.identity.final_root}_listing/table.json", json.dumps(shown).encode())
        return str(state.sequence_number)

    def published(self, store: ObjectStore, state: TableState) -> int:
        return int(json.loads(store.get(f"{state.identity.final_root}_listing/table.json"))["block"])

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        pass


def listings(_config: Config, tables: Sequence[ShownTable]) -> dict[ShownTable, Listing]:
    return dict.fromkeys(tables, Listing())


LISTING = PublisherKind(listings, lambda *_: None)


class FeatherLake(Lake):
    def config(self, **options: Any) -> Config:
        return super().config(**options).model_copy(update={"format": FeatherFormat()})

    def feather_rows(self) -> list[dict[str, Any]]:
        return [row for body in self.files(".arrows") for row in pa.ipc.open_stream(body).read_all().to_pylist()]


def catalog(mode: str, generation: int = 1, minimum: int = 0) -> JsonObject:
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(mode=mode, key="id", **ids))


@pytest.fixture(autouse=True)
def _entered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", [*formats.FORMATS, FEATHER])
    monkeypatch.setattr(publishers, "PUBLISHERS", [*publishers.PUBLISHERS, LISTING])
    monkeypatch.setattr(territory, "PUBLISHED_FOLDERS", (*PUBLISHED_FOLDERS, "_listing/"))


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_a_table_in_a_new_format_is_appended_to_merged_and_refreshed(mode: str, s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = FeatherLake(s3_settings, tmp_path)
    for ids in (range(10), range(5, 15)):
        lake.sync(catalog(mode), [*users(ids), state(1), complete()])
    assert sorted(row["id"] for row in lake.feather_rows()) == sorted(
        {*range(15)} if mode == "append_dedup" else [*range(10), *range(5, 15)]
    )
    assert lake.files(".parquet") == []

    lake.sync(catalog(mode, 2, 2), [*users(range(3)), state(1), complete()])
    assert sorted(row["id"] for row in lake.feather_rows()) == [0, 1, 2]


def test_a_new_publisher_shows_the_table_after_every_change(s3_settings: S3Settings, tmp_path: Path) -> None:
    lake = Lake(s3_settings, tmp_path)
    shown = []
    for generation, ids in ((1, range(10)), (1, range(5, 15)), (2, range(3)), (2, ())):
        lake.sync(catalog("append_dedup", generation, generation), [*users(ids), state(1), complete()])
        (body,) = lake.files("_listing/table.json")
        shown.append(sum(json.loads(body)["rows"]))
    assert shown == [10, 15, 3, 3]
    assert len(lake.files("_symlink_format_manifest/manifest")) == 1
