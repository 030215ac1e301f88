"""Data files: the one record of a file, from its staged upload to its entry in `files` of data blocks.

This module knows nothing about the contents of a file.

The name of a file has a token, which identifies the table, the session and the file. A token has 26 digits: 10 for the table number, 8 for
the epoch, 8 for a number that counts the session's files. A file name is the token and the extension, with or without a prefix that ends in
`-`. In the change log, the part and kind follow the token. The first digit is never 0, so a token may be stored as a number.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from operator import add
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from destination_s3_spark.errors import Bug
from destination_s3_spark.formats.file_statistics import FileStatistics, KeyRange, WrittenFile, unbounded_columns
from destination_s3_spark.storage.object_store import StagedUpload

GENERATION_METADATA = "ab-generation-id"
"""Object metadata key for the generation of a final file's rows, in our files and in those of destination-s3."""
MAX_EPOCH = MAX_FILE_NUMBER = 10**8 - 1

_TOKEN = re.compile(r"(?:^|[-/])(\d{10})(\d{8})(\d{8})(?=(?:-(?:\d{5}-[a-z]+|manifest))?\.[^/]*$|$)")


def generation_metadata(generation_id: int | None) -> dict[str, str]:
    return {GENERATION_METADATA: str(generation_id)}


Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]
"""A number of rows, files, blocks or bytes, or an offset. Sums of a few of them fit into 64 bits."""


class FileKind(Enum):
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
    CURRENT = "current"
    """Versions of rows that are valid now, in a history of the table."""
    CLOSED = "closed"
    """Versions of rows that were valid once, in a history of the table."""


HISTORY_KINDS = frozenset({FileKind.CURRENT, FileKind.CLOSED})


class FileEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file: staged by a task, or as a block names it.

    `upload_id` is null if the file is known to be visible. `sorted_by`: fingerprint of the key by which its rows are sorted, if they are.
    `copy_of`: the key of the final file whose rows a merge state, or a file of versions, has. `schema_id` names the schema of its columns.
    `offset` is the chain offset of its first row, null for rows that a merge combined. In AddData these two and `generation_id` follow from
    the block, and a staged file has them only where they differ from the block's; entries of other events state them. `unbounded`: names of
    the columns that have a value without a bound in its statistics. None if none were gathered, because no publisher needed them.
    `landed_on`: the day on which the last rows of a raw file landed, or a file of closed versions was written, counted from 1970. Only live
    files have it; added ones do not. `in_partition`: whether the name of its folder has the value of a partition. Its rows are then those
    of a partition out of several landed files or a part of one, so `offset` only gives their order among the files of the partition.
    `combined`: whether the file is a run made of several landed runs, or a part of it. Its `offset` is then that of the first of their
    rows. `history`: the number of the history that a file of versions belongs to, counted from 1.

    `keys` and `statistics` have values of records. Blocks, which are never deleted, do not have them: they are in the file's footer, and
    the session that wrote the file and the hint know them.
    """

    kind: FileKind
    key: str
    rows: Count
    bytes: Count
    upload_id: str | None = None
    part_etags: tuple[str, ...] = ()
    sorted_by: str | None = None
    copy_of: str | None = None
    schema_id: int | None = None
    generation_id: int | None = None
    offset: Count | None = None
    unbounded: tuple[str, ...] | None = None
    landed_on: int | None = None
    in_partition: bool = False
    combined: bool = False
    history: Count | None = None
    keys: KeyRange | None = None
    statistics: FileStatistics | None = None

    @classmethod
    def staged(cls, kind: FileKind, upload: StagedUpload, written: WrittenFile, *, in_partition: bool = False) -> FileEntry:
        entry = cls.put(kind, upload.key, upload.size, written)
        return replace(entry, upload_id=upload.upload_id, part_etags=upload.part_etags, in_partition=in_partition)

    @classmethod
    def put(cls, kind: FileKind, key: str, size: int, written: WrittenFile) -> FileEntry:
        """Return the entry of a file that is visible already."""
        return cls(
            kind=kind,
            key=key,
            rows=written.rows,
            bytes=size,
            sorted_by=None if written.keys is None else written.keys.of,
            unbounded=None if written.statistics is None else tuple(sorted(unbounded_columns([written.statistics]))),
            keys=written.keys,
            statistics=written.statistics,
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
            sorted_by=None,
            keys=None,
            landed_on=None,
        )

    @property
    def partition(self) -> str | None:
        """The value in the name of the file's folder, None for a file of a table without partitions."""
        return self.key.rpartition("/")[0].rpartition("=")[2] if self.in_partition else None

    @property
    def upload(self) -> StagedUpload:
        """The upload to complete or abort. Only for staged files and entries of data blocks, which always have an upload."""
        return StagedUpload(self.key, self.upload_id or "", self.part_etags, self.bytes)

    def beside(self, key: str) -> str:
        """Return the key with the folder of this file."""
        return self.key.rpartition("/")[0] + "/" + key.rpartition("/")[2]

    def visible(self) -> FileEntry:
        """Return the entry of the same file after its upload is complete."""
        return replace(self, upload_id=None, part_etags=())

    def without_values(self) -> FileEntry:
        """Return the entry as blocks have it."""
        return self if self.keys is None and self.statistics is None else replace(self, keys=None, statistics=None)


class OperationCount(msgspec.Struct, frozen=True, rename="camel"):
    """The number of events of each kind since the change log's last snapshot. The snapshot's rows count as inserts."""

    insert_count: int = 0
    update_count: int = 0
    delete_count: int = 0
    replace_count: int = 0

    @property
    def total(self) -> int:
        """The sequence number of the last event counted."""
        return sum(astuple(self))

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*map(add, astuple(self), astuple(other)))


class HistoryMark(msgspec.Struct, frozen=True, rename="camel"):
    """The history that goes on with the table: its number, counted from 1, and the fingerprint of the key that orders its files."""

    number: int
    sorted_by: str


class Token(NamedTuple):
    """A parsed token; `str()` returns its 26 digits."""

    table_number: int
    epoch: int
    file_number: int

    def __str__(self) -> str:
        if self.epoch > MAX_EPOCH or self.file_number > MAX_FILE_NUMBER:
            raise Bug(f"Out of file names: epoch {self.epoch}, file {self.file_number} of one sync.")
        return f"{self.table_number:010d}{self.epoch:08d}{self.file_number:08d}"


def parse_token(key: str) -> Token | None:
    """Return the token in a data file's key, or None if this connector did not name the key."""
    match = _TOKEN.search(key)
    return None if match is None else Token(*map(int, match.groups()))


def table_number(table_id: str) -> int:
    """Return a stable ten-digit number for the table, derived from a hash of its id; at least 10**9."""
    return 10**9 + int.from_bytes(hashlib.sha256(table_id.encode()).digest()[:8], "big") % (9 * 10**9)
