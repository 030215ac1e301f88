from __future__ import annotations

from destination_s3_spark.chain.events import (
    SetDataSchema,
    UnknownEvent,
)
from destination_s3_spark.cli import views
from destination_s3_spark.cli.inspection.commits import commits
from destination_s3_spark.cli.inspection.summary import summary
from destination_s3_spark.cli.inspection.table import InspectedTable, columns, schema_changes
from unit_tests.cli.inspection.hand_made_chain import SCHEMA, SEED, HandMadeChain


def test_a_table_without_data_has_no_schema_yet() -> None:
    table = HandMadeChain().append(SEED).append(UnknownEvent("Note")).inspected()

    assert (columns(table), schema_changes(table.schemas)) == ((), ())
    assert views.facts(summary(table))["settled"] == "no data yet"
    assert (commits(table)[-1].kind, commits(table)[-1].summary) == ("Note", "written by a newer version")


def test_columns_have_their_whole_types(table: InspectedTable) -> None:
    found = columns(table)

    assert found[2].type == "struct<sync_id: int64, changes: list<struct<field: string, change: string, reason: string>>>"
    assert (found[-1].column, found[-1].type) == ("lines", "list<struct<quantity: int64>>")


def test_the_schema_history_has_whole_types() -> None:
    lines = {"kind": "array", "items": {"kind": "object", "fields": [{"source": "n", "name": "n", "type": "integer"}]}}
    union = {"kind": "union", "options": ["integer", "string"]}
    change = {"kind": "Recovery", "path": "/lines", "old": lines, "new": union}
    chain = HandMadeChain().append(SEED).append(SCHEMA)
    chain.append(SetDataSchema({**SCHEMA.schema, "schemaId": 1, "version": "2-0-0", "changes": [change]}))

    first, second = schema_changes(chain.inspected().schemas)

    assert (first.schema_id, first.change, first.path) == (0, "KeyAddition", "/lines")
    assert (second.schema_id, second.version, second.block, second.columns) == (1, "2-0-0", 2, 2)
    assert (second.old, second.new) == ("array<object<n: integer>>", "union<integer, string>")
