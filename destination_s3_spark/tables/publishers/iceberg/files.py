"""pyiceberg's access to metadata files, through the connector's own store: the same credentials, encryption, retries and faults."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from destination_s3_spark.formats.avro_rows import require_sound
from destination_s3_spark.formats.bounded import reading
from destination_s3_spark.storage.object_store import ObjectNotFound, ObjectStore, ObjectTooLarge
from destination_s3_spark.tables.publishers.publication import NotPublished

STORE, BUCKET, FOLDER = "airbyte.store", "airbyte.bucket", "airbyte.folder"
"""Catalog properties that hold the store, the name of its bucket and the key prefix of a table's metadata files."""
STORE_FILES = f"{__name__}.StoreFiles"
MANIFEST_EXTENSION, METADATA_EXTENSION = ".avro", ".metadata.json"
"""Extensions of manifests and of lists of manifests, and of the files that name those lists."""
COMPRESSED_EXTENSION = f".gz{METADATA_EXTENSION}"
"""Extension of files that pyiceberg unpacks without a bound. This connector writes none."""
MOST_METADATA_BYTES = 256 * 2**20
"""Largest file that is read. Manifests are joined up to a thirtieth of this size."""
LONGEST_LOCATION = 500


def io_properties(store: ObjectStore, bucket: str, folder: str) -> dict[str, Any]:
    """Return the properties that make a catalog use the store, for the metadata files in one folder."""
    return {"py-io-impl": STORE_FILES, STORE: store, BUCKET: bucket, FOLDER: folder}


class StoreFiles(FileIO):
    """Metadata files of one table, in one folder of the connector's bucket. An object lives as long as one loaded table."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._manifests: dict[str, bytes] = {}

    def new_input(self, location: str) -> StoreFile:
        return StoreFile(location, self)

    def new_output(self, location: str) -> StoreFile:
        return StoreFile(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file. A file that is already gone is fine, and one elsewhere is left to the catalog that put it there."""
        with suppress(NotPublished):
            self.store.delete([self.key(location if isinstance(location, str) else location.location)])

    def read(self, key: str) -> bytes:
        """Return the object's bytes. pyiceberg reads manifests, which never change, several times for one commit.

        Raises ObjectNotFound, and NotPublished for a damaged manifest: pyiceberg would read beyond the end of its bytes, or without end.
        """
        if key not in self._manifests:
            body = self._sized(key)
            if not key.endswith(MANIFEST_EXTENSION):
                return body
            with reading(lambda fault: _damaged(key, fault)):
                require_sound(body)
            self._manifests[key] = body
        return self._manifests[key]

    def _sized(self, key: str) -> bytes:
        try:
            return self.store.get(key, MOST_METADATA_BYTES)
        except ObjectTooLarge:
            raise _damaged(key, "it is too large") from None

    @property
    def store(self) -> ObjectStore:
        found: Any = self.properties[STORE]
        store: ObjectStore = found
        return store

    def key(self, location: str) -> str:
        """Return the key of a metadata file. Raises NotPublished if it is no metadata file in the table's folder."""
        parts = urlsplit(location, allow_fragments=False)
        folder = self.properties[FOLDER]
        key = location.partition(f"://{parts.netloc}/")[2]
        name = key.removeprefix(folder)
        in_folder = parts.scheme in {"s3", "s3a", "s3n"} and parts.netloc == self.properties[BUCKET] and key.startswith(folder)
        known = name.endswith((MANIFEST_EXTENSION, METADATA_EXTENSION)) and not name.endswith(COMPRESSED_EXTENSION)
        if not in_folder or "/" in name or not known:
            raise NotPublished(
                f"The Iceberg table names '{location[:LONGEST_LOCATION]}' as a file of its metadata, which belongs below "
                f"'s3://{self.properties[BUCKET]}/{folder}'. If another program owns the table, choose another publish.iceberg.namespace; "
                "else drop the table in the catalog, without its files, and the next sync makes it again."
            )
        return key


def _damaged(key: str, fault: str) -> NotPublished:
    return NotPublished(
        f"The metadata file '{key}' of the Iceberg table is damaged ({fault}). Drop the table in the catalog, without its files; the next "
        "sync makes it again."
    )


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
        return self._store.head(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        """Return the object's bytes. Raises FileNotFoundError."""
        try:
            return BytesIO(self._files.read(self._key))
        except ObjectNotFound:
            raise FileNotFoundError(self.location) from None

    def to_input_file(self) -> StoreFile:
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
