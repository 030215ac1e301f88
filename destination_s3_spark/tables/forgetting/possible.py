"""Whether rows of a table can be forgotten now, and the table as its chain records it.

A search opens nothing and writes nothing, so the table is that which the chain records.
"""

from __future__ import annotations

from destination_s3_spark.chain.files import HISTORY_KINDS, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.delta_log.log import DeltaLog, UnreadableLog
from destination_s3_spark.errors import TransientError
from destination_s3_spark.formats.parquet import PARQUET
from destination_s3_spark.formats.registry import format_of
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.storage.table_paths import ICEBERG_FOLDER
from destination_s3_spark.tables.open_table import OpenTable
from destination_s3_spark.tables.publishers.iceberg.publisher import IcebergTable
from destination_s3_spark.tables.publishers.publication import HISTORY_SUFFIX
from destination_s3_spark.tables.runs.keys import KeySpec
from destination_s3_spark.tables.stream_table import StreamTable
from destination_s3_spark.tables.updates.inputs import pairs_of

SEARCHED = frozenset({FileKind.FINAL, FileKind.RAW, FileKind.DELTA, FileKind.TOMBSTONE, FileKind.STATE, *HISTORY_KINDS})
"""Kinds of files in which rows are looked for. A table that has others is refused."""
REFRESH = "Nothing was changed. A refresh that removes the records, once they are gone in the source, replaces all of it."


def recorded_table(closed: StreamTable) -> OpenTable:
    """Return a table as its chain records it, without opening it. Raises ConfigError or TransientError if it cannot forget rows now."""
    state = closed.writer.chain.state_of_rows()
    table = closed.as_recorded(from_event(state.schema or {}), state.types_since)
    if not state.closed:
        raise TransientError(
            "A sync is writing to it, or has died, and its records may come again. Nothing was changed. Try again when the next sync has "
            "ended.",
            stream=table.stream.id,
        )
    _require_readable(table)
    has_metadata(table, state)  # that of others is refused before anything is changed
    return table


def _require_readable(table: OpenTable) -> None:
    """Raise ConfigError if rows of the table are where they cannot be looked for or removed from."""
    live = table.writer.live_files()
    unknown = {file.kind for file in live.files} - SEARCHED
    if unknown:
        names = ", ".join(sorted(kind.value for kind in unknown))
        raise table.refuse(f"it has files of the kind {names}, from which rows cannot be removed yet. {REFRESH}")
    if table.spec is None:
        _require_appended(table, live)
    else:
        _require_merged(table, table.spec, live)


def _require_appended(table: OpenTable, live: LiveFiles) -> None:
    """Raise ConfigError if the files of an append table cannot be read back."""
    if live.of(FileKind.STATE, FileKind.TOMBSTONE):
        raise table.refuse(f"it has merge states or deleted keys from when it was deduplicated. {REFRESH}")
    keys = [*live.adopted, *(file.key for file in live.of(FileKind.FINAL, FileKind.DELTA))]
    other = next((key for key in keys if format_of(key) is None), None)
    if other is not None:
        raise table.refuse(f"it is not known of which format its file '{other}' is. {REFRESH}")


def _require_merged(table: OpenTable, spec: KeySpec, live: LiveFiles) -> None:
    """Raise ConfigError if the next merge of a deduplicated table has to rewrite files first."""
    if live.adopted:
        raise table.refuse(f"it has files of destination-s3, and is deduplicated since. {REFRESH}")
    form, pairs = format_of(table.layout.final.extension), list(pairs_of(live))
    if any(format_of(final.key) is not form or (rows is final) != (form is PARQUET) for rows, final in pairs):
        raise table.refuse(f"it has files of another format than today's, which its next merge rewrites: run `merge`. {REFRESH}")
    sorted_files = [*(rows for rows, _ in pairs), *live.of(FileKind.DELTA)]
    buried = any(file.sorted_by != spec.of_deletions.fingerprint for file in live.of(FileKind.TOMBSTONE))
    if buried or any(file.sorted_by != spec.fingerprint or table.is_outdated(file) for file in sorted_files):
        raise table.refuse(f"it has files of another key or other types than today's, which its next merge sorts: run `merge`. {REFRESH}")


def has_metadata(table: OpenTable, state: TableState) -> bool:
    """Tell whether the table or its history has a Delta log or Iceberg metadata, which have bounds of values, also of rows that are gone.

    Raises ConfigError for some that are not theirs, cannot be read, or whose catalog is not configured.
    """
    found = [_has_delta_log(table, state, root) for root in (table.layout.root, table.layout.histories)]
    shown = {publisher.name for publisher in table.writer.publishers}
    for root, name in ((table.layout.root, IcebergTable.name), (table.layout.histories, IcebergTable.name + HISTORY_SUFFIX)):
        folder = f"{root}{ICEBERG_FOLDER}"
        has_iceberg = next(iter(table.writer.store.list(folder)), None) is not None
        if has_iceberg and name not in shown:
            raise table.refuse(
                f"there is Iceberg metadata under '{folder}', which has bounds of values, and nothing publishes it now. Nothing was "
                "changed. Drop the table in the catalog and delete what is under that folder, or switch publish.iceberg on, and for a "
                "history tables.history."
            )
        found.append(has_iceberg)
    return True in found


def _has_delta_log(table: OpenTable, state: TableState, root: str) -> bool:
    log = DeltaLog(table.writer.store, root)
    try:
        found = log.read()
    except UnreadableLog:
        found = None
    if found is not None and state.identity.table_id in found.transactions:
        return True
    if next(iter(table.writer.store.list(log.prefix)), None) is not None:
        raise table.refuse(
            f"'{log.prefix}' has the Delta log of another program, or one that cannot be read, and may have bounds of values. Nothing was "
            "changed. Remove it; the next sync writes it again."
        )
    return False
