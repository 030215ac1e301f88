"""What readers of published tables see at each S3 call that changes something, which is also what they see if the sync dies there."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

import deltalake
import polars as pl
import pytest
from pyiceberg.catalog import load_catalog

from integration_tests.fault_proxy import Fault, FaultProxy
from integration_tests.readers.published_table import NAME, PublishedTable
from unit_tests.lake.buckets import REGION
from unit_tests.lake.messages import EMITTED_AT_MS
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, record, state
from unit_tests.s3_proxy import Call
from unit_tests.sampling import sample

pytestmark = [pytest.mark.reader_tests, pytest.mark.xdist_group("readers")]

IDS = range(200)
PROPERTIES = {"id": {"type": "integer"}, "round": {"type": "integer"}, "text": {"type": "string"}}
CHANGES = ("CompleteMultipartUpload", "PutObject", "CopyObject", "DeleteObject", "DeleteObjects")
OTHERS = ("/scratch/", "/delta/", "_raw__stream_users/raw", "/hint")
"""Parts of the keys of objects that no reader of a published table knows of."""
Rounds: TypeAlias = Counter[int]
"""How many rows a table has of each sync."""


def readings(table: PublishedTable) -> dict[str, Callable[[], Rounds]]:
    """The readers of the table, each with an eye of its own."""
    server, bucket = table.lake.bucket.server, table.lake.bucket.name
    uri = f"s3://{bucket}/{BUCKET_PATH}/{table.namespace}/{NAME}"
    access, secret = server.access_key, server.secret_key
    keys = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": REGION}
    store = {**keys, "AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true"}
    s3 = {"s3.endpoint": server.endpoint, "s3.access-key-id": access, "s3.secret-access-key": secret, "s3.region": REGION}
    catalog = load_catalog("lake", type="rest", uri=table.readers.catalog, **s3)

    def in_spark(name: str) -> Rounds:
        rows = table.readers.spark.rows(f"SELECT round, count(*) AS number FROM {name} GROUP BY round")
        return Counter({row["round"]: row["number"] for row in rows})

    def in_delta_rs() -> Rounds:
        found = deltalake.DeltaTable(uri, storage_options=store).to_pyarrow_table(columns=["round"])
        return Counter(found["round"].to_pylist())

    def in_polars() -> Rounds:
        return Counter(pl.scan_delta(uri, storage_options=store).select("round").collect()["round"].to_list())

    def in_pyiceberg() -> Rounds:
        found = catalog.load_table((table.namespace, NAME)).scan(selected_fields=("round",)).to_arrow()
        return Counter(found["round"].to_pylist())

    return {
        "delta-rs": in_delta_rs,
        "Polars": in_polars,
        "Spark, Delta": lambda: in_spark(table.delta),
        "pyiceberg": in_pyiceberg,
        "Spark, Iceberg": lambda: in_spark(table.iceberg),
    }


def lines(table: PublishedTable, number: int, chance: Random) -> list[bytes]:
    """All rows in two parts, each with its STATE. The texts make files large enough for several of them."""
    halves = (IDS[: len(IDS) // 2], IDS[len(IDS) // 2 :])
    made: list[bytes] = []
    for half in halves:
        made += [record(row(one, number, chance), NAME, table.namespace, emitted_at=EMITTED_AT_MS + number) for one in half]
        made.append(state(f"{number}.{half.start}", NAME, table.namespace))
    return [*made, complete(NAME, table.namespace)]


def row(one: int, number: int, chance: Random) -> Mapping[str, Any]:
    return {"id": one, "round": number, "text": chance.randbytes(8_000).hex()}


def is_watched(call: Call) -> bool:
    return call.action in CHANGES and not any(other in call.key for other in OTHERS)


@pytest.mark.parametrize("mode", sample(["append", "append_dedup"], 1))
def test_a_reader_sees_one_commit_at_every_call(mode: str, table: PublishedTable, proxy: FaultProxy) -> None:
    table.mode = mode
    readers, chance, lock = readings(table), Random(mode), threading.Lock()
    watched = table.connector_through(proxy.endpoint)
    seen: dict[str, list[tuple[str, Rounds]]] = {}

    def look(call: Call) -> None:
        with lock:
            for name, reading in readers.items():
                seen[name].append((f"{call.action} {call.key}", reading()))

    everyone = len(IDS)
    table.connector.write(table.catalog(PROPERTIES), lines(table, 0, chance)).expect_success()
    shown: Rounds = Counter({0: everyone})
    for reading in readers.values():
        assert reading() == shown, "an engine starts here, not while a call waits for it"
    for number, generation in ((1, 1), (2, 2)):
        seen.update({name: [] for name in readers})
        proxy.forget()
        proxy.inject(Fault(only=is_watched, status=None, effect=look))
        watched.write(table.catalog(PROPERTIES, generation), lines(table, number, chance), 300).expect_success()
        proxy.forget()

        later: Rounds = Counter({number: everyone})
        if mode == "append" and generation == 1:
            later = shown + later
        for name, found in seen.items():
            assert len(found) > 5, "it was looked at"
            assert [(call, rounds) for call, rounds in found if rounds not in (shown, later)] == [], name
            assert found[0][1] == shown, name
            assert readers[name]() == later, name
        if generation == 1:
            assert len(table.lake.chains()[table.namespace, NAME].final_keys) > 1, "a mixture is possible"
        shown = later
