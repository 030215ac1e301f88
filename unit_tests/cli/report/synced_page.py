"""A page about two syncs of a table, the second with a column more, and one of a table with a hostile name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

HOSTILE = "<img src=https://127.0.0.1:9/x onerror=alert(1)>"
FIELD = '"><script>console.error("run")</script>'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}, FIELD: {"type": "integer"}},
}
WIDER = {**SCHEMA, "properties": {**SCHEMA["properties"], "added": {"type": "integer"}}}


def write_page(lake: Lake) -> Path:
    """Sync, and write the page."""
    first = [record({"id": 1, "day": "2026-01-02", FIELD: "many"}), record({"id": 2, "day": "no day"}), state(2), complete()]
    lake.connector().write(catalog(stream(schema=SCHEMA)), first).expect_success()
    second = [record({"id": 3, "added": 1, FIELD: "more"}), state(3), complete()]
    hostile = [record({"id": 1}, HOSTILE), state(1, HOSTILE), complete(HOSTILE)]
    streams = catalog(stream(schema=WIDER, sync_id=8), stream(HOSTILE, schema=SCHEMA, sync_id=8))
    lake.connector().write(streams, [*second, *hostile]).expect_success()
    page = lake.directory / "report.html"
    done = lake.connector().run("report", "--out", str(page))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.text.startswith(f"{page}: 2 tables, ")
    return page
