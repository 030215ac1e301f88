"""A CDC stream `users` whose table has a change log: its records, its syncs, and what is in its log and table."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from destination_s3_spark.change_log.manifest import Manifest
from destination_s3_spark.change_log.reading import ChangeLogFolder, Interval
from destination_s3_spark.storage.ranged import RangedFile
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, schema_of, state
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


def cdc_catalog(generation: int = 1, minimum: int = 0, properties: Mapping[str, Any] = DATA | CDC, key: str | None = "id") -> JsonObject:
    cursor = "_ab_cdc_lsn" if "_ab_cdc_lsn" in properties else ()
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return messages.catalog(
        messages.stream(schema=schema_of(properties), mode="append_dedup" if key else "append", key=key or (), cursor=cursor, **ids)
    )


def data_of(record: Record) -> Row:
    deleted = "2026-01-02T00:00:00Z" if record.deleted else None
    cdc = {"_ab_cdc_lsn": record.lsn, "_ab_cdc_updated_at": "2026-01-02T03:04:05.678Z", "_ab_cdc_deleted_at": deleted}
    return {"id": record.id, **record.values, **cdc}


def lines(records: Iterable[Record]) -> bytes:
    return b"".join(messages.record(data_of(record), emitted_at=record.extracted_at) for record in records)


class Source:
    """Makes records and numbers them."""

    def __init__(self) -> None:
        self.count = 0

    def record(self, id_: int, lsn: int | None, extracted_at: int = 1_000, *, deleted: bool = False, **values: Any) -> Record:
        values = {name: values.get(name) for name in ("amount", "name", "tags")}
        self.count += 1
        return Record(id_, values, lsn, deleted, extracted_at, self.count - 1)

    def random_records(self, chance: random.Random, count: int, first_lsn: int, keys: int = KEYS) -> list[Record]:
        return [
            self.record(
                chance.randrange(keys),
                chance.choice([None, *range(first_lsn, first_lsn + 12)]),
                chance.randrange(1_000, 1_004),
                deleted=chance.random() < 0.2,
                amount=chance.choice([None, 0.5, 2, -7.25]),
                name=chance.choice([None, "a,b", 'say "x"', "NULL", "", "two\nlines", PLACEHOLDER, PLACEHOLDER]),
                tags=chance.choice([None, [], ["x"], ["x", "y"]]),
            )
            for _ in range(count)
        ]


def run(lake: Lake, records: Sequence[Record], number: int, catalog: JsonObject | None = None) -> None:
    lake.sync(catalog or cdc_catalog(), [lines(records), state(number), complete()])


def send_five(lake: Lake, number: int, key: str | None, generation: int = 1) -> None:
    """A sync of five rows, from the one with this number on. A generation above 1 is a refresh."""
    rows = [{"id": row, "name": f"{number}", "_ab_cdc_lsn": number} for row in range(number, number + 5)]
    minimum = generation if generation > 1 else 0
    lake.sync(cdc_catalog(generation, minimum, key=key), [messages.records(rows, emitted_at=1), state(number), complete()])


def change_log(lake: Lake) -> ChangeLogFolder:
    return ChangeLogFolder(lake.store, FOLDER, lambda key, size: RangedFile(lake.settings, key, size))


def manifests(lake: Lake) -> list[Manifest]:
    log = change_log(lake)
    return [log.manifest(group) for group in log.groups]


def records_of(lake: Lake, manifest: Manifest) -> list[dict[str, Any]]:
    return list(change_log(lake).records(manifest, Interval()))


def all_records(lake: Lake) -> list[dict[str, Any]]:
    return [record for manifest in manifests(lake) for record in records_of(lake, manifest)]


def stored(lake: Lake) -> dict[int, Row]:
    """The rows of the table's Parquet files, or of its states where these have another format."""
    found = {row["id"]: {name: row[name] for name in COLUMNS} for row in lake.glob()}
    for file in lake.files(".jsonl.gz"):
        for text in gzip.decompress(file).splitlines():
            row = json.loads(text)["_airbyte_data"]
            found[row["id"]] = {name: row.get(name) for name in COLUMNS}
    return found


def noise(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=60))


def last_files(lake: Lake) -> list[bytes]:
    """The data files of the last group, as they are stored."""
    return [lake.store.get(FOLDER + file.key) for file in manifests(lake)[-1].files]


def change_log_names(lake: Lake) -> Iterator[str]:
    yield from (found.key for found in lake.store.list(FOLDER))
