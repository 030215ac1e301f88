"""Records whose values must never be told, wherever they stand in a record."""

from __future__ import annotations

import json

from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import record, stream

MARKER = "jane.doe-0815@example.org"
CATALOG = catalog(stream(schema={"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}))


def marked_records() -> list[bytes]:
    """Records that hold the marker where it fits, where it does not fit, in an undeclared field and in a key."""
    return [
        record({"id": 1, "name": MARKER}),
        record({"id": MARKER, "name": {"nested": MARKER}}),
        record({"id": 2, "undeclared": MARKER, MARKER: 1}),
        record({"id": 3, "name": "x"}, meta={"changes": [{"field": MARKER, "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}]}),
    ]


def said(outcome: Outcome) -> str:
    return json.dumps(outcome.messages, ensure_ascii=False) + outcome.stderr
