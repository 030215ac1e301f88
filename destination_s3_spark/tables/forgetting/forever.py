"""Keys to forget for good: those of a request and of the rows that it found, as digests by which later records are left out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from destination_s3_spark.chain.events import BarKeys, BarredKeys
from destination_s3_spark.schema.column_rules import Action, Treatment
from destination_s3_spark.tables.forgetting.wanted import Subject, typed_subjects
from destination_s3_spark.tables.landing.barred import Digests, key_texts
from destination_s3_spark.tables.open_table import OpenTable

SALT_BYTES = 32

Keys = dict[tuple[str, ...], set[tuple[bytes, ...]]]
"""The texts of values by the JSON keys of the fields that have them."""


def keys_of(table: OpenTable, subjects: Sequence[Subject], treatment: Treatment) -> Keys:
    """Return the values of a request as records of the table have them when they land. Raises ConfigError as `wanted_rows`."""
    for name in dict.fromkeys(name for subject in subjects for name in subject.columns):
        rule = treatment.rule_of((name,))
        if rule is not None and rule.action is Action.TRUNCATE:
            raise table.refuse(f"'{name}' is cut by tables.columns, so records of others have the same rest. Name another field.")
    return {
        tuple(field.source for field in fields): {tuple(text or b"" for text in key) for key in key_texts(rows, fields)}
        for fields, rows in typed_subjects(table, subjects, treatment)
    }


def barring(before: BarKeys | None, keys: Keys) -> BarKeys | None:
    """Return the event that bars these keys beside those of before, or None if they are barred already."""
    salt = secrets.token_hex(SALT_BYTES) if before is None else before.salt
    known = {} if before is None else {one.fields: set(one.digests) for one in before.keys}
    digests = Digests(bytes.fromhex(salt))
    for fields, values in keys.items():
        known.setdefault(fields, set()).update(found.hex() for value in values if (found := digests.of(value)) is not None)
    event = BarKeys(salt, tuple(BarredKeys(fields, tuple(sorted(found))) for fields, found in sorted(known.items()) if found))
    return event if event.count > (0 if before is None else before.count) else None
