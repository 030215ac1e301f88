"""The data files a chain names.

Comes in: what landing staged. Goes out: the entries of `files` in data blocks. Knows nothing about what is inside a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from destination_s3_spark.storage.object_store import StagedUpload


class FileKind(Enum):
    """Which table a file belongs to."""

    RAW = "raw"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as a block names it: the upload that makes it visible, `rows` in it, size in bytes (`upload.size`)."""

    kind: FileKind
    upload: StagedUpload
    rows: int

    @property
    def key(self) -> str:
        """The object's key; unique for ever."""
        return self.upload.key
