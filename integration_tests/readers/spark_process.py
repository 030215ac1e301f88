"""Spark 4.1 as a program: settings and then requests on stdin, one JSON line each; a pickled answer to each on stdout.

It runs in the environment that scripts/install-readers makes, which has none of the connector's packages.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, lit

CONDITIONS_AT_ONCE = 30
"""Conditions of one query: more take Spark longer to plan, fewer more queries."""


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the JVM prints must not be among the answers
    requests = map(json.loads, sys.stdin)
    session = SparkSession.builder.master("local[2]").config(map=next(requests)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    answer({"rows": []}, answers)
    for request in requests:
        try:
            answer(carried_out(session, request), answers)
        except Exception as error:  # noqa: BLE001 - the test judges it
            answer({"error": f"{type(error).__name__}: {error}"}, answers)
    session.stop()


def answer(content: Mapping[str, Any], answers: Any) -> None:
    pickle.dump(content, answers)
    answers.flush()


def carried_out(session: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    frame = session.sql(request["sql"])
    if "conditions" in request:
        return {"counts": counts(frame, request["conditions"])}
    return {"rows": [row.asDict(recursive=True) for row in frame.collect()]}


def counts(frame: DataFrame, conditions: Sequence[str]) -> list[int]:
    """The number of rows that each condition finds in a scan of its own."""
    numbered = list(enumerate(conditions))
    found: dict[int, int] = {}
    for start in range(0, len(numbered), CONDITIONS_AT_ONCE):
        found |= _counts(frame, numbered[start : start + CONDITIONS_AT_ONCE])
    return [found[number] for number, _ in numbered]


def _counts(frame: DataFrame, conditions: Iterable[tuple[int, str]]) -> dict[int, int]:
    parts = [frame.where(condition).agg(count(lit(1)).alias("found")).withColumn("number", lit(number)) for number, condition in conditions]
    return {row.number: row.found for row in reduce(DataFrame.unionAll, parts).collect()}


if __name__ == "__main__":
    main()
