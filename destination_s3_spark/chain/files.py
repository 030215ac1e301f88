"""Data files as the chain names them: staged files and the entries of `files` in data blocks.

This module knows nothing about the contents of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from destination_s3_spark.formats.file_statistics import FileStatistics
from destination_s3_spark.storage.object_store import StagedUpload

GENERATION_METADATA = "ab-generation-id"
"""Object metadata key for the generation of a final file's rows, in our files and in those of destination-s3."""


def generation_metadata(generation_id: int | None) -> dict[str, str]:
    """Return the object metadata of a file with rows of this generation."""
    return {GENERATION_METADATA: str(generation_id)}


Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]
"""A number of rows, files, blocks or bytes, or an offset. Sums of a few of them fit into 64 bits."""
Hex: TypeAlias = Annotated[str, Meta(pattern="^(?:[0-9a-f]{2})*$")]


class FileKind(Enum):
    """The purpose of a file."""

    RAW = "raw"
    FINAL = "final"
    DELTA = "delta"
    """Typed rows that are durable but not in the final table yet."""
    STATE = "state"
    """Rows of a final file that is not Parquet, in the form that merges read."""
    TOMBSTONE = "tombstone"
    """Deleted keys, so that a late older row does not bring one back."""
    ADOPTED = "adopted"
    """A final file that destination-s3 wrote before this connector took over."""
    CHANGES = "changes"
    """A file of the change log. It becomes visible with its block but is not part of the table."""


class KeyRange(Struct, frozen=True):
    """Bounds of the encoded keys in a sorted file, in hex. Long keys are cut to valid bounds. `of`: fingerprint of the key's columns."""

    first: Hex
    last: Hex
    of: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A staged file: the upload that makes it visible and its number of rows. Its size in bytes is `upload.size`.

    `keys`: bounds of its keys if it is sorted by key. `offset`: chain offset of its first row if it rewrites the rows of one landed file;
    otherwise AddData supplies the offset. `schema_id` and `generation_id`: those of its rows, where they differ from the block's.
    `statistics`: those of a Parquet file, if a publisher needs them. `partition`: the value in the name of the file's folder, None for a
    file of a table without partitions.
    """

    kind: FileKind
    upload: StagedUpload
    rows: int
    keys: KeyRange | None = None
    offset: int | None = None
    schema_id: int | None = None
    generation_id: int | None = None
    statistics: FileStatistics | None = None
    partition: str | None = None

    @property
    def key(self) -> str:
        """The object's key, which is never reused."""
        return self.upload.key


class FileEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file as a block names it.

    `upload_id` is null if the file is known to be visible. `schema_id` names the schema of its columns. `offset` is the chain offset of its
    first row, null for rows that a merge combined. In AddData these two and `generation_id` follow from the block; other events state them.
    `statistics` is None if the file was written while no publisher needed them; entries of removed files have none either.
    `landed_on`: the day on which the last rows of a raw file landed, counted from 1970. Only live files have it; added ones do not.
    `partition`: as in DataFile. The rows of a file with one are those of a partition out of several landed files or a part of one, so
    `offset` only gives their order among the files of the partition.
    """

    kind: FileKind
    key: str
    rows: Count
    bytes: Count
    upload_id: str | None = None
    part_etags: tuple[str, ...] = ()
    keys: KeyRange | None = None
    schema_id: int | None = None
    generation_id: int | None = None
    offset: Count | None = None
    statistics: FileStatistics | None = None
    landed_on: int | None = None
    partition: str | None = None

    @classmethod
    def of(cls, file: DataFile) -> FileEntry:
        """Return the entry for a staged file."""
        upload = file.upload
        return cls(
            file.kind,
            upload.key,
            file.rows,
            upload.size,
            upload.upload_id,
            upload.part_etags,
            file.keys,
            file.schema_id,
            file.generation_id,
            file.offset,
            file.statistics,
            partition=file.partition,
        )

    def upload(self) -> StagedUpload:
        """Return the upload to complete or abort. Only for entries of data blocks, which always have an upload."""
        return StagedUpload(self.key, self.upload_id or "", self.part_etags, self.bytes)

    def visible(self) -> FileEntry:
        """Return the entry of the same file after its upload is complete."""
        return replace(self, upload_id=None, part_etags=())
