"""Inputs that are extreme in one way each: what they take of memory, and how they end. docs/guarantees.md has them as a table.

The bounds are far above what was measured, and below what each input took before it was bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import psutil
import pytest

from destination_s3_spark.schema.json_schema import MOST_LEVELS
from integration_tests.connector import Sync
from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import JsonObject, catalog, cursor_of
from unit_tests.lake.outcome import Outcome
from unit_tests.lake.shop import complete, record, state, stream, users

pytestmark = pytest.mark.slow

MIB = 2**20
TIMEOUT_S = 100


class PeakMemory:
    """The most memory that any one process of a sync takes while the `with` block runs, Spark's JVM excepted."""

    def __init__(self, sync: Sync) -> None:
        self.bytes = 0
        self._sync = sync
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for process in self._sync.family():
                try:
                    if process.name() != "java":
                        self.bytes = max(self.bytes, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def written(lake: ProcessLake, streams: JsonObject, messages: Iterable[bytes], most_mb: int, **options: Any) -> Outcome:
    """The outcome of a sync, of which no process may take more memory than this."""
    with lake.connector().start(streams, **options) as sync, PeakMemory(sync) as peak:
        guard = threading.Timer(TIMEOUT_S, sync.kill)
        guard.start()
        for message in messages:
            sync.send(message)
        outcome = sync.end_input().finish(TIMEOUT_S)
        guard.cancel()
    assert peak.bytes < most_mb * MIB, f"{peak.bytes // MIB} MB"
    return outcome


def schema(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def one_record(data: Mapping[str, Any]) -> list[bytes]:
    return [record(data), state(1), complete()]


def tree(depth: int) -> JsonObject:
    """Unions of two objects, of which each has one more such union: 2**depth columns."""
    if not depth:
        return {"type": "string"}
    return {"oneOf": [schema(a=tree(depth - 1)), schema(b=tree(depth - 1))]}


def test_a_tree_of_unions_costs_as_much_as_its_columns(moto_lake: ProcessLake) -> None:
    streams = catalog(stream(schema=schema(id={"type": "integer"}, tree=tree(13))))
    written(moto_lake, streams, one_record({"id": 1}), 600).expect_success()
    assert moto_lake.ids() == [1]


def nested(levels: int, *, types: Any) -> JsonObject:
    inner: JsonObject = {"type": "string"}
    for _ in range(levels):
        inner = {"type": types, "properties": {"in": inner}}
    return inner


DEEPEST = {"plain": "object", "nullable": ["null", "object"]}
"""Types of objects of the deepest nesting, by stream."""


def deep_record(name: str) -> list[bytes]:
    deep: Any = "leaf"
    for _ in range(MOST_LEVELS - 1):
        deep = {"in": deep}
    return [record({"tree": deep}, name), state(1, name), complete(name)]


def deep_streams() -> list[JsonObject]:
    return [stream(name, schema=schema(tree=nested(MOST_LEVELS - 1, types=kind))) for name, kind in DEEPEST.items()]


def test_a_long_number_deep_types_empty_objects_and_many_unknown_streams(moto_lake: ProcessLake) -> None:
    items = {"type": "array", "items": schema(**{f"m{number}": {"type": "integer"} for number in range(300)})}
    streams = catalog(
        stream("numbers", schema=schema(id={"type": "integer"}, n={"type": "number"})),
        stream("objects", schema=schema(list=items)),
        *deep_streams(),
    )
    messages = [
        b"".join(record({"id": number}, f"unknown {number}") for number in range(50_000)),
        *(record({"id": 1, "n": "0" * 1_000_000 + "x"}, "numbers"), state(1, "numbers"), complete("numbers")),
        *(record({"list": [{}] * 350_000}, "objects"), state(1, "objects"), complete("objects")),
        *(line for name in DEEPEST for line in deep_record(name)),
    ]
    outcome = written(moto_lake, streams, messages, 600, publish={"delta": True}).expect_success()

    assert outcome.warnings.count("not in the catalog") == 101
    (row,) = moto_lake.rows(("shop", "numbers"))
    assert (row["id"], row["n"]) == (1, None), "it is no number"
    for name in DEEPEST:
        (row,) = moto_lake.rows(("shop", name))
        for _ in range(MOST_LEVELS - 1):
            row = row["tree" if "tree" in row else "in"]
        assert row == {"in": "leaf"}


def test_deep_types_are_written_as_avro(moto_lake: ProcessLake) -> None:
    messages = [line for name in DEEPEST for line in deep_record(name)]
    written(moto_lake, catalog(*deep_streams()), messages, 600, format={"format_type": "Avro"}).expect_success()


@pytest.mark.parametrize("filler", [b"x" * MIB, b" " * MIB], ids=["text", "blanks"])
def test_a_line_without_an_end_is_refused(moto_lake: ProcessLake, filler: bytes) -> None:
    def endless() -> Iterator[bytes]:
        yield from [*users([1]), state(1)]
        yield b'{"type":"RECORD","record":{"stream":"users","namespace":"shop","data":{"name":"'
        for _ in range(400):
            yield filler

    outcome = written(moto_lake, catalog(stream()), endless(), 500, batching={"max_line_mb": 64}).expect_failure("system_error")
    place = len(b"".join([*users([1]), state(1)]))
    assert f"'shop.users' at byte {place} cannot be read: it is longer than the 64 MB" in outcome.error_message


def test_empty_records_of_a_wide_table_take_no_more_than_a_block(moto_lake: ProcessLake) -> None:
    columns = {f"c{number}": {"type": "string"} for number in range(3_000)}
    messages = [record({}) * 40_000, state(1), complete()]
    written(moto_lake, catalog(stream(schema=schema(**columns))), messages, 600).expect_success()


def test_a_very_wide_table_is_written(moto_lake: ProcessLake) -> None:
    columns = {f"c{number}": {"type": "string"} for number in range(20_000)}
    written(moto_lake, catalog(stream(schema=schema(**columns))), one_record({"c7": "x"}), 600).expect_success()
    (row,) = moto_lake.rows()
    assert (row["c7"], row["c8"]) == ("x", None)


def test_a_state_after_every_record(moto_lake: ProcessLake) -> None:
    count = 20_000
    text = b"".join(message for number in range(count) for message in (*users([number]), state(number)))
    outcome = written(moto_lake, catalog(stream()), [text, complete()], 500).expect_success()
    assert [cursor_of(line) for line in outcome.state_lines] == list(range(count))
    assert moto_lake.ids() == list(range(count))
