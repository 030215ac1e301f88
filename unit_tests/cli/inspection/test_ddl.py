from __future__ import annotations

from typing import Any

import msgspec
import pytest

from destination_s3_spark.chain.events import (
    SetDataSchema,
)
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.cli.inspection.ddl import SqlEngine, ddl
from destination_s3_spark.config.config import Config
from unit_tests.cli.inspection.hand_made_chain import KEYED, SCHEMA, SEED, HandMadeChain, add_data

ODD = {"kind": "object", "fields": [{"source": "a:b", "name": "a:b", "type": "string"}]}
TIMES = {"kind": "array", "items": "time_without_timezone"}
CONFIG = Config.parse(
    {"s3_bucket_name": "la'ke", "s3_bucket_path": "lake", "s3_bucket_region": "us-east-1", "format": {"format_type": "Parquet"}}
)


def statement(engine: SqlEngine, *columns: tuple[str, Any]) -> str:
    """The statement for a table with these columns."""
    fields = [{"id": number, "name": name, "source": name, "type": kind, "addedIn": 0} for number, (name, kind) in enumerate(columns)]
    chain = HandMadeChain().append(SEED).append(SetDataSchema({**SCHEMA.schema, "fields": fields})).append(add_data(0, 5))
    return ddl(chain.inspected(), CONFIG, engine)


@pytest.mark.parametrize(
    ("engine", "left_out"),
    [(SqlEngine.ATHENA, True), (SqlEngine.REDSHIFT, True), (SqlEngine.SPARK, False), (SqlEngine.TRINO, False)],
)
def test_columns_that_an_engine_cannot_read_are_left_out_and_named(engine: SqlEngine, left_out: bool) -> None:
    text = statement(engine, ("id", "integer"), ("odd", ODD), ("times", TIMES))

    comments = [line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("-- Left out")]
    assert comments == (["odd", "times"] if left_out else ["times"])
    assert "//la''ke/" in text


@pytest.mark.parametrize(("engine", "quoted"), [(SqlEngine.SPARK, '`a``b"c` STRING'), (SqlEngine.TRINO, '"a`b""c" varchar')])
def test_names_are_quoted(engine: SqlEngine, quoted: str) -> None:
    assert quoted in statement(engine, ('a`b"c', "string"))


def test_files_in_folders_below_the_root_are_found() -> None:
    final = FileEntry(FileKind.FINAL, "lake/shop/orders/2026/03/f.parquet", 5, 1, "upload")
    deep = msgspec.structs.replace(add_data(0, 5), files=(final,))
    chain = HandMadeChain().append(SEED).append(KEYED).append(deep)

    assert "shop/orders/*/*/*.parquet'" in ddl(chain.inspected(), CONFIG, SqlEngine.DUCKDB)
    assert "recursiveFileLookup 'true'" in ddl(chain.inspected(), CONFIG, SqlEngine.SPARK)
