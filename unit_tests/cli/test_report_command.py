from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.blocks import block_name
from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli import operator_command
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.schema.airbyte_type import Field, Scalar
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.tables.runs.keys import CdcDeletion, KeySpec


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


def report(config: Path, page: Path) -> int:
    return operator_command(["report", "--config", str(config), "--out", str(page)])


def make(make_table: Callable[..., Any], name: str) -> Any:
    table = make_table("shop", name)
    writer = table.writer(sync_id=5, generation_id=2)
    table.set_schema(writer, 0, [("id", pa.int64())])
    table.commit(writer, table.stage(writer, FileKind.FINAL, b"x" * 100))
    table.stage(writer, FileKind.FINAL, b"an upload that nothing completes")
    return table.table


def test_what_a_dead_sync_left_is_told(
    config: Path, page: Path, make_table: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    make(make_table, "orders")

    assert report(config, page) == 0

    assert capsys.readouterr().out == f"{page}: 1 table, 4 things to look at\n"
    text = page.read_text()
    assert "commit 2 is not settled; all its files are there" in text
    assert "1 open upload, invisible but paid for" in text
    assert "symlink: nothing is published yet" in text


def test_a_damaged_table_does_not_hide_the_others(
    config: Path, page: Path, store: S3Store, make_table: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    make(make_table, "orders")
    damaged = make(make_table, "users")
    store.put(damaged.chain_prefix + block_name(1), b"no block")
    store.delete([damaged.chain_prefix + "hint.json"])

    assert report(config, page) == 1

    ended = capsys.readouterr()
    assert ended.err.startswith("shop.users: ")
    assert "shop.users</strong> could not be read: " in page.read_text()
    assert "<h2>shop.orders</h2>" in page.read_text()


def test_an_error_that_was_not_foreseen_does_not_hide_the_other_tables(
    config: Path, page: Path, make_table: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    make(make_table, "orders")
    odd = make_table("shop", "users")
    writer = odd.writer(sync_id=5, generation_id=2)
    odd.set_schema(writer, 0, [("id", pa.int64())], primaryKey=7, cursor=[])
    spec = KeySpec((Field("id", "id", Scalar.INTEGER),), None, None, CdcDeletion.HARD)
    odd.commit(writer, odd.stage(writer, FileKind.FINAL, b"x", keys=KeyRange("01", "01", spec.fingerprint)))
    writer.close()

    assert report(config, page) == 1
    assert operator_command(["inspect", "users", "files", "--config", str(config)]) == 1

    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    for line in told:
        assert re.match(r"shop\.users: an error that was not foreseen, \w+ in \w+\.py, line ", line)
        assert line.endswith("Please report this.")
    assert "<h2>shop.orders</h2>" in page.read_text()


def test_a_bucket_path_without_tables_has_a_page(config: Path, page: Path) -> None:
    assert report(config, page) == 0
    assert 'Tables</dt><dd><data value="0">0</data>' in page.read_text()


def test_a_page_that_cannot_be_written_is_an_error(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(config, tmp_path / "no such folder" / "page.html") == 1
    assert "The page cannot be written to" in capsys.readouterr().err
