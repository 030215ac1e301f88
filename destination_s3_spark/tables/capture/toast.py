"""Completion of winning rows with values that their records left out (TOAST placeholders), as the table stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.exact_json.values import object_text, split_object
from destination_s3_spark.tables.capture.events import EventValues
from destination_s3_spark.tables.runs.keys import META
from destination_s3_spark.tables.runs.soft_deletions import DATA, edited, replaced
from destination_s3_spark.tables.runs.winners import Indices

NOT_PROVIDED = {"change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
"""The entry in `_airbyte_meta.changes` for a value that no row of the key had."""


def fill_placeholders(winners: pa.Table, values: EventValues, shown: Indices, sources: Mapping[str, str], *, of_text: bool) -> pa.Table:
    """Fill the placeholders in the winners of all keys, in merge form. `sources` maps each column to its JSON key.

    `shown` holds, for each key, the index of the row from which the winner has its values. A value that no row had becomes null and is
    recorded in the row's `_airbyte_meta.changes`.
    """
    history = values.history
    is_shown = (history.rows == shown[history.group]) & history.record
    lost: dict[int, list[str]] = {}
    texts: dict[int, dict[str, str | None]] = {}
    for name, found in values.provided.items():
        rows = np.flatnonzero(is_shown & ~found.given)
        at = history.group[rows]
        for place in at[found.lost[rows]].tolist():
            lost.setdefault(place, []).append(sources[name])
        taken = found.values.take(pa.array(rows))
        if of_text:
            for place, text in zip(at.tolist(), taken.to_pylist(), strict=True):
                texts.setdefault(place, {})[sources[name]] = text
        else:
            winners = replaced(winners, name, at, taken)
    winners = edited(winners, DATA, np.array(list(texts), np.int64), lambda place, record: _with_members(record, texts[place]))
    return edited(winners, META, np.array(list(lost), np.int64), lambda place, meta: _with_changes(meta, lost[place]))


def _with_members(record: str, members: Mapping[str, str | None]) -> str:
    """Return the record's JSON with new values for some members. The values of all other members keep their bytes."""
    new = {key: json.dumps(text, ensure_ascii=False).encode() for key, text in members.items()}
    return object_text(split_object(record.encode()) | new).decode()


def _with_changes(meta: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {**meta, "changes": [*meta["changes"], *({"field": field, **NOT_PROVIDED} for field in fields)]}
