"""Which files a table consists of, after every kind of block, through Snapshots and through the hint."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from destination_s3_spark.chain import hint
from destination_s3_spark.chain.blocks import canonical, decode, encode
from destination_s3_spark.chain.events import AddData, Close, Event, OpenEpoch, SetDataSchema, Snapshot, Void
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.hint import HINT_NAME, MAX_BYTES, PLAIN_FILES
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import Pending
from destination_s3_spark.formats.file_statistics import FileStatistics, KeyRange
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.built_chain import OPEN, SCHEMA, SEED, T0, Builder, add, begin, chain, file, live_files, merge, publish
from unit_tests.places import PlainTable

DELTA = (FileKind.RAW, FileKind.DELTA)
PLAIN = PlainTable(SEED.stream, SEED.table_id, "", SEED.final_root)
HINT = PLAIN.chain_prefix + HINT_NAME
ADOPTED = file(FileKind.ADOPTED, "adopted.parquet", 0)


def keys(files: tuple[FileEntry, ...]) -> list[str]:
    return [file.key for file in files]


def several_files(start: int, rows: list[int], kinds: tuple[FileKind, ...]) -> AddData:
    """A block of several slices: the files of a kind hold its rows in order."""
    total = sum(rows)
    files = tuple(file(kind, f"{kind.value}-{start}-{number}", count) for number, count in enumerate(rows) for kind in kinds)
    return replace(add(start, start + total - 1), files=files)


def two_generations() -> Builder:
    """A merged table, and a generation of two blocks that waits."""
    sorted_file = file(FileKind.FINAL, "merged", keys=KeyRange("00", "ff", "k"), schema_id=0, generation_id=0)
    return chain(
        SEED, SCHEMA, add(0, 9, kinds=DELTA), merge([sorted_file], [file(FileKind.DELTA, "delta-0")]),
        begin(5, 10), add(10, 14, kinds=DELTA), add(15, 19, kinds=DELTA),
    )  # fmt: skip


def test_added_files_know_their_first_row_and_their_schema() -> None:
    built = chain(SEED, SCHEMA, several_files(0, [4, 6], DELTA), SetDataSchema({"schemaId": 3}))
    built.append(replace(several_files(10, [5, 1], DELTA), schema_id=3, generation_id=2))
    found = built.live.files

    assert [(file.key, file.offset, file.schema_id, file.generation_id) for file in found] == [
        ("raw-0-0", 0, 0, 0),
        ("delta-0-0", 0, 0, 0),
        ("raw-0-1", 4, 0, 0),
        ("delta-0-1", 4, 0, 0),
        ("raw-10-0", 10, 3, 2),
        ("delta-10-0", 10, 3, 2),
        ("raw-10-1", 15, 3, 2),
        ("delta-10-1", 15, 3, 2),
    ]
    assert all(file.upload_id is None and not file.part_etags for file in found)


def test_a_merge_replaces_files_by_what_it_says_of_the_new_ones() -> None:
    built = two_generations()
    live = live_files(built.blocks[:4])

    assert keys(live.files) == ["raw-0", "merged"]
    (merged,) = live.of(FileKind.FINAL)
    assert (merged.keys, merged.schema_id, merged.generation_id, merged.upload_id) == (KeyRange("00", "ff", "k"), 0, 0, None)


def test_only_files_behind_the_beginning_of_the_pending_generation_belong_to_it() -> None:
    live = two_generations().live

    assert live.pending == Pending(5, 10, 9)
    assert [file.key for file in live.files if live.is_pending(file)] == ["raw-10", "delta-10", "raw-15", "delta-15"]


def test_files_of_a_generation_that_is_given_up_stay_to_be_removed() -> None:
    built = two_generations().append(begin(4, 20), add(20, 24, kinds=DELTA))
    live = built.live
    assert keys(live.files) == ["raw-0", "merged", "raw-20", "delta-20"]
    assert keys(live.dropped) == ["raw-10", "delta-10", "raw-15", "delta-15"]
    built.append(begin(6, 25), publish([], [*live.files[:2], *live.dropped], generation=6))

    assert keys(built.live.dropped) == ["raw-20", "delta-20"], "given up later, and not removed by that block"
    assert built.live.files == ()


def test_a_generation_that_is_given_up_twice_over_is_kept_track_of() -> None:
    built = two_generations().append(begin(4, 20), add(20, 24, kinds=DELTA), begin(3, 25))

    assert keys(built.live.dropped) == ["raw-10", "delta-10", "raw-15", "delta-15", "raw-20", "delta-20"]
    assert keys(built.live.files) == ["raw-0", "merged"]


def test_promotion_makes_pending_files_files_like_others() -> None:
    before = two_generations().live.files
    live = two_generations().append(OPEN).live

    assert (live.pending, live.files, live.dropped) == (None, before, ())
    assert not any(live.is_pending(file) for file in live.files)


def test_promoted_files_are_not_pending_in_the_next_generation() -> None:
    live = two_generations().append(OPEN, begin(6, 20)).live

    assert not any(live.is_pending(file) for file in live.files)
    assert live.dropped == ()


def test_publishing_ends_pending_and_takes_adopted_files_away() -> None:
    built = two_generations()
    gone = [ADOPTED, *(file for file in built.live.files if file.kind is not FileKind.RAW or file.key == "raw-0")]
    live = built.append(publish([file(FileKind.FINAL, "new")], gone)).live

    assert (live.adopted, live.pending, keys(live.files)) == ((), None, ["raw-10", "raw-15", "new"])


@each(
    "event",
    [
        add(20, 24, kinds=DELTA),
        merge([file(FileKind.FINAL, "new")], [file(FileKind.FINAL, "merged")]),
        publish([file(FileKind.FINAL, "new")], [ADOPTED, file(FileKind.FINAL, "merged"), file(FileKind.DELTA, "delta-10", 5)]),
    ],
)
@each("opened_again", [False, True])
def test_void_restores_exactly_what_was_there(event: Event, opened_again: bool) -> None:
    built = two_generations().append(begin(4, 20))  # so that there is something of everything
    before = built.live
    assert before.dropped
    assert before.pending
    built.append(event)
    number = built.head.sequence_number
    assert built.live != before
    if opened_again:
        same = OpenEpoch(12, built.head.contents.generation, T0, built.head.contents.pending)
        built.add(built.next(same, settled=built.head.settled))
    built.append(Void(number))

    assert built.live == before


def test_a_snapshot_says_all_that_the_blocks_before_it_say() -> None:
    built = two_generations().append(begin(4, 20), add(20, 24, kinds=DELTA), OpenEpoch(9, 4, T0, Pending(4, 20, 9)))
    before = built.live.without_values()
    built.append(Snapshot(built.head, before.adopted, before.files, before.dropped))
    snapshot = decode(encode(built.blocks[-1]))

    assert snapshot == built.blocks[-1]
    assert live_files([snapshot]) == before
    assert before.dropped
    assert before.pending
    assert before.adopted


def test_the_counters_agree_with_the_list() -> None:
    built = two_generations().append(begin(4, 20), add(20, 24, kinds=DELTA))
    live, contents = built.live, built.head.contents
    for kind in FileKind:
        entries = [file for file in (*live.files, *live.dropped) if file.kind is kind]
        assert contents.files(kind) == len(entries)
        if entries:
            counters = contents.held[kind.value]
            assert (counters.rows, counters.bytes) == (sum(file.rows for file in entries), sum(file.bytes for file in entries))


def on_store(store: Bucket, files: int, adopted: int, statistics: FileStatistics | None = None) -> Chain:
    """A closed chain with a pending generation, and its hint."""
    writer = Chain(store, PLAIN, lambda: datetime(2026, 1, 1, tzinfo=UTC))
    seed = replace(SEED, adopted=tuple(f"adopted-{number}" for number in range(adopted)), pending=Pending(0, 0, 7))
    added = several_files(0, [1] * files, (FileKind.DELTA,))
    added = replace(added, files=tuple(replace(file, statistics=statistics) for file in added.files))
    for event in (seed, SCHEMA, added):
        writer.append(event)
    writer.mark_settled()
    writer.append(Close())
    writer.write_hint()
    store.forget()
    return writer


def reader(store: Bucket) -> Chain:
    made = Chain(store, PLAIN)
    made.read()
    return made


@each(("files", "adopted"), [(PLAIN_FILES - 2, 2), (PLAIN_FILES + 1, 0), (1, PLAIN_FILES), (20 * PLAIN_FILES, 2)])
def test_a_hint_with_the_list_saves_reading_the_blocks(files: int, adopted: int) -> None:
    store = Bucket()
    writer = on_store(store, files, adopted)
    found = reader(store)

    assert found.live_files() == writer.live_files()
    assert found.live_files().pending == Pending(0, 0, 7)
    assert len(store.calls) == 1


def test_the_list_of_a_table_of_many_files_is_compressed() -> None:
    store = Bucket()
    writer = on_store(store, 20 * PLAIN_FILES, 0)

    assert len(store.objects[HINT]) < len(canonical(writer.live_files())) / 5


@each("damage", [b"!", b"AAAA"])
def test_a_hint_with_a_damaged_list_is_ignored(damage: bytes) -> None:
    store = Bucket()
    writer = on_store(store, PLAIN_FILES + 1, 0)
    head = msgspec.json.decode(store.objects[HINT])
    head["known"]["compressed"] = damage.decode()
    head["checksum"] = hashlib.sha256(canonical(head["known"])).hexdigest()
    store.objects[HINT] = canonical(head)

    assert reader(store).live_files() == writer.live_files()


@each(("files", "adopted"), [(PLAIN_FILES + 1, 0), (1, PLAIN_FILES)])
def test_the_hint_of_a_table_of_too_many_files_leaves_them_to_the_blocks(files: int, adopted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint, "MAX_BYTES", 100)
    store = Bucket()
    writer = on_store(store, files, adopted)
    assert len(store.objects[HINT]) < 3000
    found = reader(store)

    assert found.live_files() == writer.live_files()
    assert len(found.live_files().files) == files
    assert len(store.calls) == 1 + 4


def test_the_hint_compresses_files_whose_statistics_are_large() -> None:
    store = Bucket()
    columns = {f"column {number}": "x" * 32 for number in range(1_000)}
    writer = on_store(store, 40, adopted=0, statistics=FileStatistics(columns, columns, dict.fromkeys(columns, 0)))
    assert len(store.objects[HINT]) < MAX_BYTES
    found = reader(store)

    assert found.live_files() == writer.live_files()
    assert {file.statistics for file in found.live_files().files} == {FileStatistics(columns, columns, dict.fromkeys(columns, 0))}
    assert len(store.calls) == 1


def test_blocks_behind_a_hint_count_whether_it_has_the_list_or_not() -> None:
    for files in (1, PLAIN_FILES + 1):
        store = Bucket()
        writer = on_store(store, files, adopted=0)
        hinted = reader(store)
        writer.append(OpenEpoch(9, 5, T0, Pending(5, files, 9)))
        hinted.catch_up()

        assert hinted.live_files() == writer.live_files() == LiveFiles((), (), writer.live_files().dropped, Pending(5, files, 9))
        assert len(hinted.live_files().dropped) == files


def test_reading_a_chain_without_a_hint_fetches_each_block_once() -> None:
    store = Bucket()
    writer = on_store(store, 3, adopted=1)
    del store.objects[HINT]
    store.forget()
    found = reader(store)
    found.catch_up()

    assert found.live_files() == writer.live_files()
    fetched = [key for _, key in store.calls if key in store.objects]
    assert len(fetched) == len(set(fetched)) == 4
