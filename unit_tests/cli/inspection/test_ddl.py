"""SQL statements for every engine: every type in every place, names and paths that need quotes, and what each way of reading needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from destination_s3_spark.chain.events import SetDataSchema
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.cli.inspection.ddl import UNTRIED, SqlEngine, ddl
from destination_s3_spark.cli.tree import ENGINES
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.schema.airbyte_type import AirbyteType, type_to_json
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each
from unit_tests.cli.inspection.hand_made_chain import KEYED, SCHEMA, SEED, HandMadeChain, add_data
from unit_tests.schema.every_type import EVERY_TYPE, TIMES, places

ODD = {"kind": "object", "fields": [{"source": "a:b", "name": "a:b", "type": "string"}]}
TIMES_LIST = {"kind": "array", "items": "time_without_timezone"}
REST = {"type": "rest", "uri": "https://catalog.example.com"}


def config(bucket: str = "lake", **options: Any) -> Config:
    place = {"s3_bucket_name": bucket, "s3_bucket_path": "lake", "s3_bucket_region": "us-east-1"}
    return Config.parse({**place, "format": {"format_type": "Parquet"}, **options})


def statement(engine: SqlEngine, *columns: tuple[str, Any], **options: Any) -> str:
    """The statement for a table with these columns."""
    fields = [{"id": number, "name": name, "source": name, "type": kind, "addedIn": 0} for number, (name, kind) in enumerate(columns)]
    chain = HandMadeChain().append(SEED).append(SetDataSchema({**SCHEMA.schema, "fields": fields}))
    return ddl(chain.inspected(), config(**options), engine)


def test_the_command_offers_every_engine() -> None:
    assert set(ENGINES) == {engine.value for engine in SqlEngine}


WITH_COLUMNS: Mapping[SqlEngine, tuple[str, str, str]] = {
    SqlEngine.ATHENA: ("decimal(38,9)", "array<decimal(38,9)>", "struct<`m`:decimal(38,9)>"),
    SqlEngine.REDSHIFT: ("decimal(38,9)", "array<decimal(38,9)>", 'struct<"m":decimal(38,9)>'),
    SqlEngine.SPARK: ("DECIMAL(38,9)", "ARRAY<DECIMAL(38,9)>", "STRUCT<`m`:DECIMAL(38,9)>"),
    SqlEngine.DATABRICKS: ("DECIMAL(38,9)", "ARRAY<DECIMAL(38,9)>", "STRUCT<`m`:DECIMAL(38,9)>"),
    SqlEngine.TRINO: ("decimal(38,9)", "array(decimal(38,9))", 'row("m" decimal(38,9))'),
}
"""The engines whose statements list columns, and how they write a decimal, a list of it and a struct with it."""


@each("engine", WITH_COLUMNS)
@each("of", EVERY_TYPE.values())
def test_every_type_in_every_place_has_a_type_or_is_left_out_as_a_time_of_day(engine: SqlEngine, of: AirbyteType) -> None:
    columns = [(place, type_to_json(kind)) for place, kind in places(of).items()]
    text = statement(engine, *columns)
    left_out = {line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("-- Left out")}
    listed = [line.strip().split(" ", 1)[0].strip('"`') for line in text.splitlines() if line.startswith("  ")]

    assert left_out == ({place for place, _ in columns} if of in TIMES else set()), text
    assert (
        set(listed) - {"_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id"}
        == {place for place, _ in columns} - left_out
    )
    assert all("has no type for a time of day" in line for line in text.splitlines() if line.startswith("-- Left out"))


@each(("engine", "spelt"), WITH_COLUMNS.items())
def test_decimals_are_spelt_with_their_digits(engine: SqlEngine, spelt: tuple[str, str, str]) -> None:
    decimal = EVERY_TYPE["decimal"]
    text = statement(engine, *((place, type_to_json(kind)) for place, kind in list(places(decimal).items())[:3]))
    assert all(f" {kind}" in text for kind in spelt), text


@each("engine", [*WITH_COLUMNS])
def test_times_of_day_that_are_stored_as_integers_are_listed(engine: SqlEngine) -> None:
    text = statement(engine, ("clocks", TIMES_LIST), format={"format_type": "Parquet", "time_encoding": "int64"})
    assert "Left out" not in text
    assert "bigint" in text.lower().split("clocks")[1]


@each("engine", SqlEngine)
def test_what_was_not_tried_says_so(engine: SqlEngine) -> None:
    first = statement(engine, ("id", "integer"), publish={"delta": True}).splitlines()[0]
    assert first.startswith("-- Not tried with ") == (engine in UNTRIED)


@each(
    ("engine", "left_out"),
    [(SqlEngine.ATHENA, True), (SqlEngine.REDSHIFT, True), (SqlEngine.SPARK, False), (SqlEngine.TRINO, False)],
)
def test_columns_that_an_engine_cannot_read_are_left_out_and_named(engine: SqlEngine, left_out: bool) -> None:
    text = statement(engine, ("id", "integer"), ("odd", ODD), ("times", TIMES_LIST))

    comments = [line.partition("no type for ")[2] for line in text.splitlines() if line.startswith("-- Left out")]
    assert comments == (["a member of the name a:b: odd"] if left_out else []) + ["a time of day: times"]


@each("publish", [{}, {"delta": True}])
@each("engine", SqlEngine)
def test_paths_are_quoted_as_the_engine_reads_texts(engine: SqlEngine, publish: Mapping[str, Any]) -> None:
    if not publish and engine in {SqlEngine.CLICKHOUSE, SqlEngine.SNOWFLAKE}:
        return
    seed = msgspec.structs.replace(SEED, final_root="a'b\\c/shop/orders/")
    chain = HandMadeChain().append(seed).append(KEYED)
    text = ddl(chain.inspected(), config(publish=publish), engine)

    standard = engine in {SqlEngine.TRINO, SqlEngine.DUCKDB}
    assert ("a''b\\c/shop" if standard else "a\\'b\\\\c/shop") in text, text


@each(
    ("engine", "quoted"),
    [(SqlEngine.ATHENA, '`a``b"c` string'), (SqlEngine.SPARK, '`a``b"c` STRING'), (SqlEngine.TRINO, '"a`b""c" varchar')],
)
def test_names_are_quoted(engine: SqlEngine, quoted: str) -> None:
    assert quoted in statement(engine, ('a`b"c', "string"))


def test_files_in_folders_below_the_root_are_found() -> None:
    final = FileEntry(FileKind.FINAL, "lake/shop/orders/2026/03/f.parquet", 5, 1, "upload")
    deep = msgspec.structs.replace(add_data(0, 5), files=(final,))
    chain = HandMadeChain().append(SEED).append(KEYED).append(deep)

    inspected = chain.inspected()
    assert "shop/orders/*/*/*.parquet'" in ddl(inspected, config(), SqlEngine.DUCKDB)
    assert "recursiveFileLookup 'true'" in ddl(inspected, config(), SqlEngine.SPARK)
    assert "hive.recursive-directories=true" in ddl(inspected, config(), SqlEngine.TRINO)
    assert "hive.recursive-directories" not in statement(SqlEngine.TRINO, ("id", "integer"))


DELTA_STATEMENTS = {
    SqlEngine.ATHENA: "CREATE EXTERNAL TABLE IF NOT EXISTS `shop`.`orders`\nLOCATION 's3://lake/lake/shop/orders/'\n"
    "TBLPROPERTIES ('table_type' = 'DELTA');\n",
    SqlEngine.DATABRICKS: "USING DELTA\nLOCATION 's3://lake/lake/shop/orders/';\n",
    SqlEngine.DUCKDB: "SELECT * FROM delta_scan('s3://lake/lake/shop/orders/');\n",
    SqlEngine.CLICKHOUSE: "SELECT * FROM deltaLake('https://lake.s3.us-east-1.amazonaws.com/lake/shop/orders/');\n",
    SqlEngine.TRINO: "CALL delta.system.register_table(schema_name => 'shop', table_name => 'orders', "
    "table_location => 's3://lake/lake/shop/orders/');\n",
    SqlEngine.SNOWFLAKE: "CATALOG = 'delta'\n  BASE_LOCATION = 'lake/shop/orders/';\n",
    SqlEngine.SPARK: "USING parquet\nLOCATION 's3a://lake/lake/shop/orders/';\n",
    SqlEngine.REDSHIFT: "LOCATION 's3://lake/lake/shop/orders/_symlink_format_manifest/'\n"
    "TABLE PROPERTIES ('data_cleansing_enabled' = 'true', 'surplus_char_handling' = 'FAIL');\n",
}


@each("engine", SqlEngine)
def test_a_delta_table_is_read_as_one_where_the_engine_can(engine: SqlEngine) -> None:
    assert statement(engine, ("id", "integer"), publish={"delta": True}).endswith(DELTA_STATEMENTS[engine])


def test_trino_is_told_the_precision_that_it_must_be_configured_for() -> None:
    """Trino refuses a column of another precision than that of its catalog."""
    text = statement(SqlEngine.TRINO, ("at", "timestamp_with_timezone"))
    assert '"at" timestamp(6)' in text
    assert "hive.timestamp-precision=MICROSECONDS" in text


def test_an_endpoint_is_part_of_the_address_for_clickhouse() -> None:
    text = statement(SqlEngine.CLICKHOUSE, ("id", "integer"), publish={"delta": True}, s3_endpoint="http://127.0.0.1:9000")
    assert "deltaLake('http://127.0.0.1:9000/lake/lake/shop/orders/')" in text


def test_a_region_and_a_bucket_in_the_host_name_are_part_of_the_access() -> None:
    options: dict[str, Any] = {"s3_endpoint": "https://s3.fr-par.scw.cloud", "s3": {"region": "fr-par", "addressing": "virtual"}}
    text = statement(SqlEngine.CLICKHOUSE, ("id", "integer"), publish={"delta": True}, **options)
    assert "deltaLake('https://lake.s3.fr-par.scw.cloud/lake/shop/orders/')" in text
    text = statement(SqlEngine.DUCKDB, ("id", "integer"), **options)
    assert "REGION 'fr-par', ENDPOINT 's3.fr-par.scw.cloud', URL_STYLE 'vhost'" in text


@each(("region", "host"), [("", "lake.s3.amazonaws.com"), ("cn-north-1", "lake.s3.cn-north-1.amazonaws.com.cn")])
def test_the_host_for_clickhouse_is_that_of_the_region(region: str, host: str) -> None:
    text = statement(SqlEngine.CLICKHOUSE, ("id", "integer"), publish={"delta": True}, s3_bucket_region=region)
    assert f"deltaLake('https://{host}/lake/shop/orders/')" in text


def test_athena_has_the_names_of_glue() -> None:
    seed = msgspec.structs.replace(SEED, stream=StreamId("Web-Shop", "orders"))
    text = ddl(HandMadeChain().append(seed).append(KEYED).inspected(), config(), SqlEngine.ATHENA)
    assert "CREATE EXTERNAL TABLE IF NOT EXISTS `web_shop`.`orders`" in text


def test_trino_is_told_of_the_iceberg_table() -> None:
    there = 'SELECT * FROM "iceberg"."shop"."orders";\n'
    assert statement(SqlEngine.TRINO, ("id", "integer"), publish={"iceberg": REST}).endswith(there)
    both = statement(SqlEngine.TRINO, ("id", "integer"), publish={"iceberg": {**REST, "namespace": "raw"}, "delta": True})
    assert '"iceberg"."raw"."orders"' in both
    assert "register_table" in both


def test_snowflake_takes_the_iceberg_table_from_its_catalog() -> None:
    text = statement(SqlEngine.SNOWFLAKE, ("id", "integer"), publish={"iceberg": REST, "delta": True})
    assert "CATALOG_NAMESPACE = 'shop'\n  CATALOG_TABLE_NAME = 'orders';\n" in text
    assert "  AUTO_REFRESH = TRUE\n" in text


@each("publish", [{}, {"iceberg": {"type": "sql", "database_uri": "sqlite:////tmp/x.db"}}])
def test_engines_that_read_no_folder_name_the_option_that_is_missing(publish: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"no statement for snowflake for the files alone. Set publish\.iceberg"):
        statement(SqlEngine.SNOWFLAKE, ("id", "integer"), publish=publish)
    with pytest.raises(ConfigError, match=r"no statement for clickhouse for the files alone. Set publish\.delta;"):
        statement(SqlEngine.CLICKHOUSE, ("id", "integer"), publish=publish)
