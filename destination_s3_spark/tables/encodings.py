"""Choice of a table's encodings.

Files of two encodings must never be in one table. So only a new table and a generation that replaces all rows take the configured
encodings. Any other table keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings, TimeEncoding, has_time
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.storage.object_store import ObjectNotFound
from destination_s3_spark.storage.ranged import RangedFile
from destination_s3_spark.tables.commit.generation import NOTHING, Kept
from destination_s3_spark.tables.commit.writer import TableWriter


class EncodingChange(NamedTuple):
    """The encodings of a table's existing files, and those of the files that this session writes."""

    before: Encodings
    now: Encodings


def choose(writer: TableWriter, chosen: Encodings | None, disposition: WriteDisposition, kept: Kept) -> EncodingChange | None:
    """Choose the encodings of an open table. `chosen` are the configured ones, or None if final files are not Parquet.

    Return None if neither an earlier session nor this one writes final files in Parquet. Raises DataError or TransientError.
    """
    state = writer.open()
    contents = state.contents
    recorded = None if state.schema is None else from_event(state.schema).encodings
    if chosen is None:
        return None if recorded is None else EncodingChange(recorded, recorded)
    if contents.empty:
        return EncodingChange(chosen, chosen)
    before = recorded or _found(writer, chosen)
    if kept.adopted or (contents.adopted and contents.pending is None):
        return EncodingChange(before, DESTINATION_S3)
    return EncodingChange(before, chosen if begins_generation(contents, disposition, kept) else before)


def begins_generation(contents: Contents, disposition: WriteDisposition, kept: Kept) -> bool:
    """Tell whether the session begins a generation that will replace all rows of the table."""
    if disposition is WriteDisposition.MAINTAIN or contents.pending is None:
        return False
    return not contents.pending_rows and kept == NOTHING


def _found(writer: TableWriter, chosen: Encodings) -> Encodings:
    """Return the encodings of a table whose chain does not record them.

    Versions that did not record them wrote extraction times in milliseconds. How they stored times of day is in the files.
    """
    schema = writer.open().schema
    columns = META_FIELDS if schema is None else from_event(schema).arrow
    if not any(has_time(field.type) for field in columns):
        return Encodings(time=chosen.time)
    for file in reversed(writer.live_files().of(FileKind.FINAL, FileKind.DELTA)):
        is_run = file.kind is FileKind.DELTA and file.keys is not None
        if is_run or not file.key.endswith(ParquetOptions.extension):
            continue
        # A file that something else deleted must not prevent appending.
        with suppress(ObjectNotFound), closing(RangedFile(writer.store, file.key, file.bytes)) as source:
            stored = {field.name: field.type for field in pq.read_schema(source)}
            found = {encoding for field in columns if field.name in stored for encoding in _times(stored[field.name], field.type)}
            return Encodings(time=found.pop() if len(found) == 1 else chosen.time)
    return Encodings(time=chosen.time)


def _times(stored: pa.DataType, column: pa.DataType) -> Iterator[TimeEncoding]:
    """Yield the encoding of each time of day in a stored column. Members that the file lacks have none."""
    if pa.types.is_time(column):
        yield TimeEncoding.TIME if pa.types.is_time(stored) else TimeEncoding.INT64
        return
    members = {stored.field(index).name: stored.field(index).type for index in range(stored.num_fields)}
    for index in range(column.num_fields):
        member = column.field(index)
        if pa.types.is_list(column):
            yield from _times(stored.field(0).type, member.type)
        elif member.name in members:
            yield from _times(members[member.name], member.type)
