"""A CDC stream `users` whose table has a change log: its records, its syncs, and what is in its log and table."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.change_log.manifest import Manifest
from destination_s3_spark.change_log.reading import ChangeLogFolder, Interval
from destination_s3_spark.protocol.catalog import Catalog, parse_catalog
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.storage.s3 import S3Store
from unit_tests.sync.inline_lake import InlineLake, line, state, status
from unit_tests.sync.reference_changes import PLACEHOLDER, Record, Row

FOLDER = "lake/airbyte_changes/users/"
COLUMNS = ("amount", "id", "name", "tags")
CDC: dict[str, Any] = {
    "_ab_cdc_lsn": {"type": ["null", "integer"]},
    "_ab_cdc_updated_at": {"type": ["null", "string"]},
    "_ab_cdc_deleted_at": {"type": ["null", "string"]},
}
DATA: dict[str, Any] = {
    "id": {"type": "integer"},
    "amount": {"type": ["null", "number"]},
    "name": {"type": ["null", "string"]},
    "tags": {"type": ["null", "array"], "items": {"type": "string"}},
}
KEYS = 100


def cdc_catalog(generation: int = 1, minimum: int = 0, properties: dict[str, Any] | None = None, key: str | None = "id") -> Catalog:
    properties = DATA | CDC if properties is None else properties
    entry = {
        "stream": {"name": "users", "json_schema": {"type": "object", "properties": properties}, "supported_sync_modes": ["incremental"]},
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup" if key else "append",
        "primary_key": [[key]] if key else [],
        "cursor_field": ["_ab_cdc_lsn"] if "_ab_cdc_lsn" in properties else [],
        "generation_id": generation,
        "minimum_generation_id": minimum,
        "sync_id": generation,
    }
    return parse_catalog(json.dumps({"streams": [entry]}).encode())


def data_of(record: Record) -> Row:
    deleted = "2026-01-02T00:00:00Z" if record.deleted else None
    cdc = {"_ab_cdc_lsn": record.lsn, "_ab_cdc_updated_at": "2026-01-02T03:04:05.678Z", "_ab_cdc_deleted_at": deleted}
    return {"id": record.id, **record.values, **cdc}


def lines(records: Iterable[Record]) -> bytes:
    return b"".join(
        line({"type": "RECORD", "record": {"stream": "users", "emitted_at": record.extracted_at, "data": data_of(record)}})
        for record in records
    )


class Source:
    """Makes records and numbers them."""

    def __init__(self) -> None:
        self.count = 0

    def record(self, id_: int, lsn: int | None, extracted_at: int = 1_000, *, deleted: bool = False, **values: Any) -> Record:
        values = {name: values.get(name) for name in ("amount", "name", "tags")}
        self.count += 1
        return Record(id_, values, lsn, deleted, extracted_at, self.count - 1)

    def random_records(self, chance: random.Random, count: int, first_lsn: int) -> list[Record]:
        return [
            self.record(
                chance.randrange(KEYS),
                chance.choice([None, *range(first_lsn, first_lsn + 12)]),
                chance.randrange(1_000, 1_004),
                deleted=chance.random() < 0.2,
                amount=chance.choice([None, 0.5, 2, -7.25]),
                name=chance.choice([None, "a,b", 'say "x"', "NULL", "", "two\nlines", PLACEHOLDER, PLACEHOLDER]),
                tags=chance.choice([None, [], ["x"], ["x", "y"]]),
            )
            for _ in range(count)
        ]


def run(lake: InlineLake, records: Sequence[Record], number: int, catalog: Catalog | None = None) -> None:
    lake.sync(catalog or cdc_catalog(), [lines(records), state(number), status("COMPLETE")])


def change_log(lake: InlineLake) -> ChangeLogFolder:
    store = S3Store(lake.settings)
    return ChangeLogFolder(store, FOLDER, lambda key, size: RangedFile(store.settings, key, size))


def manifests(lake: InlineLake) -> list[Manifest]:
    log = change_log(lake)
    return [log.manifest(group) for group in log.groups]


def records_of(lake: InlineLake, manifest: Manifest) -> list[dict[str, Any]]:
    return list(change_log(lake).records(manifest, Interval()))


def stored(lake: InlineLake) -> dict[int, Row]:
    """The rows of the table's Parquet files, or of its states where these have another format."""
    found: dict[int, Row] = {}
    for file in lake.files(".parquet"):
        for row in pq.read_table(pa.BufferReader(file)).to_pylist():
            found[row["id"]] = {name: row[name] for name in COLUMNS}
    for file in lake.files(".jsonl.gz"):
        for text in gzip.decompress(file).splitlines():
            row = json.loads(text)["_airbyte_data"]
            found[row["id"]] = {name: row.get(name) for name in COLUMNS}
    return found


def noise(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=60))


def last_files(lake: InlineLake) -> list[bytes]:
    """The data files of the last group, as they are stored."""
    return [S3Store(lake.settings).get(FOLDER + file.key) for file in manifests(lake)[-1].files]


def change_log_names(lake: InlineLake) -> Iterator[str]:
    yield from (found.key for found in S3Store(lake.settings).list(FOLDER))
