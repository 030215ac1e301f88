from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from destination_s3_spark.chain.files import OperationCount
from destination_s3_spark.change_log.options import ChangeLogFormat, ChangeLogOptions
from destination_s3_spark.change_log.replicant import objects_hash
from destination_s3_spark.stream_id import StreamId
from unit_tests.cases import each

PAGE = Path(__file__).parent / "data" / "replicant_realtime.jsonl"
REGION = [("r_regionkey", pa.int64()), ("r_comment", pa.string()), ("r_name", pa.string())]
JSON = ChangeLogOptions(ChangeLogFormat.REPLICANT_JSON)


def test_the_objects_of_arcions_page_come_out_byte_for_byte(log: Callable[..., Any]) -> None:
    cursors = [json.loads(line)["cursor"] for line in PAGE.read_text().splitlines()]
    region = log(REGION, ["r_regionkey"], JSON, StreamId("io_blitzz", "region"))
    events = region.events(
        [
            ("I", {"r_regionkey": 10, "r_comment": "India", "r_name": "India"}, {}, cursors[0]),
            ("U", {"r_comment": "USA"}, {"r_regionkey": 10}, cursors[1]),
            ("D", {}, {"r_regionkey": 10}, cursors[2]),
        ]
    )

    assert gzip.decompress(region.changes_file([events], OperationCount(insert_count=5))) == PAGE.read_bytes()


def test_a_snapshot_is_flat_objects_of_strings(log: Callable[..., Any]) -> None:
    region = log(REGION, ["r_regionkey"], JSON)
    rows = region.rows([{"r_regionkey": 0, "r_comment": 'says "no\ncomment" \\ \x01', "r_name": "ÄFRICA"}, {"r_regionkey": 1}])

    written = gzip.decompress(region.snapshot_file([rows])).decode()

    assert written == (
        '{"r_regionkey":"0","r_comment":"says \\"no\\ncomment\\" \\\\ \\u0001","r_name":"ÄFRICA"}\n'
        '{"r_regionkey":"1","r_comment":"null","r_name":"null"}\n'
    )


def test_names_of_columns_are_escaped(log: Callable[..., Any]) -> None:
    odd = log([('a"b\n', pa.int64())], ['a"b\n'], JSON)

    event = json.loads(gzip.decompress(odd.changes_file([odd.events([("I", {'a"b\n': 1}, {}, "{}")])])))

    assert (event["before"], event["after"], event["exists"]) == ({'a"b\n': "null"}, {'a"b\n': "1"}, {'a"b\n': "1"})


def test_a_stream_without_namespace_has_no_schema(log: Callable[..., Any]) -> None:
    region = log(REGION, ["r_regionkey"], JSON, StreamId(None, "region"))

    event = json.loads(gzip.decompress(region.changes_file([region.events([("D", {}, {"r_regionkey": 1}, "{}")])])))

    assert event["tableName"]["namespace"] == {"catalog": None, "schema": None, "hash": 961}


@each(
    ("catalog", "schema", "table", "namespace_hash", "table_hash"),
    [
        (None, "io_blitzz", "region", 696406511, -821029210),
        ("tpch_scale_0_01", "default_schema", "nation", -27122659, -1893420405),
        (None, "tpch_scale_0_01", "region", -1732472540, 1193131537),
    ],
)
def test_hashes_are_those_of_arcions_pages(catalog: str | None, schema: str, table: str, namespace_hash: int, table_hash: int) -> None:
    assert objects_hash(catalog, schema) == namespace_hash
    assert objects_hash(namespace_hash, table) == table_hash


def test_the_hash_of_a_character_beyond_the_first_plane_counts_its_two_units() -> None:
    # "\uD83D\uDE00".hashCode() is 31 * 0xD83D + 0xDE00 = 1772899
    assert objects_hash("😀") == 31 + 1772899
