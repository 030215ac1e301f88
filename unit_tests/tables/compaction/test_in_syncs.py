"""Small files of a table joined at the end of syncs: the rows and all that knows of them stay as they were."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.chain.events import MergeData
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.errors import DataError
from destination_s3_spark.formats.varints import unsigned
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.compaction import groups
from destination_s3_spark.tables.compaction.join import joined_in_store
from destination_s3_spark.tables.updates import choice, compacted
from unit_tests.lake import messages
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, record, state, stream

CHAIN = "lake/airbyte_internal/_raw__stream_users/chain/"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
FORMATS = [
    {"format_type": "Parquet"},
    {"format_type": "Avro"},
    {"format_type": "JSONL"},
    {"format_type": "CSV", "flattening": "Root level flattening", "compression": {"compression_type": "No Compression"}},
]


FEW_FILES = 6
"""How many small files are joined here, where their number proves nothing."""


@pytest.fixture(autouse=True)
def _few_files_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (groups, choice):
        monkeypatch.setattr(module, "LEAST_FILES", FEW_FILES)
    monkeypatch.setattr(groups, "GROWTH", FEW_FILES / 2)


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    return Lake(s3_settings, tmp_path, options={"tables": {"compaction": "on"}})


def catalog(mode: str = "append", sync: int = 1, schema: dict[str, Any] = SCHEMA) -> JsonObject:
    return messages.catalog(stream(schema=schema, mode=mode, key="id", sync_id=sync))


def numbered(ids: Sequence[int]) -> Iterator[bytes]:
    """A record of each id, and the end."""
    for one in ids:
        yield record({"id": one, "name": f"user {one}" if one % 3 else 7}, emitted_at=1000 + one)
    yield state(max(ids))
    yield complete()


def sync(lake: Lake, number: int, mode: str = "append", schema: dict[str, Any] = SCHEMA) -> None:
    lake.sync(catalog(mode, number, schema), numbered([10 * number, 10 * number + 1]))


def compactions(lake: Lake) -> list[MergeData]:
    found = lake.own_chain()
    events = [block.event for block in found.blocks(range(found.head.sequence_number + 1))]
    return [event for event in events if isinstance(event, MergeData) and not event.data_change]


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The rows of the table in the order of its files."""
    files = [lake.store.get(file.key) for file in lake.live(FileKind.FINAL)]
    return [row for file in files for row in pq.read_table(pa.BufferReader(file)).to_pylist()]


@pytest.mark.parametrize("format_options", FORMATS, ids=lambda options: options["format_type"])
def test_small_files_are_joined_in_every_format(format_options: dict[str, Any], lake: Lake) -> None:
    lake.format = format_options
    for number in range(1, FEW_FILES):
        sync(lake, number)
    before = {file.key: file.rows for file in lake.own_chain().live_files().files}
    assert len(before) == 2 * (FEW_FILES - 1)
    assert compactions(lake) == []
    sync(lake, FEW_FILES)
    live = lake.own_chain().live_files()
    assert [(file.kind, file.rows, file.offset) for file in live.files] == [
        (FileKind.FINAL, 2 * FEW_FILES, 0),
        (FileKind.RAW, 2 * FEW_FILES, 0),
    ] or [(file.kind, file.rows, file.offset) for file in live.files] == [
        (FileKind.RAW, 2 * FEW_FILES, 0),
        (FileKind.FINAL, 2 * FEW_FILES, 0),
    ]
    (event,) = compactions(lake)
    assert {file.key for file in event.files_removed} > before.keys()
    store = lake.store
    stored = {found.key for found in store.list("lake/") if "/chain/" not in found.key and "_symlink" not in found.key}
    assert stored == {file.key for file in live.files}


def test_parts_of_other_sizes_are_not_sent_to_a_store_that_refuses_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Settings, "equal_parts", True)
    monkeypatch.setattr(compacted, "joined_in_store", None)
    for number in range(1, FEW_FILES + 1):
        sync(lake, number)
    assert len(compactions(lake)) == 1
    assert len(rows(lake)) == 2 * FEW_FILES


def test_rows_and_their_order_stay(lake: Lake) -> None:
    lake.options = {"tables": {"compaction": "off"}}
    for number in range(1, FEW_FILES + 1):
        sync(lake, number)
    before = rows(lake)
    lake.options = {"tables": {"compaction": "auto"}}
    sync(lake, FEW_FILES + 1)
    assert len(compactions(lake)) == 1
    assert rows(lake)[: len(before)] == before
    sync(lake, FEW_FILES + 2)
    assert rows(lake)[: len(before)] == before
    assert [row["id"] for row in rows(lake)] == [10 * number + one for number in range(1, FEW_FILES + 3) for one in (0, 1)]


def test_a_manifest_names_the_joined_file(lake: Lake) -> None:
    lake.options = {}
    for number in range(1, FEW_FILES + 1):
        sync(lake, number)
    manifest = lake.store.get("lake/users/_symlink_format_manifest/manifest").decode().split()
    live = lake.live(FileKind.FINAL)
    assert manifest == [f"s3://{lake.settings.bucket}/{file.key}" for file in live]
    assert len(manifest) == 1


@pytest.mark.parametrize("choice", [{"tables": {"compaction": "off"}}, {"publish": {"symlink": False}}])
def test_tables_without_publishers_keep_their_files(choice: dict[str, Any], lake: Lake) -> None:
    lake.options = choice
    for number in range(1, FEW_FILES + 3):
        sync(lake, number)
    assert compactions(lake) == []


def test_a_table_is_rebuilt_from_joined_raw_files(lake: Lake) -> None:
    for number in range(1, FEW_FILES + 3):
        sync(lake, number)
    before = rows(lake)
    lake.rebuild()
    after = rows(lake)
    assert [{**row, "_airbyte_meta": None} for row in after] == [{**row, "_airbyte_meta": None} for row in before]


def test_raw_files_of_a_deduplicated_table_are_joined(lake: Lake) -> None:
    for number in range(1, FEW_FILES + 2):
        lake.sync(catalog("append_dedup", number), numbered([1, number]))
    live = lake.own_chain().live_files()
    assert [file.rows for file in live.of(FileKind.RAW)] == [2 * FEW_FILES, 2]
    assert sorted(row["id"] for row in rows(lake)) == list(range(1, FEW_FILES + 2))
    assert sum(file.rows for file in live.of(FileKind.RAW)) == lake.own_chain().head.contents.landed


def test_files_of_another_schema_are_left(lake: Lake) -> None:
    for number in range(1, 4):
        sync(lake, number)
    wider = {"type": "object", "properties": {**SCHEMA["properties"], "more": {"type": "integer"}}}  # type: ignore[dict-item]
    for number in range(4, FEW_FILES + 4):
        sync(lake, number, schema=wider)
    live = lake.own_chain().live_files()
    assert [file.rows for file in live.of(FileKind.FINAL)] == [2] * 3 + [2 * FEW_FILES]
    assert len(rows(lake)) == 2 * (FEW_FILES + 3)


def test_an_error_of_the_work_leaves_the_files(lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1, FEW_FILES):
        sync(lake, number)
    gone = lake.live(FileKind.RAW)[3]
    store = lake.store
    body = store.get(gone.key)
    store.delete([gone.key])
    sync(lake, FEW_FILES)
    assert compactions(lake) == []
    assert "small files were not joined" in caplog.text
    assert list(store.list_uploads("lake/")) == []
    store.put(gone.key, body)
    sync(lake, FEW_FILES + 1)
    assert len(compactions(lake)) == 1


def test_files_of_the_least_size_of_a_part_are_joined_inside_the_store(lake: Lake) -> None:
    lake.options = {"tables": {"compaction": "on", "target_file_mb": 30, "raw_tables": False}}
    text = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}

    chance = random.Random(7)
    for number in range(1, 4):
        sent = record({"id": number, "name": chance.randbytes(2_700_000).hex()}, emitted_at=5)
        lake.sync(catalog("append", number, text), [sent, state(number), complete()])
    (event,) = compactions(lake)
    (joined,) = lake.live(FileKind.FINAL)
    assert joined.rows == 3
    assert len(event.files[0].part_etags) == 4
    assert [row["id"] for row in rows(lake)] == [1, 2, 3]
    assert event.files_removed[0].schema_id == joined.schema_id


def test_a_delta_log_says_that_no_row_changed(lake: Lake) -> None:
    lake.options = {"publish": {"delta": True}, "tables": {"compaction": "auto"}}
    for number in range(1, FEW_FILES + 1):
        sync(lake, number)
    store = lake.store
    commits = sorted(found.key for found in store.list("lake/users/_delta_log/") if found.key.endswith(".json"))
    *earlier, last = [[json.loads(text) for text in store.get(key).splitlines()] for key in commits]
    changes = [next(iter(action.values()))["dataChange"] for action in last if {"add", "remove"} & action.keys()]
    assert len(changes) > FEW_FILES - 2
    assert not any(changes)
    assert all(action["add"]["dataChange"] for commit in earlier for action in commit if "add" in action)


@pytest.mark.parametrize(
    ("mode", "format_options"),
    [*(("append", options) for options in FORMATS), ("append_dedup", {"format_type": "Parquet", "compression_codec": "UNCOMPRESSED"})],
    ids=lambda given: given if isinstance(given, str) else given["format_type"],
)
def test_a_load_makes_files_of_about_the_target_size(mode: str, format_options: dict[str, Any], lake: Lake) -> None:
    lake.format = format_options
    lake.options = {"tables": {"compaction": "on", "target_file_mb": 1, "raw_tables": False}}
    target = 2**20
    chance = random.Random(7)
    lines = [record({"id": one, "name": chance.randbytes(2000).hex()}, emitted_at=5) for one in range(1500)]
    lake.sync(catalog(mode), [*lines, state(1), complete()])
    sizes = sorted(file.bytes for file in lake.live(FileKind.FINAL))
    rests = 0 if mode == "append" else 1  # the last file of a range of keys
    assert sum(sizes) > 2 * target
    assert sizes[-1] <= 1.5 * target
    assert sizes[rests] >= target / 2


def test_merged_files_reach_the_target_size_if_values_take_less_than_in_memory(lake: Lake) -> None:
    lake.format = {"format_type": "Parquet", "compression_codec": "UNCOMPRESSED"}
    lake.options = {"tables": {"target_file_mb": 1, "raw_tables": False}}
    chance = random.Random(7)
    columns = {name: {"type": "string"} for name in ("name", "country")}
    for time in (5, 6):
        rows = [{"id": one, "name": f"{chance.getrandbits(400):x}", "country": "AT" * 100} for one in range(30_000)]
        lines = [record(row, emitted_at=time) for row in rows]
        declared = catalog("append_dedup", schema={"type": "object", "properties": {"id": {"type": "integer"}, **columns}})
        lake.sync(declared, [*lines, state(time), complete()])
    sizes = sorted(file.bytes for file in lake.live(FileKind.FINAL))
    assert sum(sizes) > 3 * 2**20
    assert sizes[-1] <= 1.5 * 2**20
    assert sizes[1] >= 2**19


DAMAGE = [lambda file: file[:20], lambda file: file[:-30] + b"\x99" * 22 + file[-8:], lambda file: file[:-8] + b"\xff" * 4 + file[-4:]]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("format_options", FORMATS, ids=lambda options: options["format_type"])
def test_a_damaged_file_is_not_joined_and_the_sync_goes_on(
    format_options: dict[str, Any], damage: Any, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.format = format_options
    for number in range(1, FEW_FILES):
        sync(lake, number)
    store = lake.store
    victim = lake.live(FileKind.RAW)[3]
    store.put(victim.key, damage(store.get(victim.key)))
    sync(lake, FEW_FILES)
    assert compactions(lake) == []
    assert "small files were not joined" in caplog.text
    assert victim.key in {file.key for file in lake.own_chain().live_files().files}
    assert not list(store.list_uploads("lake/"))


def test_a_damaged_footer_of_a_large_file_keeps_it_from_being_copied(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    store = lake.store
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array(range(1_000_000))}), sink, use_dictionary=False, compression="none")
    sound = sink.getvalue().to_pybytes()
    files = []
    for number, content in enumerate([sound, DAMAGE[1](sound)]):
        store.put(f"lake/{number}.parquet", content)
        files.append(FileEntry(FileKind.FINAL, f"lake/{number}.parquet", 1_000_000, len(content), offset=number * 1_000_000))
    with pytest.raises(DataError, match=r"footer of 'lake/1\.parquet' is damaged"):
        joined_in_store((files[0], files[1]), "lake/joined.parquet", store)
    assert not list(store.list_uploads("lake/"))


def test_a_footer_of_megabytes_is_left_to_a_task(lake: Lake) -> None:
    """Such footers would be decoded for minutes."""
    structs = b"\x29\xfc" + unsigned(20 * 2**20) + bytes(20 * 2**20)
    content = b"PAR1" + bytes(2**23) + structs + len(structs).to_bytes(4, "little") + b"PAR1"
    files = [FileEntry(FileKind.FINAL, f"lake/{number}.parquet", 1, len(content), offset=number) for number in range(2)]
    for file in files:
        lake.store.put(file.key, content)
    assert joined_in_store((files[0], files[1]), "lake/joined.parquet", lake.store) is None
