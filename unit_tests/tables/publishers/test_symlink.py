from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.state import Pending
from destination_s3_spark.config.config import Config
from destination_s3_spark.errors import ConfigError, Fenced
from destination_s3_spark.storage.credentials import arrow_filesystem
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.tables.configured import rules
from destination_s3_spark.tables.publishers.publication import Publisher, publication_of
from destination_s3_spark.tables.publishers.registry import publishers_of, require_publishable
from destination_s3_spark.tables.publishers.symlink import (
    MANIFEST,
    OWNER_METADATA,
    SEQUENCE,
    SymlinkManifest,
    published_keys,
)
from unit_tests.cases import each
from unit_tests.lake.memory_client import bucket_of

COLUMNS = [("id", pa.int64())]
TEMPLATE = PathTemplate("lake", None, None, datetime(2026, 1, 1, tzinfo=UTC), 0)
OWN_FOLDERS = {StreamId("shop", "users"): "lake/shop/users/", StreamId("shop", "orders"): "lake/shop/orders/"}
ONE_IN_THE_OTHER = {StreamId("a", "b"): "lake/a/b/", StreamId(None, "a"): "lake/a/", StreamId("shop", "orders"): "lake/shop/orders/"}


def config(**options: Any) -> Config:
    base = {"s3_bucket_name": "b", "s3_bucket_path": "lake", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**base, **options})


def entry(kind: FileKind, key: str, offset: int | None = None) -> FileEntry:
    return FileEntry(kind, key, 1, 1, offset=offset)


@pytest.fixture
def table(make_table: Callable[..., Any]) -> Any:
    return make_table()


def session(table: Any, sync_id: int) -> Any:
    return table.writer(sync_id, publishers=[SymlinkManifest(table.settings.bucket)])


def manifest(table: Any) -> list[str]:
    return table.store.get(table.table.final_root + MANIFEST).decode().splitlines()


def sequence(table: Any) -> int:
    return int(table.store.head(table.table.final_root + MANIFEST).metadata[SEQUENCE])


def append(table: Any, writer: Any, *ids: int) -> None:
    schema = table.set_schema(writer, 0, COLUMNS)
    rows = table.rows(schema, *({"id": number} for number in ids))
    table.commit(writer, table.stage(writer, FileKind.FINAL, rows), table.stage(writer, FileKind.RAW, rows))


def ids_through_the_manifest(table: Any) -> list[int]:
    """What an engine sees: the rows of the listed files."""
    listed = [key.removeprefix("s3://") for key in manifest(table)]
    found = ds.dataset(listed, filesystem=arrow_filesystem(table.settings), format="parquet").to_table(columns=["id"])
    return sorted(row[0] for row in duckdb.from_arrow(found).fetchall())


def test_only_published_final_files_and_adopted_ones_are_listed_in_order() -> None:
    kinds = [FileKind.RAW, FileKind.DELTA, FileKind.STATE, FileKind.TOMBSTONE]
    live = LiveFiles(
        adopted=("t/b.parquet",),
        files=(
            entry(FileKind.FINAL, "t/c.parquet"),
            entry(FileKind.FINAL, "t/a.parquet"),
            *(entry(kind, f"t/{kind.value}") for kind in kinds),
        ),
        dropped=(entry(FileKind.FINAL, "t/given-up.parquet"),),
    )

    assert published_keys(live) == ["t/a.parquet", "t/b.parquet", "t/c.parquet"]


def test_a_pending_generation_is_not_listed() -> None:
    files = (entry(FileKind.FINAL, "t/old.parquet", offset=0), entry(FileKind.FINAL, "t/new.parquet", offset=10))

    assert published_keys(LiveFiles(files=files, pending=Pending(2, 10, 1))) == ["t/old.parquet"]


def test_the_manifest_of_a_closed_table_lists_the_rows_there_are(table: Any) -> None:
    writer = session(table, 1)
    append(table, writer, 1, 2)
    append(table, writer, 3)
    writer.close()

    assert ids_through_the_manifest(table) == [1, 2, 3]
    assert all(line.startswith(f"s3://{table.settings.bucket}/lake/shop/users/0-") for line in manifest(table))
    assert table.store.get(table.table.final_root + MANIFEST).endswith(b".parquet\n")


def test_a_merge_replaces_the_manifest_before_the_old_files_go(table: Any) -> None:
    first = session(table, 1)
    append(table, first, 1)
    first.close()
    old = table.table.final_root
    second = session(table, 2)
    second.open()
    removed = second.live_files().of(FileKind.FINAL)
    schema = table.set_schema(second, 0, COLUMNS)
    merged = table.stage(second, FileKind.FINAL, table.rows(schema, {"id": 1}, {"id": 2}))
    memory = bucket_of(table.settings)
    memory.forget()
    second.merge([merged], removed, None)

    calls = [(call.action, call.key.rpartition("/")[2]) for call in memory.calls]
    names = [operation for operation, _ in calls]
    assert names.index("CompleteMultipartUpload") < calls.index(("PutObject", "manifest")) < names.index("DeleteObjects")
    assert manifest(table) == [f"s3://{table.settings.bucket}/{merged.key}"]
    assert merged.key.startswith(old)
    assert sequence(table) == second.state.sequence_number


def test_a_table_without_files_has_an_empty_manifest(table: Any) -> None:
    writer = session(table, 1)
    writer.open()
    writer.close()

    assert table.store.get(table.table.final_root + MANIFEST) == b""


def test_a_fenced_writer_that_published_an_older_state_says_so_and_the_newer_one_shows_again_at_its_close(table: Any) -> None:
    first = session(table, 1)
    append(table, first, 1)
    second = session(table, 2)
    append(table, second, 2)
    with pytest.raises(Fenced):
        first.close()
    second.close()

    assert ids_through_the_manifest(table) == [1, 2]


@pytest.mark.parametrize(("stored", "current"), [(None, False), ({SEQUENCE: "1"}, False), ({SEQUENCE: "2"}, True)])
def test_a_manifest_is_current_when_it_is_not_older_than_the_last_data(table: Any, stored: dict[str, str] | None, current: bool) -> None:
    writer = session(table, 1)
    append(table, writer, 1)
    assert writer.state.last_data == 2
    if stored is not None:
        table.store.put(table.table.final_root + MANIFEST, b"", stored)

    found = publication_of(SymlinkManifest(table.settings.bucket), table.store, writer.state, writer.live_files())
    assert found.is_behind(writer.state.last_data) is not current


@pytest.mark.parametrize("metadata", [{}, {SEQUENCE: "x"}, {SEQUENCE: "0", OWNER_METADATA: "_raw__stream_orders"}])
def test_a_manifest_of_another_table_or_program_stays(table: Any, metadata: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    key = table.table.final_root + MANIFEST
    table.store.put(key, b"theirs", metadata)
    writer = session(table, 1)
    append(table, writer, 1)
    writer.close()

    assert table.store.get(key) == b"theirs"
    assert f"'{key}' is the manifest of another table or program, which is never overwritten" in caplog.text
    found = publication_of(SymlinkManifest(table.settings.bucket), table.store, writer.state, writer.live_files())
    assert "is never overwritten" in (found.refusal or "")


def test_parquet_tables_have_a_manifest_unless_it_is_switched_off() -> None:
    assert _shown(config(), OWN_FOLDERS, TEMPLATE).keys() == OWN_FOLDERS.keys()
    assert _shown(config(publish={"symlink": False}), OWN_FOLDERS, TEMPLATE) == {}


@each("other", ["CSV", "JSONL", "Avro"])
def test_tables_of_other_formats_have_none(other: str) -> None:
    options = config(format={"format_type": other}, publish={"symlink": True})
    require_publishable(options, ONE_IN_THE_OTHER, TEMPLATE)
    assert _shown(options, ONE_IN_THE_OTHER, TEMPLATE) == {}


def test_by_default_tables_that_share_a_folder_are_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "airbyte"):
        require_publishable(config(), ONE_IN_THE_OTHER, TEMPLATE)

    assert _shown(config(), ONE_IN_THE_OTHER, TEMPLATE).keys() == {StreamId("shop", "orders")}
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["a, a.b"]


def test_asked_for_by_name_tables_that_share_a_folder_are_an_error_naming_both() -> None:
    with pytest.raises(ConfigError, match=r"stream 'a' and stream 'a\.b' overlap.*switch publish\.symlink off"):
        require_publishable(config(publish={"symlink": True}), ONE_IN_THE_OTHER, TEMPLATE)


def _shown(config: Config, roots: Mapping[StreamId, str], template: PathTemplate) -> dict[StreamId, Sequence[Publisher]]:
    return {stream: found for stream, found in publishers_of(config, roots, template, rules(config)).items() if found}
