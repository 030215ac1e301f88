"""Which rows stay when a refresh is published, and which files of destination-s3 belong to a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from destination_s3_spark.chain.files import GENERATION_METADATA, FileEntry, FileKind
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session, WriteDisposition
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.formats.file_statistics import UNBOUNDED, WrittenFile
from destination_s3_spark.storage.object_store import ObjectInfo
from destination_s3_spark.tables.commit.generation import NOTHING, earlier_files, generation_of, kept_rows
from destination_s3_spark.tables.commit.writer import TableWriter
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.one_table import FIRST, STARTED, TABLE, land, writer

PATTERN = re.compile(r"lake/users/.*\.parquet")


def lands(store: Bucket, generation: int, disposition: WriteDisposition = WriteDisposition.APPEND) -> None:
    """A sync of ten rows that ends well."""
    made = writer(store, generation, generation, disposition)
    land(made, store, 0, 100)
    made.commit([FIRST])
    made.close()


def refresh(store: Bucket, generation: int, disposition: WriteDisposition = WriteDisposition.TRUNCATE) -> TableWriter:
    """An open refresh of the generation."""
    made = writer(store, 99, generation, disposition)
    made.open()
    return made


def files(made: TableWriter, kind: FileKind) -> tuple[FileEntry, ...]:
    return made.live_files().of(kind)


def test_rows_that_landed_in_the_generation_before_it_was_pending_stay() -> None:
    store = Bucket()
    lands(store, 4)
    lands(store, 5)
    made = refresh(store, 5)
    kept = kept_rows(made, WriteDisposition.TRUNCATE)
    assert kept is not None
    assert (kept.rows, kept.files, kept.raw) == (10, files(made, FileKind.FINAL)[1:], files(made, FileKind.RAW)[1:])
    assert kept.adopted == frozenset()


def test_nothing_of_earlier_generations_stays() -> None:
    store = Bucket()
    lands(store, 4)
    assert kept_rows(refresh(store, 5), WriteDisposition.TRUNCATE) == NOTHING


def test_nothing_stays_of_what_is_overwritten() -> None:
    store = Bucket()
    lands(store, 4)
    assert kept_rows(refresh(store, 4, WriteDisposition.OVERWRITE), WriteDisposition.OVERWRITE) == NOTHING


def test_of_rows_that_a_merge_has_mixed_with_others_the_raw_ones_stay() -> None:
    store = Bucket()
    lands(store, 4)
    lands(store, 5)
    merge(store)
    made = refresh(store, 5)
    kept = kept_rows(made, WriteDisposition.TRUNCATE)
    assert kept is not None
    assert (kept.rows, kept.files) == (10, files(made, FileKind.RAW)[1:])


def test_without_raw_rows_nobody_can_tell_them_apart() -> None:
    store = Bucket()
    lands(store, 4)
    lands(store, 5)
    merge(store, with_raw=True)
    assert kept_rows(refresh(store, 5), WriteDisposition.TRUNCATE) is None


def merge(store: Bucket, *, with_raw: bool = False) -> None:
    """Bring the rows of all final files into one, and drop the raw ones if told to."""
    made = writer(store, 50, 5)
    made.open()
    removed = made.live_files().files if with_raw else files(made, FileKind.FINAL)
    rows = sum(file.rows for file in files(made, FileKind.FINAL))
    upload = store.stage(f"{TABLE.final_root}{made.next_token()}.parquet", b"x" * rows)
    made.merge([FileEntry.staged(FileKind.FINAL, upload, WrittenFile(rows, statistics=UNBOUNDED))], removed, None)
    made.close()


ADOPTABLE = {"lake/users/a.parquet": "5", "lake/users/b.parquet": "4", "lake/users/c.parquet": "5"}


def adopted_into(store: Bucket, generation: int, disposition: WriteDisposition) -> TableWriter:
    for key, number in ADOPTABLE.items():
        store.put(key, b"PAR1", {GENERATION_METADATA: number})
    table = replace(TABLE, adopt=lambda: earlier_files(store, PATTERN, TABLE.final_root, TABLE.table_id))
    made = TableWriter(Chain(store, table), Session(1, generation, STARTED, disposition), OrphanUploads(store, "lake/"))
    made.chain.read()
    made.open()
    return made


def test_adopted_files_of_the_generation_stay() -> None:
    made = adopted_into(Bucket(), 5, WriteDisposition.TRUNCATE)
    assert made.live_files().adopted == tuple(ADOPTABLE)
    kept = kept_rows(made, WriteDisposition.TRUNCATE)
    assert kept is not None
    assert (kept.rows, kept.files, kept.adopted) == (0, (), frozenset({"lake/users/a.parquet", "lake/users/c.parquet"}))


@each(
    ("metadata", "generation"),
    [({GENERATION_METADATA: "12"}, 12), ({GENERATION_METADATA: " 7 "}, 7), ({GENERATION_METADATA: "x"}, None), ({}, None), (None, None)],
)
def test_the_generation_in_a_files_metadata(metadata: Mapping[str, str] | None, generation: int | None) -> None:
    assert generation_of(None if metadata is None else ObjectInfo("lake/users/a.parquet", 4, metadata)) == generation


def test_files_of_others_are_left_alone_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    store = Bucket()
    foreign = "lake/users/f-99999999990000000100000001.parquet"  # a token of another table
    for key in (*ADOPTABLE, foreign):
        store.put(key, b"PAR1", {GENERATION_METADATA: "5"})
    store.put("lake/users/unknown.parquet", b"PAR1")
    store.put("lake/users/c.csv", b"1", {GENERATION_METADATA: "5"})
    assert earlier_files(store, PATTERN, TABLE.final_root, TABLE.table_id) == list(ADOPTABLE)
    assert "1 file under lake/users/: named like this table's, but without ab-generation-id" in caplog.text
