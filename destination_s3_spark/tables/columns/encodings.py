"""Choice of a table's encodings.

Files of two encodings must never be in one table. So only a new table and a generation that replaces all rows take the configured
encodings. Any other table keeps its own.
"""

from __future__ import annotations

from typing import NamedTuple

from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings
from destination_s3_spark.schema.schema_event import from_event
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
    before = recorded or Encodings(time=chosen.time)
    if kept.adopted or (contents.adopted and contents.pending is None):
        return EncodingChange(before, DESTINATION_S3)
    return EncodingChange(before, chosen if begins_generation(contents, disposition, kept) else before)


def begins_generation(contents: Contents, disposition: WriteDisposition, kept: Kept) -> bool:
    """Tell whether the session begins a generation that will replace all rows of the table."""
    if disposition is WriteDisposition.MAINTAIN or contents.pending is None:
        return False
    return not contents.pending_rows and kept == NOTHING
