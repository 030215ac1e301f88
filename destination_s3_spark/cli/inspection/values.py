"""Values that were nulled or cut because they did not fit their type, by sync, field and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from destination_s3_spark.chain.blocks import Block
from destination_s3_spark.chain.events import AddData
from destination_s3_spark.cli.inspection.commits import rows_of, taken_back
from destination_s3_spark.cli.inspection.syncs import opened_by, sessions_of, sync_id_of
from destination_s3_spark.decoding.changed_values import ChangedField


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """The values of a field that one sync changed in one way for one reason.

    `field` has `[]` for any array index. It is None for values of fields that the chain does not name: those of very many fields, and those
    that an earlier version wrote. `rows` are the rows of the sync. `share` is the number of values per row.
    """

    sync_id: int | None
    time: datetime
    field: str | None
    change: str | None
    reason: str | None
    values: int
    rows: int
    share: float


def changed_values(blocks: Sequence[Block]) -> tuple[ChangedValue, ...]:
    """Return the changed values, oldest sync first, within a sync the most frequent first."""
    voided = taken_back(blocks)
    return tuple(found for session in sessions_of(blocks) for found in _of_session(session, voided))


def _of_session(session: Sequence[Block], voided: frozenset[int]) -> list[ChangedValue]:
    added = [(b, b.event) for b in session if isinstance(b.event, AddData) and b.sequence_number not in voided]
    counts: Counter[ChangedField] = Counter()
    for _, event in added:
        counts.update(_by_field(event))
    if not counts:
        return []
    began, rows = opened_by(session), sum(rows_of(event) for _, event in added)
    time = added[0][0].system_time if began is None else began.started_at
    sync_id = sync_id_of(session)
    return [ChangedValue(sync_id, time, *changed, values, rows, values / rows) for changed, values in counts.most_common()]


def _by_field(event: AddData) -> Counter[ChangedField]:
    if not event.changed_values:
        return Counter({ChangedField(None, None, reason): values for reason, values in event.changes.items()})
    return Counter({ChangedField(found.field, found.change, found.reason): found.values for found in event.changed_values})
