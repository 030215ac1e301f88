"""The rival: the merge everybody writes in Spark SQL, over local Parquet files: the newest of all rows of a key.

Run as a process of its own: `spark_rival.py MEMORY WARM-UP INPUT... TARGET`, where MEMORY is the driver's, such as 4g, and the others are
directories of Parquet files. It prints the seconds the statement took, without those in which Spark started and warmed up.
"""

from __future__ import annotations

import sys
import time
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

NEWEST = "row_number() over (partition by id order by updated desc nulls last, _airbyte_extracted_at desc)"
WARM_UP_ROWS = 1_000


def main(memory: str, warm_up: str, *directories: str) -> None:
    """Merge the rows of all directories but the last, and write them to that."""
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    *inputs, target = directories
    merged(spark.read.parquet(inputs[0]).limit(WARM_UP_ROWS)).write.parquet(warm_up)
    started = time.monotonic()
    merged(reduce(DataFrame.unionByName, map(spark.read.parquet, inputs))).write.parquet(target)
    print(time.monotonic() - started)
    spark.stop()


def merged(rows: DataFrame) -> DataFrame:
    """The newest row of each key."""
    return rows.selectExpr("*", f"{NEWEST} as nth").where("nth = 1").drop("nth")


if __name__ == "__main__":
    main(*sys.argv[1:])
