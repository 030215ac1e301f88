"""The data files a chain names.

Comes in: what landing staged. Goes out: the entries of `files` in data blocks. Knows nothing about what is inside a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from destination_s3_spark.storage.object_store import StagedUpload

GENERATION_METADATA = "ab-generation-id"
"""Object metadata of every final file, ours and destination-s3's: the generation of its rows."""


def generation_metadata(generation_id: int | None) -> dict[str, str]:
    """Return the object metadata of a file with rows of this generation."""
    return {GENERATION_METADATA: str(generation_id)}


class FileKind(Enum):
    """What a file is for."""

    RAW = "raw"
    FINAL = "final"
    DELTA = "delta"
    """Typed rows that are durable and not in the final table yet."""
    STATE = "state"
    """Rows of a final file of another format than Parquet, as merges read them."""
    TOMBSTONE = "tombstone"
    """Deleted keys, so that a late older row does not bring one back."""
    ADOPTED = "adopted"
    """A final file that destination-s3 wrote before this connector took over."""
    CHANGES = "changes"
    """A file of the change log: made visible with its block, and no part of the table."""


class KeyRange(Struct, frozen=True):
    """Bounds of the encoded keys in a sorted file, in hex; cut where keys are long, and still bounds. `of`: which key, by fingerprint."""

    first: str
    last: str
    of: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A staged file: the upload that makes it visible and the `rows` in it. Its size in bytes is `upload.size`.

    `keys`: bounds of its keys, if it is sorted by them. `offset`: the chain offset of its first row, if its rows are those that landed in
    one slice and not known by the block that adds it. `schema_id` and `generation_id`: those of its rows, if not the block's own.
    """

    kind: FileKind
    upload: StagedUpload
    rows: int
    keys: KeyRange | None = None
    offset: int | None = None
    schema_id: int | None = None
    generation_id: int | None = None

    @property
    def key(self) -> str:
        """The object's key; unique for ever."""
        return self.upload.key


class FileEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file as a block names it.

    `upload_id` is null where the file is known to be visible. Its columns are those of `schema_id`; `offset` is the chain offset of the
    first row of a delta or raw file. These and the generation are the block's own in AddData, and written out everywhere else.
    """

    kind: FileKind
    key: str
    rows: int
    bytes: int
    upload_id: str | None = None
    part_etags: tuple[str, ...] = ()
    keys: KeyRange | None = None
    schema_id: int | None = None
    generation_id: int | None = None
    offset: int | None = None

    @classmethod
    def of(cls, file: DataFile) -> FileEntry:
        """The entry of a staged file."""
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
        )

    def upload(self) -> StagedUpload:
        """The upload to complete or abort. Only for entries of data blocks, which always have one."""
        return StagedUpload(self.key, self.upload_id or "", self.part_etags, self.bytes)

    def visible(self) -> FileEntry:
        """The same file once its upload is history."""
        return replace(self, upload_id=None, part_etags=())
