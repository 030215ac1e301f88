"""The bucket as one table may use it: every request for another key than the table's own is refused before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from destination_s3_spark.chain.files import GENERATION_METADATA
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.territory import Territory
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import MOST_BYTES, ObjectInfo, ObjectRange, ObjectStore, StagedUpload


class TableStore:
    """`ObjectStore` for the keys of a chain's table. All access of a table to the bucket goes through it, except that of its chain.

    The chain makes the keys of its blocks itself. Tasks on executors get keys that blocks named, which the chain has checked.
    """

    def __init__(self, store: ObjectStore, chain: Chain) -> None:
        self._store = store
        self._chain = chain

    @property
    def may_overwrite(self) -> bool:
        return self._store.may_overwrite

    def get(self, key: str, most_bytes: int = MOST_BYTES) -> bytes:
        self.require(key)
        return self._store.get(key, most_bytes)

    def get_range(self, key: str, start: int, end: int, size: int) -> bytes:
        self.require(key)
        return self._store.get_range(key, start, end, size)

    def head(self, key: str) -> ObjectInfo | None:
        self._require_held(key)
        return self._store.head(key)

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        self._require_writable(key)
        self._store.put(key, body, metadata)

    def create(self, key: str, body: bytes) -> None:
        self._require_writable(key)
        self._store.create(key, body)

    def restore(self, key: str, wanted: Callable[[bytes], bool]) -> None:
        self._require_writable(key)
        self._store.restore(key, wanted)

    def replace(self, key: str, body: bytes, metadata: Mapping[str, str], etag: str | None) -> str:
        self._require_writable(key)
        return self._store.replace(key, body, metadata, etag)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects. Deletes none of them if one is not the table's."""
        for key in keys:
            if not self._territory.may_delete(key):
                raise self._refusal(key)
            self.require(key)
        self._store.delete(keys)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(self._listable(prefix))

    def folders(self, prefix: str) -> Iterator[str]:
        return self._store.folders(self._listable(prefix))

    def stage_copy(self, source: str, key: str, metadata: Mapping[str, str] | None = None) -> StagedUpload:
        self.require(source)
        self._require_writable(key)
        return self._store.stage_copy(source, key, metadata)

    def stage_joined(self, ranges: Sequence[ObjectRange], tail: bytes, key: str, metadata: Mapping[str, str]) -> StagedUpload:
        for part in ranges:
            self.require(part.key)
        self._require_writable(key)
        return self._store.stage_joined(ranges, tail, key, metadata)

    def complete_upload(self, upload: StagedUpload) -> None:
        self._require_writable(upload.key)
        self._store.complete_upload(upload)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._require_writable(key)
        self._store.abort_upload(key, upload_id)

    def list_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        return self._store.list_uploads(self._listable(prefix))

    def hasty(self) -> TableStore:
        return TableStore(self._store.hasty(), self._chain)

    def require(self, key: str) -> None:
        """Raise DataError unless the object is the table's. Takes a HEAD if the key cannot tell that destination-s3 wrote the file.

        That is so for adopted files after a change of the path templates.
        """
        self._require_held(key)
        if not self._territory.is_own_by_name(key):
            info = self._store.head(key)
            if info is not None and GENERATION_METADATA not in info.metadata:
                raise self._refusal(key)

    def _require_held(self, key: str) -> None:
        if not self._territory.holds(key):
            raise self._refusal(key)

    def _require_writable(self, key: str) -> None:
        if not self._territory.may_write(key):
            raise self._refusal(key)

    def _listable(self, prefix: str) -> str:
        if not self._territory.may_list(prefix):
            raise self._refusal(prefix)
        return prefix

    @property
    def _territory(self) -> Territory:
        return self._chain.territory

    def _refusal(self, key: str) -> DataError:
        return DataError(
            f"Table {self._chain.table.stream}: '{key}' is not one of its objects, so it was neither read nor changed. An object under "
            f"'{self._chain.table.folder}' or a catalog names it, and only this connector may write there. Run `verify`; restore what it "
            "finds from a backup or an older version, and find out who wrote it."
        )
