"""The data files a chain names.

Comes in: what landing staged. Goes out: the entries of `files` in data blocks. Knows nothing about what is inside a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from msgspec import Struct

from destination_s3_spark.storage.object_store import StagedUpload


class FileKind(Enum):
    """Which table a file belongs to."""

    RAW = "raw"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that landing staged: the upload that makes it visible and the `rows` in it. Its size in bytes is `upload.size`."""

    kind: FileKind
    upload: StagedUpload
    rows: int

    @property
    def key(self) -> str:
        """The object's key; unique for ever."""
        return self.upload.key


class FileEntry(Struct, frozen=True, rename="camel"):
    """A file as a block names it. `upload_id` is null where the file is known to be visible (in a Snapshot)."""

    kind: FileKind
    key: str
    rows: int
    bytes: int
    upload_id: str | None = None
    part_etags: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: DataFile) -> FileEntry:
        """The entry of a staged file."""
        upload = file.upload
        return cls(file.kind, upload.key, file.rows, upload.size, upload.upload_id, upload.part_etags)

    def upload(self) -> StagedUpload:
        """The upload to complete or abort. Only for entries of data blocks, which always have one."""
        return StagedUpload(self.key, self.upload_id or "", self.part_etags, self.bytes)

    def visible(self) -> FileEntry:
        """The same file once its upload is history."""
        return FileEntry(self.kind, self.key, self.rows, self.bytes)
