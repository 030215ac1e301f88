"""Choice of a table's encodings and partitioning, which it keeps until a refresh.

Files of two encodings or of two partitionings must never be in one table. So only a new table and a generation that replaces all rows take
the configured ones. Any other table keeps its own.
"""

from __future__ import annotations

import logging

from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents, TableState
from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.encodings import DESTINATION_S3, Encodings
from destination_s3_spark.schema.partitioning import NotPartitionable, Partitioning, PartitionSpec, require_partitionable
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.schema.table_schema import TableSchema
from destination_s3_spark.tables.columns.row_plan import is_deduplicated, refusal
from destination_s3_spark.tables.commit.generation import NOTHING, Kept
from destination_s3_spark.tables.commit.writer import TableWriter


def choose(writer: TableWriter, chosen: Encodings | None, disposition: WriteDisposition, kept: Kept) -> tuple[Encodings, Encodings] | None:
    """Choose the encodings of an open table: those of its existing files, and of the files that this session writes.

    `chosen` are the configured ones, or None if final files are not Parquet. Return None if neither an earlier session nor this one writes
    final files in Parquet. Raises DataError or TransientError.
    """
    state = writer.open()
    contents = state.contents
    recorded = None if state.schema is None else from_event(state.schema).encodings
    if chosen is None:
        return None if recorded is None else (recorded, recorded)
    if contents.empty:
        return chosen, chosen
    before = recorded or Encodings(time=chosen.time)
    if kept.adopted or (contents.adopted and contents.pending is None):
        return before, DESTINATION_S3
    return before, chosen if begins_generation(contents, disposition, kept) else before


def begins_generation(contents: Contents, disposition: WriteDisposition, kept: Kept) -> bool:
    """Tell whether the session begins a generation that will replace all rows of the table."""
    if disposition is WriteDisposition.MAINTAIN or contents.pending is None:
        return False
    return not contents.pending_rows and kept == NOTHING


logger = logging.getLogger("airbyte")

OPTION = "tables.partition_by"


def recorded_partition(state: TableState | None) -> PartitionSpec | None:
    return None if state is None or state.schema is None else from_event(state.schema).partition


def warn_of_recorded(stream: Stream, recorded: PartitionSpec | None, configured: PartitionSpec | None) -> None:
    """Warn that the table keeps its partitioning although another one is configured."""
    if recorded != configured:
        logger.warning(
            "stream %s: %s says %s, but the table has %s and keeps that. Run a refresh of the stream, which writes all files again.",
            stream.id, OPTION, _described(configured), _described(recorded),
        )  # fmt: skip


def partitioning_of(stream: Stream, schema: TableSchema, options: FileOptions) -> Partitioning | None:
    """Return the partitioning of the table's rows, or None if it has none.

    Raises ConfigError unless the columns, the key and the format of the files allow it.
    """
    spec = schema.partition
    if spec is None:
        return None
    column = schema.column(spec.source)
    if column is None:
        raise refusal(
            stream,
            f"{OPTION} names the column '{spec.source}', which the stream's schema does not have at its top level. Name one that it has, "
            "or leave the stream out.",
        )
    try:
        require_partitionable(column.type, spec.transform)
    except NotPartitionable as error:
        raise refusal(stream, f"{OPTION}: the column '{spec.source}' {error}. Choose accordingly and refresh the stream.") from None
    taken = next((name for name in schema.columns.names if name.casefold() == spec.name.casefold()), None)
    if taken is not None:
        raise refusal(
            stream,
            f"{OPTION}: the directories '{spec.name}=…' would have the name of the column '{taken}', which readers mistake for it. Choose "
            "another name, and refresh the stream if its table has rows.",
        )
    if options.values is not Values.TYPED:
        raise refusal(
            stream,
            "its table is partitioned, and only Parquet and Avro tables can be. Go back to the format, or refresh it. If a refresh is "
            "complete and waits for its merge, run `merge` in the earlier format first.",
        )
    if is_deduplicated(stream) and spec.source not in [path[0] for path in stream.primary_key]:
        raise refusal(
            stream,
            f"it is deduplicated, and {OPTION} divides its table by '{spec.source}', which is not in its primary key. Another version of "
            "a row could then be in another partition. Add the column to the key if its values never change, choose another column of the "
            "key, or append.",
        )
    return Partitioning(spec, column.field)


def _described(spec: PartitionSpec | None) -> str:
    return "no partitions" if spec is None else f"{spec.name} ({spec.transform.value} of '{spec.source}')"
