"""The rivals: MERGE INTO a Delta or an Iceberg table by Spark SQL, on local files.

Run by the Python that has Spark 4.1: `table_format_rival.py MEMORY JARS WAREHOUSE KIND TABLE CHANGES...`, all of the last directories of
Parquet files. With the kind `read` it only reads them. The last line it prints is a JSON object: `bytes` of the new data files of all
merges, their seconds `wall_s`, and those of a full read after them, `read_s`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

MERGE = "MERGE INTO {} t USING changes c ON t.id = c.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MODES = ", ".join(f"'write.{what}.mode'='{{mode}}'" for what in ("merge", "update", "delete"))
CREATE = {
    "delta": "CREATE TABLE t USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='false') AS SELECT * FROM rows",
    "delta with deletion vectors": "CREATE TABLE t USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true') AS SELECT * FROM rows",
    "iceberg": f"CREATE TABLE ice.db.t USING iceberg TBLPROPERTIES ({MODES.format(mode='copy-on-write')}) AS SELECT * FROM rows",
    "iceberg with delete files": (
        f"CREATE TABLE ice.db.t USING iceberg TBLPROPERTIES ('format-version'='2', {MODES.format(mode='merge-on-read')}) "
        "AS SELECT * FROM rows"
    ),
}
COLUMNS = "count(*), sum(id), max(updated), sum(length(_airbyte_raw_id))"


def main(memory: str, jars: str, warehouse: str, kind: str, rows: str, *changes: str) -> None:
    """Merge each of the changes into a table of the rows, and read it."""
    spark = _session(memory, jars, warehouse)
    spark.read.parquet(rows).createOrReplaceTempView("rows")
    if kind == "read":
        print(json.dumps({"read_s": _read(spark, "rows")}))
        return
    table = "ice.db.t" if kind.startswith("iceberg") else "t"
    spark.sql(CREATE[kind])
    before = _written(warehouse)
    began = time.monotonic()
    for change in changes:
        spark.read.parquet(change).createOrReplaceTempView("changes")
        spark.sql(MERGE.format(table))
    wall = time.monotonic() - began
    print(json.dumps({"bytes": _written(warehouse) - before, "wall_s": wall, "read_s": _read(spark, table)}))


def _session(memory: str, jars: str, warehouse: str) -> SparkSession:
    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _read(spark: SparkSession, table: str) -> float:
    """Return the seconds of the second of two full reads."""
    for _ in range(2):
        began = time.monotonic()
        spark.sql(f"SELECT {COLUMNS} FROM {table}").collect()
    return time.monotonic() - began


def _written(warehouse: str) -> int:
    """Return the bytes of all data files that were ever written. Nothing removes old ones meanwhile."""
    suffixes = {".parquet", ".bin", ".puffin"}
    return sum(path.stat().st_size for path in Path(warehouse).rglob("*") if path.suffix in suffixes and "_delta_log" not in path.parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
