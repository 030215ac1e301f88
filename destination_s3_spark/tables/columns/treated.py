"""Column rules of a stream's table: which columns may be treated, and what a change of the rules means for the rows that are there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from destination_s3_spark.chain.state import TableState
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.schema.column_rules import COLUMNS_OPTION, Action, Treatment
from destination_s3_spark.schema.partitioning import PartitionSpec
from destination_s3_spark.schema.schema_event import from_event
from destination_s3_spark.tables.columns.row_plan import DELETED_AT, is_deduplicated, refusal

logger = logging.getLogger("airbyte")

AS_SENT = "as sent"


def require_treatable(stream: Stream, treatment: Treatment, partitions: Iterable[PartitionSpec | None]) -> None:
    """Raise ConfigError if a rule would change a column by which rows are told apart, ordered or divided."""
    for source, allowed, reason in _needed(stream, partitions):
        rule = treatment.rule_of((source,))
        if rule is not None and rule.action not in allowed:
            raise refusal(stream, f"{COLUMNS_OPTION} has the action {rule.action.value} for '{source}', {reason}")


def _needed(stream: Stream, partitions: Iterable[PartitionSpec | None]) -> Iterator[tuple[str, frozenset[Action], str]]:
    """Yield the columns that a table needs, the actions that they allow, and why no other."""
    if is_deduplicated(stream):
        for path in stream.primary_key:
            reason = "which is in its primary key: different rows could become one. Choose hash, which keeps different keys different."
            yield path[0], frozenset({Action.HASH}), reason
        for source in stream.cursor_field[:1]:
            reason = "its cursor, whose order says which version of a row is the newest. Choose another cursor, or leave the column out."
            yield source, frozenset(), reason
        yield DELETED_AT, frozenset(), "which says whether a row is deleted. Leave the column out; it holds only a time."
    for spec in partitions:
        if spec is not None:
            reason = "by whose values tables.partition_by divides its table into folders. Choose another column in one of the two."
            yield spec.source, frozenset(), reason


def recorded_rules(state: TableState | None) -> Mapping[str, Any] | None:
    """Return what the chain records of the rules by which the table's lines were treated last."""
    return None if state is None or state.schema is None else from_event(state.schema).column_rules


def require_same_keys(stream: Stream, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
    """Raise ConfigError if keys were treated in another way before: the same row would have two keys, and stay twice."""
    if not is_deduplicated(stream):
        return
    for path in stream.primary_key:
        was, becomes = _of_column(before, path[0]), _of_column(now, path[0])
        if was != becomes:
            raise refusal(
                stream,
                f"'{path[0]}' is in its primary key and was treated otherwise in the rows of its table: "
                f"{_change(was, becomes)}. Old and new versions of a row would have different keys, and both would stay. Go back to the "
                f"earlier {COLUMNS_OPTION} and secret, or run a refresh that removes the stream's records.",
            )


def warn_of_other_rules(stream: Stream, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
    """Say which columns are treated in another way from now on, and what that means for the rows that are there."""
    names = sorted({*(before or {}).get("columns", {}), *(now or {}).get("columns", {})})
    changes = {name: (_of_column(before, name), _of_column(now, name)) for name in names}
    said = [f"{name}: {_change(was, becomes)}" for name, (was, becomes) in changes.items() if was != becomes]
    logger.warning(
        "stream %s: %s, raw_fields or hash_secret changed (%s). Rows that landed before stay as they landed, in the raw table, the "
        "change log and the history too: rebuild types them as they lie, and neither treats nor restores a value. To replace them all, run "
        "a refresh of the stream that removes its records. A history keeps the versions that have ended.",
        stream.id, COLUMNS_OPTION, "; ".join(said) or "patterns",
    )  # fmt: skip


def _change(was: tuple[str, str | None], becomes: tuple[str, str | None]) -> str:
    return f"{was[0]}, now {becomes[0]}{' with another secret' if was[0] == becomes[0] else ''}"


def _of_column(rules: Mapping[str, Any] | None, name: str) -> tuple[str, str | None]:
    """Return how a column is treated, and by which secret if it is hashed."""
    action = str((rules or {}).get("columns", {}).get(name, AS_SENT))
    secret = (rules or {}).get("secret") if action == Action.HASH.value else None
    return action, None if secret is None else str(secret)
