"""Open uploads that a dead session left behind.

They are invisible but cost storage. Only uploads with the table's own number and an older epoch are aborted.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from destination_s3_spark.chain.territory import Territory
from destination_s3_spark.chain.tokens import Token, parse_token
from destination_s3_spark.storage.object_store import ObjectStore


class OrphanUploads:
    """The open uploads under a bucket path, listed once for all tables. `prefix` ends in `/` or is empty."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._lock = threading.Lock()
        self._by_table: dict[int, list[tuple[Token, str, str]]] | None = None

    def abort(self, territory: Territory, before_epoch: int) -> int:
        """Abort the table's uploads from epochs before `before_epoch` and return their number.

        Every block of those epochs must be settled, because it may need these uploads until then.
        """
        found = [upload for upload in self._found(territory.number, before_epoch) if territory.may_write(upload[1])]
        for _, key, upload_id in found:
            self._store.abort_upload(key, upload_id)
        return len(found)

    def count(self, table_number: int, before_epoch: int) -> int:
        """Return the number of uploads from epochs before `before_epoch`."""
        return len(self._found(table_number, before_epoch))

    def _found(self, table_number: int, before_epoch: int) -> list[tuple[Token, str, str]]:
        return [upload for upload in self._listed().get(table_number, ()) if upload[0].epoch < before_epoch]

    def _listed(self) -> dict[int, list[tuple[Token, str, str]]]:
        with self._lock:
            if self._by_table is None:
                by_table = defaultdict(list)
                for key, upload_id in self._store.list_uploads(self._prefix):
                    token = parse_token(key)
                    if token is not None:
                        by_table[token.table_number].append((token, key, upload_id))
                self._by_table = dict(by_table)
            return self._by_table
