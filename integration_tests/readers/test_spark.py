"""Published tables of every type and after every kind of change, and what Spark may not do to them."""

from __future__ import annotations

import pytest

from integration_tests.readers.changes import PROPERTIES, person
from integration_tests.readers.published_table import PublishedTable
from unit_tests.lake.messages import EMITTED_AT_MS

pytestmark = [pytest.mark.reader_tests, pytest.mark.xdist_group("readers")]

WRITES = {
    "insert": "INSERT INTO {table} (id) VALUES (99)",
    "delete": "DELETE FROM {table} WHERE id = 1",
    "update": "UPDATE {table} SET text = 'x' WHERE id = 1",
    "add a column": "ALTER TABLE {table} ADD COLUMN extra INT",
    "optimize": "OPTIMIZE {table}",
    "vacuum": "VACUUM {table}",
}


MAINTENANCE = {
    "expire": "CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
    "orphans": "CALL lake.system.remove_orphan_files(table => '{name}')",
}


def test_others_can_neither_harm_delta_tables_nor_delete_files_of_iceberg_tables_and_what_they_write_there_is_undone(
    table: PublishedTable,
) -> None:
    table.sync(map(person, range(6)), PROPERTIES, EMITTED_AT_MS)
    table.sync(map(person, range(6, 9)), PROPERTIES, EMITTED_AT_MS)
    spark = table.readers.spark
    log = {key for key in table.lake.bucket.list_keys() if "/_delta_log/" in key}
    files = set(table.lake.chains()[table.namespace, "users"].final_keys)

    refusals = {name: spark.refusal(sql.format(table=table.delta)) for name, sql in WRITES.items()}
    assert [name for name, refusal in refusals.items() if "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE" not in refusal] == [], refusals
    refusals = {name: spark.refusal(sql.format(name=f"{table.namespace}.users")) for name, sql in MAINTENANCE.items()}
    assert [name for name, refusal in refusals.items() if "GC is disabled" not in refusal] == [], refusals
    keys = set(table.lake.bucket.list_keys())
    assert {key for key in keys if "/_delta_log/" in key} == log
    assert files <= keys
    assert len(table.expect_equal_readings()) == 9

    spark.rows(f"INSERT INTO {table.iceberg} (_airbyte_raw_id, id) VALUES ('x', 99)")
    spark.rows(f"DELETE FROM {table.iceberg} WHERE id = 1")
    assert sorted(row["id"] for row in spark.rows(f"SELECT id FROM {table.iceberg}")) == [0, *range(2, 9), 99]
    table.write([], PROPERTIES)
    assert len(table.expect_equal_readings()) == 9
