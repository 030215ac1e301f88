"""Completion of winning rows with values that their records left out (TOAST placeholders), as the table stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from destination_s3_spark.exact_json.values import split_object
from destination_s3_spark.schema.arrow import META_FIELDS
from destination_s3_spark.tables.capture.events import Values
from destination_s3_spark.tables.capture.history import Flags
from destination_s3_spark.tables.capture.provided import DATA

META = META_FIELDS[2].name
NOT_PROVIDED = {"change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
"""The entry in `_airbyte_meta.changes` for a value that no row of the key had."""


def fill_placeholders(winners: pa.Table, values: Values, sources: Mapping[str, str], *, of_text: bool) -> pa.Table:
    """Fill the placeholders in the winners of all keys, in merge form. `sources` maps each column to its JSON key.

    A value that no row had becomes null and is recorded in the row's `_airbyte_meta.changes`.
    """
    history = values.history
    newest = np.append(True, history.group[1:] != history.group[:-1]) & history.record
    lost: dict[int, list[str]] = {}
    texts: dict[int, dict[str, str | None]] = {}
    for name, found in values.provided.items():
        rows = np.flatnonzero(newest & ~found.given)
        at = history.group[rows]
        for place in at[found.lost[rows]].tolist():
            lost.setdefault(place, []).append(sources[name])
        taken = found.values.take(pa.array(rows))
        if of_text:
            for place, text in zip(at.tolist(), taken.to_pylist(), strict=True):
                texts.setdefault(place, {})[sources[name]] = text
        else:
            winners = _replaced(winners, name, at, taken)
    if texts:
        column = winners[DATA].combine_chunks()
        edited = [_with_members(column[place].as_py(), members) for place, members in texts.items()]
        winners = _replaced(winners, DATA, np.array(list(texts)), pa.array(edited, pa.string()))
    if lost:
        column = winners[META].combine_chunks()
        metas = [_with_changes(column[place].as_py(), fields) for place, fields in lost.items()]
        winners = _replaced(winners, META, np.array(list(lost)), pa.array(metas, column.type))
    return winners


def _replaced(table: pa.Table, name: str, at: np.ndarray[Any, Any] | Flags, values: pa.Array[Any]) -> pa.Table:
    """Return the table with these values of a column in the rows `at`."""
    indices = np.arange(len(table))
    indices[at] = len(table) + np.arange(len(at))
    column = pa.concat_arrays([table[name].combine_chunks(), values]).take(pa.array(indices))
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), column)


def _with_members(record: str, members: Mapping[str, str | None]) -> str:
    """Return the record's JSON with new values for some members. The values of all other members keep their bytes."""
    found = {key: bytes(text).decode() for key, text in split_object(record.encode()).items()}
    found |= {key: json.dumps(text, ensure_ascii=False) for key, text in members.items()}
    return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in found.items()) + "}"


def _with_changes(meta: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    return {**meta, "changes": [*meta["changes"], *({"field": field, **NOT_PROVIDED} for field in fields)]}
