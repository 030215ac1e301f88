"""A lake of a shop: users with orders, and items of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileKind
from unit_tests.lake import messages
from unit_tests.lake.messages import complete, global_state, records, schema_of, stream
from unit_tests.sync.forgetful_lake import ForgetfulLake

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "users": ("append_dedup", {"id": {"type": "integer"}, "boss": {"type": "integer"}, "name": {"type": "string"}}),
    "orders": ("append", {"id": {"type": "integer"}, "user": {"type": "string"}, "name": {"type": "string"}}),
    "items": ("append_dedup", {"id": {"type": "integer"}, "order": {"type": "number"}, "name": {"type": "string"}}),
}


class ShopLake(ForgetfulLake):
    def send(self, data: Mapping[str, Iterable[Mapping[str, Any]]], namespace: str = "shop") -> None:
        """Sync rows of these streams, under a catalog of all."""
        self.syncs += 1
        streams = [
            stream(name, namespace, schema=schema_of(properties), mode=mode, key="id", sync_id=1)
            for name, (mode, properties) in STREAMS.items()
        ]
        sent = [records(rows, name, namespace, emitted_at=self.syncs) for name, rows in data.items()]
        self.sync(messages.catalog(*streams), [*sent, global_state(self.syncs), *(complete(name, namespace) for name in STREAMS)])

    def names(self, name: str) -> list[str]:
        """The names in the table of a stream."""
        factory = self.factory()
        (found,) = factory.choose(factory.find(), name, None)
        files = factory.read_chain(found).live_files().of(FileKind.FINAL)
        return sorted(row["name"] for file in files for row in pq.read_table(pa.BufferReader(self.store.get(file.key))).to_pylist())
