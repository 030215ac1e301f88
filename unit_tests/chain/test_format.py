"""`docs/format.md` says what lies in the bucket, and versions treat each other's objects as it says."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from destination_s3_spark.chain.blocks import block_name, canonical, decode
from destination_s3_spark.chain.events import KnownEvent, MergeData
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.hint import HINT_FORMAT
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.formats.file_statistics import FileStatistics, KeyRange
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.built_chain import T0
from unit_tests.chain.one_table import CHAIN, FIRST, TABLE, land, writer

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
HINT = f"{CHAIN}hint.json"
NEWER = "a newer version wrote it"


def table(start: str) -> dict[str, set[str]]:
    """The names in the first and last column of the table that follows a line."""
    lines = iter(PAGE[PAGE.index(start) :].splitlines())
    rows = [line for line in lines if line.startswith("| `")]
    found = [[set(re.findall(r"`(\w+)`", cell)) for cell in row.strip("| ").split(" | ")] for row in rows]
    return {name: cells[-1] for cells in found for name in cells[0]}


def test_the_page_names_every_event_and_its_fields() -> None:
    page = table("The `kind` of the event is one of:")
    for event in get_args(KnownEvent):
        assert page[event.__name__] == set(event.__struct_encode_fields__), event


def test_the_page_names_every_field_of_a_file() -> None:
    assert set(table("A file in `files`")) & set(FileEntry.__struct_encode_fields__) == set(FileEntry.__struct_encode_fields__) - {
        "keys",
        "statistics",
    }
    assert all(f"`{kind.value}`" in PAGE for kind in FileKind)


def synced(store: Bucket) -> Chain:
    made = writer(store, 1)
    land(made, store, 0, 100)
    made.commit([FIRST])
    made.close()
    return opened(store)


def opened(store: Bucket) -> Chain:
    chain = Chain(store, TABLE, lambda: T0)
    chain.read()
    chain.catch_up()
    return chain


def changed_hint(store: Bucket, change: Callable[[dict[str, Any]], None]) -> None:
    hint = json.loads(store.objects[HINT])
    change(hint)
    hint["checksum"] = hashlib.sha256(canonical(hint["known"])).hexdigest()
    store.objects[HINT] = canonical(hint)


def newer_format(hint: dict[str, Any]) -> None:
    hint.update(format=HINT_FORMAT + 1)


def newer_table(hint: dict[str, Any]) -> None:
    hint["known"]["state"]["identity"]["formatVersion"] = 2


@each(
    ("change", "said"),
    [
        (newer_format, "has format 2 and this version of the connector knows format 1"),
        (newer_table, "a newer version of the connector wrote"),
    ],
)
def test_a_hint_of_a_newer_version_is_ignored_and_replaced(
    change: Callable[[dict[str, Any]], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    store = Bucket()
    whole = synced(store).head
    changed_hint(store, change)
    with caplog.at_level(logging.WARNING):
        assert opened(store).head == whole

    assert said in caplog.text
    synced(store)
    assert json.loads(store.objects[HINT])["format"] == HINT_FORMAT


def test_a_block_of_a_newer_format_is_refused_whatever_it_looks_like() -> None:
    store = Bucket()
    number = synced(store).head.sequence_number + 1
    store.objects[f"{CHAIN}{block_name(number)}"] = b'{"format":2,"contents":[]}'
    with pytest.raises(ConfigError, match=NEWER):
        opened(store)


def test_a_snapshot_of_a_newer_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket()
    monkeypatch.setattr("destination_s3_spark.chain.opening.SNAPSHOT_EVERY", 1)
    chain = synced(store)
    key = f"{CHAIN}{block_name(chain.head.snapshot or 0)}"
    assert b'"kind":"Snapshot"' in store.objects[key]
    store.objects[key] = store.objects[key].replace(b'"formatVersion":1', b'"formatVersion":2')
    del store.objects[HINT]
    with pytest.raises(ConfigError, match=NEWER):
        opened(store)


def test_blocks_have_no_keys_and_statistics_whoever_writes_them() -> None:
    store = Bucket()
    made = writer(store, 1)
    land(made, store, 0, 100)
    made.commit([FIRST])
    chain = opened(store)
    chain.mark_settled()
    values = FileStatistics({"a": 1}, {"a": 1}, {"a": 0})
    known = FileEntry(FileKind.FINAL, f"{TABLE.final_root}f.parquet", 1, 1, "u", keys=KeyRange("00", "01", "k"), statistics=values)
    chain.append(MergeData(chain.head.schema_id or 0, 1, 0, None, (known,), ()))
    body = store.objects[f"{CHAIN}{block_name(chain.head.sequence_number)}"]

    assert b'"keys"' not in body
    assert b'"statistics"' not in body
    assert chain.live_files().files[-1].keys == known.keys, "the session knows them"
    forged = body.replace(b'"files":[{', b'"files":[{"keys":{"first":"00","last":"01","of":"k"},')
    assert decode(forged) == decode(body), "what a block says of keys is not believed"
