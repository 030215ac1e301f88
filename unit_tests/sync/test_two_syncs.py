"""Two syncs of the same tables that start at the same moment: one of them succeeds, and nothing that was acknowledged is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.files import FileKind, Token
from destination_s3_spark.errors import Fenced, TransientError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, state, stream, users
from unit_tests.sync.dedup_lake import dedup_catalog

NAMES = [f"stream_{number}" for number in range(6)]
ROUNDS = 8


def test_one_of_two_syncs_that_start_together_succeeds(s3_settings: S3Settings, tmp_path: Path) -> None:
    lakes = [Lake(s3_settings, tmp_path / str(number)) for number in range(2)]
    outcomes: list[tuple[bool, bool]] = []
    for turn in range(ROUNDS):
        start = threading.Barrier(2)

        def sync(number: int, turn: int = turn, start: threading.Barrier = start) -> bool:
            first = 100 * turn + 10 * number

            def messages() -> Iterator[bytes]:
                start.wait()
                for name in NAMES:
                    yield b"".join([*users([first, first + 1], name), state(first, name), complete(name)])

            try:
                lakes[number].sync(catalog(*map(stream, NAMES)), messages())
            except (Fenced, TransientError):  # its uploads are aborted by the other one, or its next block is refused
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(sync, range(2))
        outcomes.append((one, other))

    assert all(one or other for one, other in outcomes), outcomes
    for name in NAMES:
        found = lakes[0].ids_in_folder(name)
        assert len(set(found)) == len(found), "a row is there twice"
        for lake in lakes:
            acknowledged = [one["state"]["stream"] for one in lake.states]
            cursors = [one["stream_state"]["cursor"] for one in acknowledged if one["stream_descriptor"]["name"] == name]
            assert {row for cursor in cursors for row in (cursor, cursor + 1)} <= set(found)


def test_a_sync_that_is_overtaken_in_a_merge_takes_its_scratch_objects_along(
    s3_settings: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = (Lake(s3_settings, tmp_path / name) for name in ("first", "second"))
    store = S3Store(s3_settings)
    lake.sync(catalog(stream()), [*users([1, 2]), state(1), complete()])
    folder = lake.live(FileKind.RAW)[0].key.partition("raw/")[0] + "scratch/"
    merge, left, of_other = TableWriter.merge, list[str](), list[str]()

    def overtaken(writer: TableWriter, *given: Any) -> Any:
        monkeypatch.undo()
        left.extend(found.key for found in store.list(folder))
        other.sync(dedup_catalog(), [*users([3]), state(2), complete()])
        head = lake.own_chain().head
        of_other.append(f"{folder}{Token(head.identity.table_number, head.epoch, 9)}/0.parquet")
        store.put(of_other[0], b"rows")
        return merge(writer, *given)

    monkeypatch.setattr(TableWriter, "merge", overtaken)
    with pytest.raises(Fenced):
        lake.sync(dedup_catalog(), [*users([2, 4]), state(3), complete()])
    assert left, "the rows of the append table have been sorted by then"
    assert [found.key for found in store.list(folder)] == of_other
    assert lake.ids_in_folder() == [1, 2, 3, 4]
