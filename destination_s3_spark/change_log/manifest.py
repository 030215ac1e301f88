"""What a commit added to the change log, as one small JSON object beside its files: all one needs to read them."""

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
    """A data column, with its Arrow type in words."""

    name: str
    type: str


class LogFile(msgspec.Struct, frozen=True):
    """A data file: its name in the folder, and how many events or rows it has."""

    key: str
    rows: int


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """A group of the log. Its files are in log order; the counts are those before its first event and after its last."""

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
        """The object's bytes; equal manifests have equal ones."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> Manifest:
        """The inverse of `to_bytes`. DataError, which names the object's key, when it is not one we know to read."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
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
    """A group's manifest. `ids` are those of the generation and of the schema."""
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
