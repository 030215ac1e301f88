"""What the command `forget` chooses and refuses before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.territory import Table
from destination_s3_spark.cli import forget_command, operator_command
from destination_s3_spark.cli.forget_command import _subjects
from destination_s3_spark.errors import ConfigError
from unit_tests.cases import each

WHERE = ("--where", '{"id": 1}')


@pytest.fixture
def forget(make_table: Callable[..., Any], config: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str]]]:
    """Runs the command; returns its exit code and the streams whose rows it would forget."""
    for namespace, name in ((None, "users"), ("shop", "users"), ("shop2", "users"), ("shop", "orders")):
        make_table(namespace, name).writer().open()
    streams: list[str] = []

    def kept(_tools: object, tables: Sequence[Table], *_given: object) -> None:
        streams.extend(str(table.stream) for table in tables)

    monkeypatch.setattr(forget_command, "forget", kept)
    monkeypatch.setattr(forget_command, "workshop", lambda *_: nullcontext())

    def run(*arguments: str) -> tuple[int, list[str]]:
        streams.clear()
        return operator_command(["forget", "--config", str(config), *WHERE, *arguments]), streams

    return run


@each("more", [(), ("--dry-run",)])
def test_the_name_of_several_streams_is_refused(forget: Any, more: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert forget("--stream", "users", *more) == (1, [])
    said = capsys.readouterr().err
    assert "3 tables of streams of the name users: shop.users, shop2.users, users. Nothing was changed. Say which with --namespace" in said


@each(
    ("chosen", "streams"),
    [
        (("--stream", "users", "--namespace", ""), ["users"]),
        (("--stream", "users", "--namespace", "shop"), ["shop.users"]),
        (("--stream", "shop.users"), ["shop.users"]),
        (("--stream", "orders"), ["shop.orders"]),
        (("--stream", "user*"), ["users", "shop.users", "shop2.users"]),
        (("--stream", "*", "--namespace", "shop"), ["shop.orders", "shop.users"]),
    ],
)
def test_one_stream_or_those_of_a_pattern_are_chosen(forget: Any, chosen: Sequence[str], streams: list[str]) -> None:
    code, found = forget(*chosen)
    assert (code, sorted(found)) == (0, sorted(streams))


def test_a_bad_line_of_the_file_of_keys_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    keys.write_text('{"id": 1}\n\n{"id": private\n')
    with pytest.raises(ConfigError, match="line 3 of the file of keys is none") as caught:
        _subjects(['{"id": 7}'], str(keys))
    assert "private" not in caught.value.message
    with pytest.raises(ConfigError, match="number 2 of --where is none"):
        _subjects(['{"id": 7}', "[]"], None)
