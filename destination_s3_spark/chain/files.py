"""Data files: the one record of a file, from its staged upload to its entry in `files` of data blocks.

This module knows nothing about the contents of a file.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from destination_s3_spark.formats.file_statistics import FileStatistics, KeyRange, WrittenFile
from destination_s3_spark.storage.object_store import StagedUpload

GENERATION_METADATA = "ab-generation-id"
"""Object metadata key for the generation of a final file's rows, in our files and in those of destination-s3."""


def generation_metadata(generation_id: int | None) -> dict[str, str]:
    """Return the object metadata of a file with rows of this generation."""
    return {GENERATION_METADATA: str(generation_id)}


Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]
"""A number of rows, files, blocks or bytes, or an offset. Sums of a few of them fit into 64 bits."""


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


class FileEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file: staged by a task, or as a block names it.

    `upload_id` is null if the file is known to be visible. `keys` are those of a file sorted by key. `schema_id` names the schema of its
    columns. `offset` is the chain offset of its first row, null for rows that a merge combined. In AddData these two and `generation_id`
    follow from the block, and a staged file has them only where they differ from the block's; entries of other events state them.
    `statistics` is None if the file was written while no publisher needed them; entries of removed files have none either.
    `landed_on`: the day on which the last rows of a raw file landed, counted from 1970. Only live files have it; added ones do not.
    `partition`: the value in the name of the file's folder, None for a table without partitions. The rows of a file with one are those of a
    partition out of several landed files or a part of one, so `offset` only gives their order among the files of the partition.
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
    def staged(cls, kind: FileKind, upload: StagedUpload, written: WrittenFile, partition: str | None = None) -> FileEntry:
        """Return the entry of a file with an upload that is not completed yet."""
        return cls(
            kind=kind,
            key=upload.key,
            rows=written.rows,
            bytes=upload.size,
            upload_id=upload.upload_id,
            part_etags=upload.part_etags,
            keys=written.keys,
            statistics=written.statistics,
            partition=partition,
        )

    def copied(self, upload: StagedUpload, kind: FileKind) -> FileEntry:
        """Return the entry of a staged file with the same rows, not for merges by key."""
        return replace(
            self,
            kind=kind,
            key=upload.key,
            bytes=upload.size,
            upload_id=upload.upload_id,
            part_etags=upload.part_etags,
            keys=None,
            landed_on=None,
        )

    @property
    def upload(self) -> StagedUpload:
        """The upload to complete or abort. Only for staged files and entries of data blocks, which always have an upload."""
        return StagedUpload(self.key, self.upload_id or "", self.part_etags, self.bytes)

    def visible(self) -> FileEntry:
        """Return the entry of the same file after its upload is complete."""
        return replace(self, upload_id=None, part_etags=())
