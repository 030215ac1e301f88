"""Counts of changed values by field: the entries of `_airbyte_meta.changes` of many rows."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from destination_s3_spark.schema.arrow import META_FIELDS, contiguous

_ITEM = re.compile(r"(?<=\.)\[\d+\]")
_PARTS = ["field", "change", "reason"]


class ChangedField(NamedTuple):
    """A change that values of one field underwent. `field` is a path with `[]` for any array index."""

    field: str | None
    change: str | None
    reason: str | None


def changed_values(rows: pa.RecordBatch | pa.Table) -> Counter[ChangedField]:
    """Count the changed values of the rows by field, change and reason. The work depends on the number of changes, not of rows."""
    changes = contiguous(rows[META_FIELDS[2].name]).field("changes").flatten()
    counts: Counter[ChangedField] = Counter()
    if len(changes):
        groups = pa.table([changes.field(part) for part in _PARTS], _PARTS).group_by(_PARTS, use_threads=False)
        for group in groups.aggregate([([], "count_all")]).to_pylist():
            counts[ChangedField(_any_item(group["field"]), group["change"], group["reason"])] += group["count_all"]
    return counts


def _any_item(path: str | None) -> str | None:
    return path and _ITEM.sub("[]", path)
