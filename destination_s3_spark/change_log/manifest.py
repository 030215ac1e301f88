"""Names of the objects in a table's change log, which sort in log order, and the manifest of a commit's files, sufficient to read them.

A commit adds a group: data files named `{offset}-{token}-{part}-{kind}{extension}` and a manifest named `{offset}-{token}-manifest.json`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import count, islice
from typing import Literal, NamedTuple

import msgspec

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.events import AfterImage, BeforeImage, LogColumns
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.file_format import DirectWriter
from destination_s3_spark.storage.object_store import ObjectInfo, ObjectStore
from destination_s3_spark.stream_id import StreamId

_GROUP = r"(\d{20})-(\d{26})"


class LogKind(Enum):
    """The contents of a group's files. File names contain the value."""

    CHANGES = "changes"
    """One event per change of a row, in order."""
    SNAPSHOT = "snapshot"
    """All rows of the table. The log starts over with them."""
    UPSERTS = "upserts"
    """Added or changed rows, for streams whose source does not say which they are."""


_MANIFEST = re.compile(rf"{_GROUP}-manifest\.json")
_FILE = re.compile(rf"{_GROUP}-(\d{{5}})-({'|'.join(kind.value for kind in LogKind)})\.[a-z.]+")


class GroupName(NamedTuple):
    """Common prefix of the names of a commit's objects: the chain offset of its first record and a token of 26 digits unique to it."""

    offset: int
    token: str

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.token}"

    @property
    def manifest(self) -> str:
        return f"{self}-manifest.json"

    @classmethod
    def of_manifest(cls, name: str) -> GroupName | None:
        """Parse the name of a manifest. Return None for any other name."""
        match = _MANIFEST.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2])


class LogName(NamedTuple):
    """The name of a data file. Parts of a group count from 0."""

    offset: int
    token: str
    part: int
    kind: LogKind

    @property
    def group(self) -> GroupName:
        return GroupName(self.offset, self.token)

    def file_name(self, extension: str) -> str:
        return f"{self.group}-{self.part:05d}-{self.kind.value}{extension}"

    @classmethod
    def parse(cls, name: str) -> LogName | None:
        """Parse the name of a data file. Return None for any other name."""
        match = _FILE.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]), LogKind(match[4]))


def log_objects(store: ObjectStore, folder: str) -> dict[str, ObjectInfo]:
    """List the objects of the change log in a folder, by their names there.

    The folder of a stream without a namespace also contains the folders of a namespace with the stream's name.
    """
    listed = ((info.key.removeprefix(folder), info) for info in store.list(folder))
    return {name: info for name, info in listed if "/" not in name}


MOST_MANIFEST_BYTES = 64 * 2**20
"""Largest manifest that is read. One names the files of a commit, and the places of rows that were forgotten."""


class LogColumn(msgspec.Struct, frozen=True):
    """A data column with its Arrow type as text."""

    name: str
    type: str


class LogFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A data file: its name in the folder and its number of events or rows, and that of those that were forgotten.

    `gone` has the places of forgotten rows in the first version of the file, counted from 0, in order. Events carry their number, so it is
    empty for these.
    """

    key: str
    rows: int
    redacted: int = 0
    gone: tuple[int, ...] = ()

    def places(self) -> Iterator[int]:
        """Yield the place of each row in the first version of the file, without end."""
        gone = frozenset(self.gone)
        return (place for place in count() if place not in gone)

    def redacted_to(self, key: str, forgotten: Collection[int], *, numbered: bool) -> LogFile:
        """Return the file without the rows at these positions, counted from 0. `numbered`: whether rows carry their number."""
        if not forgotten:
            return LogFile(key, self.rows, self.redacted, self.gone)
        rows, redacted = self.rows - len(forgotten), self.redacted + len(forgotten)
        if numbered:
            return LogFile(key, rows, redacted)
        until = max(forgotten) + 1  # the number of rows is only what the manifest says
        added = (place for position, place in enumerate(islice(self.places(), until)) if position in forgotten)
        return LogFile(key, rows, redacted, tuple(sorted((*self.gone, *added))))


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The description of a group. Its files are in log order. The counts are those before its first event and after its last.

    `replaces`: the name of the group that this one took the place of. As long as that one is there, it does not count.
    """

    format_version: Literal[1] = 1
    format: ChangeLogFormat
    kind: LogKind
    stream: StreamId
    generation_id: int
    schema_id: int
    primary_key: tuple[str, ...]
    columns: tuple[LogColumn, ...]
    before_image: BeforeImage
    after_image: AfterImage
    include_header: bool
    files: tuple[LogFile, ...]
    operation_count_before: OperationCount
    operation_count: OperationCount
    replaces: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def header_rows(self) -> int:
        """The number of rows before the first one in each file."""
        return int(self.include_header and self.format is ChangeLogFormat.REPLICANT_CSV)

    def to_bytes(self) -> bytes:
        """Return the object's bytes. Equal manifests have equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> Manifest:
        """Parse the bytes of the object with this key. Raises DataError, which names the key, when they are not a manifest we can read."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"The manifest {key} of a change log cannot be read: {error}. Was it written by a newer version?") from error


class ManifestFile(DirectWriter[Manifest]):
    """Writer of a manifest, a file without rows."""

    def write(self, manifest: Manifest) -> None:
        self._put(manifest.to_bytes())


def manifest_of(
    columns: LogColumns,
    options: ChangeLogOptions,
    kind: LogKind,
    ids: tuple[int, int],
    files: Sequence[LogFile],
    before: OperationCount,
    after: OperationCount,
) -> Manifest:
    """Return a group's manifest. `ids`: the generation id and the schema id."""
    generation_id, schema_id = ids
    return Manifest(
        format=options.format,
        kind=kind,
        stream=columns.stream,
        generation_id=generation_id,
        schema_id=schema_id,
        primary_key=columns.key,
        columns=tuple(LogColumn(field.name, str(field.type)) for field in columns.fields),
        before_image=options.before_image,
        after_image=options.after_image,
        include_header=options.include_header,
        files=tuple(files),
        operation_count_before=before,
        operation_count=after,
    )
