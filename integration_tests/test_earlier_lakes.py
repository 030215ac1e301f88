"""Lakes that an earlier version of the connector wrote: syncs of today go on with them.

The archives in `earlier_lakes` hold every object of a bucket. In `parquet` the refresh of `orders` was interrupted; `csv` has a change log.
"""

from __future__ import annotations

import csv
import gzip
import tarfile
from pathlib import Path
from typing import Any

from integration_tests.lake import Lake
from integration_tests.source import catalog, complete, record, state, stream, users

ARCHIVES = Path(__file__).parent / "earlier_lakes"
METADATA = "amz."
"""What the names of objects' metadata begin with in the archives."""
MOMENT = {"type": "string", "format": "date-time"}
ACCOUNT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "_ab_cdc_lsn": {"type": "integer"},
        "_ab_cdc_updated_at": MOMENT,
        "_ab_cdc_deleted_at": MOMENT,
    },
}
ACCOUNTS = stream("accounts", schema=ACCOUNT, mode="append_dedup", primary_key=[["id"]], cursor_field=["_ab_cdc_lsn"])
NEWER = [(1, 6, "A"), (2, 3, "older than its deletion"), (4, 7, "d")]
CSV: dict[str, Any] = {"format": {"format_type": "CSV", "flattening": "Root level flattening"}, "change_log": {"enabled": True}}


def unpack(name: str, lake: Lake) -> None:
    client = lake.bucket.server.client()
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        for member in archive:
            body = archive.extractfile(member)
            assert body is not None
            metadata = {key.removeprefix(METADATA): value for key, value in member.pax_headers.items() if key.startswith(METADATA)}
            client.put_object(Bucket=lake.bucket.name, Key=member.name, Body=body.read(), Metadata=metadata)


def accounts() -> list[bytes]:
    moment = "2026-01-03T00:00:00Z"
    return [
        record({"id": number, "name": name, "_ab_cdc_lsn": lsn, "_ab_cdc_updated_at": moment, "_ab_cdc_deleted_at": None}, "accounts")
        for number, lsn, name in NEWER
    ]


def test_tables_deletions_and_an_interrupted_refresh_go_on(moto_lake: Lake) -> None:
    unpack("parquet", moto_lake)

    moto_lake.connector().write(
        catalog(stream(), ACCOUNTS, stream("orders", generation=2, minimum_generation=2)),
        [
            *users([4]), *accounts(), *users([8], "orders"),
            state(3), state(3, "accounts"), state(3, "orders"),
            complete(), complete("accounts"), complete("orders"),
        ],
    ).expect_success()  # fmt: skip

    moto_lake.verify_at_rest()
    assert moto_lake.ids() == [1, 2, 3, 4]
    assert sorted((row["id"], row["name"]) for row in moto_lake.rows(("shop", "accounts"))) == [(1, "A"), (3, "C"), (4, "d")]
    assert moto_lake.ids(("shop", "orders")) == [7, 8]


def test_a_text_table_and_its_change_log_go_on(moto_lake: Lake) -> None:
    unpack("csv", moto_lake)

    moto_lake.connector(**CSV).write(catalog(ACCOUNTS), [*accounts(), state(3, "accounts"), complete("accounts")]).expect_success()

    (final,) = moto_lake.chains()["shop", "accounts"].final_keys
    assert sorted((row["id"], row["name"]) for row in csv.DictReader(lines(moto_lake, final))) == [("1", "A"), ("3", "C"), ("4", "d")]
    newest = [key for key in moto_lake.bucket.list_keys("lake/airbyte_changes/") if key.endswith("-changes.csv.gz")][-1]
    assert [row[-3] for row in csv.reader(lines(moto_lake, newest))] == ["U", "I"]


def lines(lake: Lake, key: str) -> list[str]:
    return gzip.decompress(lake.bucket.read(key)).decode().splitlines()
