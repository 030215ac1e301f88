from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.chain.hint import PublishedMark
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import TableState
from destination_s3_spark.cli import operator_command
from destination_s3_spark.storage.object_store import ObjectStore
from destination_s3_spark.tables.publishers import registry
from destination_s3_spark.tables.publishers.publication import NotPublished, PublisherKind
from destination_s3_spark.tables.publishers.symlink import MANIFEST, SymlinkManifest

COLUMNS = [("id", pa.int64())]


@pytest.fixture
def repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Runs the command with the configuration of a table: exit code and lines."""

    def run(table: Any, *arguments: str, **options: object) -> tuple[int, list[str]]:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(table.config(**options)))
        code = operator_command(["repair", "--config", str(path), *arguments])
        return code, capsys.readouterr().out.splitlines()

    return run


def append(table: Any, number: int) -> Any:
    """A session that commits one row."""
    writer = table.writer(sync_id=number, publishers=[SymlinkManifest(table.settings.bucket)])
    schema = table.set_schema(writer, 0, COLUMNS)
    table.commit(writer, table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": number})))
    return writer


def test_each_table_has_a_line_that_says_what_was_done(make_table: Callable[..., Any], repair: Any) -> None:
    clean, dead = make_table("shop", "orders"), make_table("shop", "users")
    append(clean, 1).close()
    writer = append(dead, 2)
    schema = dead.set_schema(writer, 0, COLUMNS)
    dead.stage(writer, FileKind.FINAL, dead.rows(schema, {"id": 3}))

    assert repair(dead) == (
        0,
        [
            "[1/2] shop.orders: nothing to do",
            "[2/2] shop.users: last commit finished, 1 open upload dropped, manifest written, left open for the next sync",
        ],
    )
    assert len(dead.store.get(dead.table.final_root + MANIFEST).splitlines()) == 1
    assert list(dead.store.list_uploads("")) == []
    assert repair(dead) == (0, ["[1/2] shop.orders: nothing to do", "[2/2] shop.users: nothing to do"])


def test_one_stream_can_be_chosen(make_table: Callable[..., Any], repair: Any) -> None:
    append(make_table("a", "users"), 1)
    append(make_table("b", "users"), 1)
    orders = make_table("a", "orders")
    append(orders, 1)

    code, lines = repair(orders, "--stream", "users", "--namespace", "b")

    assert (code, [line.partition(":")[0] for line in lines]) == (0, ["[1/1] b.users"])


def test_an_empty_namespace_chooses_the_stream_without_one(
    make_table: Callable[..., Any], repair: Any, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [make_table(*name) for name in ((None, "users"), ("a", "users"), ("a", "orders"))]
    for table in tables:
        append(table, 1)

    code, lines = repair(tables[0], "--stream", "users", "--namespace", "")
    assert (code, [line.partition(":")[0] for line in lines]) == (0, ["[1/1] users"])
    _, lines = repair(tables[0], "--stream", "*s", "--namespace", "")
    assert [line.partition(":")[0] for line in lines] == ["[1/1] users"]
    _, lines = repair(tables[0], "--namespace", "")
    assert [line.partition(":")[0] for line in lines] == ["[1/1] users"]

    assert operator_command(["repair", "--config", str(config), "--stream", "orders", "--namespace", ""]) == 1
    assert "There is no table of stream orders without a namespace under" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (("--stream", "user*"), {"a.users", "a.users_?", "a.users_1", "b.users"}),
        (("--stream", "user*", "--namespace", "b"), {"b.users"}),
        (("--stream", "a.*s"), {"a.orders", "a.users"}),
        (("--stream", "users_?"), {"a.users_?"}),
    ],
)
def test_streams_can_be_chosen_by_a_pattern_and_a_whole_name_is_none(
    make_table: Callable[..., Any], repair: Any, chosen: tuple[str, ...], found: set[str]
) -> None:
    names = [("a", "users"), ("b", "users"), ("a", "users_?"), ("a", "users_1"), ("a", "orders")]
    for table in (tables := [make_table(*name) for name in names]):
        append(table, 1)

    _, lines = repair(tables[0], *chosen)

    assert {line.partition("] ")[2].partition(":")[0] for line in lines} == found


def test_a_manifest_that_an_older_sync_wrote_last_is_written_anew(make_table: Callable[..., Any], repair: Any) -> None:
    table = make_table()
    append(table, 1).close()
    table.store.put(table.table.final_root + MANIFEST, b"old", {"ab-chain-sequence": "0", "ab-chain-table": table.table.table_id})

    assert repair(table) == (0, ["[1/1] shop.users: manifest written"])
    assert table.store.get(table.table.final_root + MANIFEST).startswith(b"s3://")
    assert repair(table) == (0, ["[1/1] shop.users: nothing to do"])


@dataclass(frozen=True)
class Refusing:
    """A publisher that refuses every table."""

    name: str = "catalog"

    def publish(self, store: ObjectStore, state: TableState, live: LiveFiles, last: PublishedMark | None) -> str:
        raise NotPublished("No such type.")

    def published(self, store: ObjectStore, state: TableState) -> int | None:
        return None

    def require_fitting(self, store: ObjectStore, state: TableState, live: LiveFiles) -> None:
        raise NotPublished("No such type.")


def test_a_table_that_a_publisher_refuses_is_named_with_the_reason(
    make_table: Callable[..., Any], repair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PublisherKind(lambda _config, tables: dict.fromkeys(tables, Refusing()), lambda *_: None)
    monkeypatch.setattr(registry, "PUBLISHERS", [*registry.PUBLISHERS, kind])
    clean, dead = make_table("shop", "orders"), make_table("shop", "users")
    append(clean, 1).close()
    append(dead, 2)

    repaired = "last commit finished, manifest written, left open for the next sync"
    assert repair(dead) == (
        1,
        [
            "[1/2] shop.orders: Not published for catalog: No such type.",
            f"[2/2] shop.users: {repaired}. Not published for catalog: No such type.",
        ],
    )


@pytest.mark.parametrize("options", [{"publish": {"symlink": False}}, {"format": {"format_type": "JSONL"}}])
def test_without_manifests_none_is_written(make_table: Callable[..., Any], repair: Any, options: dict[str, object]) -> None:
    table = make_table()
    append(table, 1).close()
    table.store.delete([table.table.final_root + MANIFEST])

    assert repair(table, **options) == (0, ["[1/1] shop.users: nothing to do"])


def test_a_table_that_cannot_be_repaired_does_not_keep_the_others_from_it(make_table: Callable[..., Any], repair: Any) -> None:
    damaged, dead = make_table("a", "damaged"), make_table("b", "dead")
    append(damaged, 1)
    damaged.store.put(f"{damaged.table.chain_prefix}{1:020d}.json", b"{}")
    append(dead, 1)

    code, lines = repair(dead)

    assert code == 1
    assert lines[0].startswith("[1/2] a.damaged: failed. The chain of table a.damaged under lake/airbyte_internal/")
    assert lines[1].startswith("[2/2] b.dead: last commit finished")


def test_an_unknown_stream_is_an_error(make_table: Callable[..., Any], repair: Any) -> None:
    table = make_table()
    append(table, 1)

    assert repair(table, "--stream", "user") == (1, [])


def test_an_empty_bucket_path_is_said_in_words(make_table: Callable[..., Any], repair: Any) -> None:
    table = make_table()

    assert repair(table) == (0, [f"No tables under s3://{table.settings.bucket}/lake/airbyte_internal/."])
