"""pyiceberg's access to metadata files, through the connector's own store: the same credentials, encryption, retries and faults."""

from __future__ import annotations

from io import BytesIO
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore
from destination_s3_spark.tables.publishers.publication import NotPublished

STORE, BUCKET = "airbyte.store", "airbyte.bucket"
"""Catalog properties that hold the store and the name of its bucket."""
MANIFEST_EXTENSION = ".avro"
"""Extension of manifests and of lists of manifests."""


def io_properties(store: ObjectStore, bucket: str) -> dict[str, Any]:
    """Return the properties that make a catalog use the store."""
    return {"py-io-impl": f"{StoreFiles.__module__}.{StoreFiles.__name__}", STORE: store, BUCKET: bucket}


class StoreFiles(FileIO):
    """Files of the connector's bucket. An object lives as long as one loaded table."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._manifests: dict[str, bytes] = {}

    def new_input(self, location: str) -> StoreFile:
        """Return the file at the location for reading."""
        return StoreFile(location, self)

    def new_output(self, location: str) -> StoreFile:
        """Return the file at the location for writing."""
        return StoreFile(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file. A file that is already gone is fine."""
        self.store.delete([self.key(location if isinstance(location, str) else location.location)])

    def read(self, key: str) -> bytes:
        """Return the object's bytes. pyiceberg reads manifests, which never change, several times for one commit. Raises ObjectNotFound."""
        if key not in self._manifests:
            body = self.store.get(key)
            if not key.endswith(MANIFEST_EXTENSION):
                return body
            self._manifests[key] = body
        return self._manifests[key]

    @property
    def store(self) -> ObjectStore:
        """The connector's store."""
        found: Any = self.properties[STORE]
        store: ObjectStore = found
        return store

    def key(self, location: str) -> str:
        """Return the key at the location. Raises NotPublished if it is in another bucket."""
        parts = urlsplit(location, allow_fragments=False)
        bucket = self.properties[BUCKET]
        if parts.scheme not in {"s3", "s3a", "s3n"} or parts.netloc != bucket:
            raise NotPublished(
                f"The Iceberg table has its metadata at '{location}', which is not in the bucket '{bucket}' of this connector. If another "
                "program owns the table, choose another publish.iceberg.namespace; else drop the table, and the next sync makes it again."
            )
        return location.partition(f"://{bucket}/")[2]


class StoreFile(InputFile, OutputFile):
    """One metadata file. It is read and written as a whole."""

    def __init__(self, location: str, files: StoreFiles) -> None:
        super().__init__(location)
        self._files = files
        self._store = files.store
        self._key = files.key(location)

    def __len__(self) -> int:
        info = self._store.head(self._key)
        if info is None:
            raise FileNotFoundError(self.location)
        return info.size

    def exists(self) -> bool:
        """Return whether the object exists."""
        return self._store.head(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        """Return the object's bytes. Raises FileNotFoundError."""
        try:
            return BytesIO(self._files.read(self._key))
        except ObjectNotFound:
            raise FileNotFoundError(self.location) from None

    def to_input_file(self) -> StoreFile:
        """Return this file for reading."""
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        """Start to write the object, which appears when the stream is closed. Raises FileExistsError."""
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _Upload(self._store, self._key)


class _Upload(BytesIO):
    """Bytes of an object, which are put at the end. An error in a `with` block discards them."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._store = store
        self._key = key

    def close(self) -> None:
        if not self.closed:
            body = self.getvalue()
            super().close()
            self._store.put(self._key, body)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        super().close()

    def __del__(self) -> None:
        """Discard what was never closed. The base class would call `close`."""
        super().close()
