"""Manifest of one commit's files in the change log: a small JSON object beside them, sufficient to read them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from destination_s3_spark.chain.operation_count import OperationCount
from destination_s3_spark.change_log.events import AfterImage, BeforeImage, LogColumns
from destination_s3_spark.change_log.names import LogKind
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.errors import DataError
from destination_s3_spark.stream_id import StreamId


class LogColumn(msgspec.Struct, frozen=True):
    """A data column with its Arrow type as text."""

    name: str
    type: str


class LogFile(msgspec.Struct, frozen=True):
    """A data file: its name in the folder and its number of events or rows."""

    key: str
    rows: int


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The description of a group. Its files are in log order. The counts are those before its first event and after its last."""

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
