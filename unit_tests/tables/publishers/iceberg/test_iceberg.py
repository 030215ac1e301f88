"""The Iceberg table of a table, in a catalog on sqlite: what other programs read through it after each kind of change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Operation

from destination_s3_spark.chain.files import GENERATION_METADATA, FileKind
from destination_s3_spark.errors import Fenced
from destination_s3_spark.schema.field_ids import FIELD_ID
from destination_s3_spark.tables.publishers.iceberg import table as iceberg_table
from destination_s3_spark.tables.publishers.publication import Publication, publication_of
from unit_tests.tables.publishers.iceberg.lake import MICROS, NAME, Lake, properties, warnings

ID = [("id", pa.int64())]
TIMES = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
PERSON = pa.struct([("name", pa.string()), ("age", pa.int64())])
EVERY_TYPE = [
    ("id", pa.int64()),
    ("text", pa.string()),
    ("flag", pa.bool_()),
    ("number", pa.float64()),
    ("price", pa.decimal128(12, 2)),
    ("amount", pa.decimal128(38, 9)),
    ("day", pa.date32()),
    ("moment", MICROS),
    ("person", PERSON),
    ("tags", pa.list_(pa.string())),
    ("people", pa.list_(PERSON)),
    ("order no", pa.string()),
]
FULL = {
    "id": 1,
    "text": "ü",
    "flag": True,
    "number": 1.5,
    "price": Decimal("-0.10"),
    "amount": Decimal("12345678901234567890.123456789"),
    "day": date(2026, 1, 2),
    "moment": TIMES,
    "person": {"name": "Ann", "age": 7},
    "tags": ["a", "b"],
    "people": [{"name": "Bob", "age": 8}],
    "order no": "A1",
}
EMPTY: dict[str, object] = {**dict.fromkeys(name for name, _ in EVERY_TYPE), "id": 2}


@pytest.fixture
def lake(make_table: Callable[..., Any], tmp_path: Path) -> Lake:
    return Lake(make_table(), tmp_path)


@pytest.mark.usefixtures("served_settings")  # Polars has a client of its own
def test_values_of_every_type_are_read_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    lake.synced(1, EVERY_TYPE, FULL, EMPTY)
    names = tuple(name for name, _ in EVERY_TYPE)

    # pyiceberg 0.12 reads a null list of objects as an empty one.
    assert lake.rows(*names) == [FULL, EMPTY | {"people": []}]
    assert [row["_airbyte_extracted_at"] for row in lake.rows("_airbyte_extracted_at")] == 2 * [datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)]
    options = properties(lake.table.settings)
    assert polars.scan_iceberg(lake.iceberg(), storage_options=options).select(names).sort("id").collect().to_dicts() == [FULL, EMPTY]
    arrow = lake.iceberg().scan().to_arrow()
    assert duckdb.from_arrow(arrow).project('id, person.age, "order no", people[1].name').order("id").fetchall() == [
        (1, 7, "A1", "Bob"),
        (2, None, None, None),
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "id = 1",
        "id < 2",
        "text = 'ü'",
        "flag = true",
        "number > 1.0",
        "day = '2026-01-02'",
        "moment = '2026-11-20T12:00:00.123456+00:00'",
        "person.age = 7",
        "text is not null",
    ],
)
def test_filters_find_the_row(lake: Lake, condition: str) -> None:
    lake.synced(1, EVERY_TYPE, FULL, EMPTY)

    assert lake.iceberg().scan(condition, selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
    found = lake.iceberg().scan("_airbyte_extracted_at = '2026-05-04T03:02:01+00:00'", selected_fields=("id",)).to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2]


def test_the_table_is_made_once_and_says_whose_it_is(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1})
    made = lake.iceberg()

    bucket = f"s3://{lake.table.settings.bucket}/"
    assert made.location() == f"{bucket}lake/shop/users"
    assert made.metadata_location.startswith(f"{bucket}lake/shop/users/_iceberg/")
    own = {name: value for name, value in made.properties.items() if name.startswith("airbyte.")}
    assert own == {
        "airbyte.table-id": f"{bucket}{lake.table.table.folder}",
        "airbyte.block": "2",
        "airbyte.block-time": own["airbyte.block-time"],
        "airbyte.snapshot-id": str(made.metadata.current_snapshot_id),
    }
    assert (made.properties["gc.enabled"], made.properties["commit.retry.num-retries"]) == ("false", "0")
    assert made.properties["write.metadata.metrics.default"] == "counts", "or Spark answers MIN and MAX with bounds"
    lake.synced(2, ID, {"id": 2})
    assert lake.iceberg().metadata.table_uuid == made.metadata.table_uuid
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]


def test_a_table_from_before_gets_the_properties_of_new_ones(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1})
    lake.iceberg().transaction().remove_properties("write.metadata.metrics.default").commit_transaction()
    lake.synced(2, ID, {"id": 2})

    assert lake.iceberg().properties["write.metadata.metrics.default"] == "counts"


def test_each_publish_is_one_snapshot_with_the_files_that_changed(lake: Lake) -> None:
    for sync_id in (1, 2, 3):
        lake.synced(sync_id, ID, {"id": sync_id})
    writer = lake.session(4)
    schema = lake.set_schema(writer, 0, ID)
    merged = lake.merge(writer, schema, {"id": 9})
    writer.close()

    table = lake.iceberg()
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    assert [(summary["added-data-files"], summary.get("deleted-data-files")) for summary in summaries if summary] == [
        ("1", None),
        ("1", None),
        ("1", None),
        ("1", "3"),
    ]
    operations = [summary.operation for summary in summaries if summary]
    assert operations == [Operation.APPEND, Operation.APPEND, Operation.APPEND, Operation.OVERWRITE], "streams read appends alone"
    assert lake.paths() == {merged.key} == lake.live()
    assert lake.rows("id") == [{"id": 9}]
    assert table.properties["airbyte.block"] == str(writer.state.sequence_number - 1 if writer.state else None), "the block before Close"


def test_new_columns_and_members_are_null_in_older_files(lake: Lake) -> None:
    person, grown = pa.struct([("name", pa.string())]), pa.struct([("name", pa.string()), ("age", pa.int64())])
    lake.synced(
        1, [("id", pa.int64()), ("who", person), ("them", pa.list_(person))], {"id": 1, "who": {"name": "a"}, "them": [{"name": "b"}]}
    )
    later = [("id", pa.int64()), ("who", grown), ("them", pa.list_(grown)), ("more", pa.float64())]
    lake.synced(2, later, {"id": 2, "who": {"name": "c", "age": 3}, "them": [{"name": "d", "age": 4}], "more": 0.5}, schema_id=1)

    assert lake.rows("id", "who", "them", "more") == [
        {"id": 1, "who": {"name": "a", "age": None}, "them": [{"name": "b", "age": None}], "more": None},
        {"id": 2, "who": {"name": "c", "age": 3}, "them": [{"name": "d", "age": 4}], "more": 0.5},
    ]
    assert len(lake.iceberg().metadata.schemas) == 2


def test_a_type_that_changes_in_place_is_published_with_the_rewrite(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.synced(1, [("id", pa.int64()), ("amount", pa.float64())], {"id": 1, "amount": 1.5})
    writer = lake.session(2)
    schema = lake.set_schema(writer, 1, [("id", pa.int64()), ("amount", pa.string())], retyped=["amount"])
    lake.append(writer, schema, {"id": 2, "amount": "x"})
    state, live = writer.state, writer.live_files()
    assert state is not None
    found = publication_of(lake.publisher(), lake.table.store, state, live)
    assert found.refusal is not None
    assert found.refusal.startswith("Files with columns of an earlier type are live.")
    assert lake.rows("id", "amount") == [{"id": 1, "amount": 1.5}]
    lake.merge(writer, schema, {"id": 1, "amount": "1.5"}, {"id": 2, "amount": "x"})
    writer.close()

    assert lake.rows("id", "amount") == [{"id": 1, "amount": "1.5"}, {"id": 2, "amount": "x"}]
    assert lake.iceberg().scan("amount = 'x'").to_arrow().num_rows == 1
    assert warnings(caplog) == []


def test_a_refresh_replaces_all_rows(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1}, {"id": 2})
    writer = lake.session(2)
    schema = lake.set_schema(writer, 0, ID)
    file = lake.table.stage(writer, FileKind.FINAL, lake.table.rows(schema, {"id": 7}))
    writer.replace([file], writer.live_files().of(FileKind.FINAL))
    writer.close()

    assert lake.rows("id") == [{"id": 7}]
    assert lake.paths() == lake.live()


def test_a_table_without_rows_is_an_empty_iceberg_table(lake: Lake) -> None:
    writer = lake.session(1)
    lake.set_schema(writer, 0, ID)
    writer.close()

    assert lake.rows("id") == []
    assert lake.iceberg().properties["airbyte.block"] == "1"


def test_a_table_without_columns_is_not_published_and_not_behind(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    writer = lake.session(1)
    writer.open()
    writer.close()

    assert not lake.catalog().namespace_exists("shop")
    assert warnings(caplog) == []


def test_an_idle_sync_makes_a_dropped_table_again(lake: Lake) -> None:
    lake.synced(1, ID, {"id": 1})
    lake.catalog().drop_table(NAME)
    lake.session(2).close()

    assert lake.rows("id") == [{"id": 1}]


@pytest.mark.parametrize("adopted", [True, False])
def test_files_of_destination_s3_are_refused_until_a_refresh(lake: Lake, adopted: bool, caplog: pytest.LogCaptureFixture) -> None:
    table = lake.table
    if adopted:
        key = f"{table.table.final_root}2026_01_01_1.parquet"
        table.store.put(key, b"", {GENERATION_METADATA: "0"})
        table.table = type(table.table)(table.table.stream, table.table.table_id, table.table.folder, table.table.final_root, lambda: [key])
    writer = lake.session(1)
    schema = lake.set_schema(writer, 0, ID) if adopted else table.set_schema(writer, 0, ID)
    lake.append(writer, schema, {"id": 1})
    writer.close()
    (warning,) = warnings(caplog)
    reason = "1 live files come from destination-s3" if adopted else "The table's files have timestamps in milliseconds"
    assert f"table shop.users is not published for iceberg: {reason}" in warning

    writer = lake.session(2)
    schema = lake.set_schema(writer, 1, ID, retyped=["_airbyte_extracted_at"])
    file = table.stage(writer, FileKind.FINAL, table.rows(schema, {"id": 7}))
    live = writer.live_files()
    old = [*live.of(FileKind.FINAL)]
    gone = [type(old[0])(FileKind.ADOPTED, key, 0, 0) for key in live.adopted]
    writer.replace([file], [*old, *gone])
    writer.close()
    assert lake.rows("id") == [{"id": 7}]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.list_(pa.struct([("at", pa.time64("us"))]))], ids=["column", "member"])
def test_times_of_day_need_integers(lake: Lake, kind: pa.DataType, caplog: pytest.LogCaptureFixture) -> None:
    lake.synced(1, [("id", pa.int64()), ("opens", kind)], {"id": 1})

    (warning,) = warnings(caplog)
    assert "TIME columns, and this one has opens. Set format.time_encoding to int64 and run a refresh" in warning


def test_times_of_day_as_integers_are_published(lake: Lake) -> None:
    writer = lake.session(1)
    columns = [("id", pa.int64()), ("opens", pa.time64("us"))]
    stored = lake.set_schema(writer, 0, columns, encodings={"extractedAt": "micros", "time": "int64"})
    stored = stored.set(stored.get_field_index("opens"), stored.field("opens").with_type(pa.int64()))
    lake.append(writer, stored, {"id": 1, "opens": 5})
    writer.close()

    assert lake.rows("id", "opens") == [{"id": 1, "opens": 5}]


def test_files_of_another_format_are_refused(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    writer = lake.session(1)
    lake.set_schema(writer, 0, ID)
    lake.table.commit(writer, lake.table.stage(writer, FileKind.FINAL, b"id\n1\n", ".csv"))
    writer.close()

    (warning,) = warnings(caplog)
    assert "Live files of the table are not Parquet, for example 'lake/shop/users/0-" in warning


def test_keys_with_any_characters_are_read(lake: Lake, make_table: Callable[..., Any]) -> None:
    odd = Lake(make_table("shop", "ü b%20+1"), lake.folder)
    odd.synced(1, ID, {"id": 1})

    assert odd.rows("id") == [{"id": 1}]


def test_a_session_that_was_overtaken_shows_nothing_older(lake: Lake) -> None:
    first = lake.session(1)
    schema = lake.set_schema(first, 0, ID)
    lake.append(first, schema, {"id": 1})
    second = lake.session(2)
    lake.append(second, lake.set_schema(second, 0, ID), {"id": 2})
    second.close()
    shown = lake.iceberg().metadata.snapshots
    with pytest.raises(Fenced):
        first.close()

    assert lake.iceberg().metadata.snapshots == shown
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]


def test_a_late_commit_of_an_overtaken_session_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older session has loaded the table and is paused before its commit."""
    first = lake.session(1)
    lake.append(first, lake.set_schema(first, 0, ID), {"id": 1})
    commit = iceberg_table._Change.commit
    newest: list[Any] = []

    def paused(change: Any) -> None:
        if not newest:
            newest.append(None)
            second = lake.session(2)
            lake.merge(second, lake.set_schema(second, 0, ID), {"id": 2})
            second.close()
            newest.append(lake.iceberg().metadata.snapshots)
        commit(change)

    monkeypatch.setattr(iceberg_table._Change, "commit", paused)
    with pytest.raises(Fenced):
        first.close()

    assert lake.iceberg().metadata.snapshots == newest[1]
    assert lake.rows("id") == [{"id": 2}]


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_without_an_answer_is_looked_up(lake: Lake, arrived: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.synced(1, ID, {"id": 1})
    commit = iceberg_table._Change.commit
    asked = []

    def unanswered(change: Any) -> None:
        asked.append(arrived)
        if arrived or len(asked) > 1:
            commit(change)
        if len(asked) == 1:
            raise CommitStateUnknownException("504")

    monkeypatch.setattr(iceberg_table._Change, "commit", unanswered)
    lake.synced(2, ID, {"id": 2})

    assert len(asked) == (1 if arrived else 2)
    assert lake.rows("id") == [{"id": 1}, {"id": 2}]
    assert len(lake.iceberg().snapshots()) == 2


def test_a_table_that_others_change_all_the_time_is_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: Any) -> None:
        raise CommitFailedException("Requirement failed: branch main has changed")

    monkeypatch.setattr(iceberg_table._Change, "commit", refused)
    lake.synced(1, ID, {"id": 1})

    (warning,) = warnings(caplog)
    assert "refused 4 commits in a row" in warning


def test_the_table_of_a_chain_that_was_removed_is_brought_up_to_date(lake: Lake) -> None:
    for sync_id in (1, 2, 3):
        lake.synced(sync_id, ID, {"id": sync_id})
    table = lake.table
    table.store.delete([found.key for found in table.store.list("lake/") if "/_iceberg/" not in found.key])
    lake.synced(4, ID, {"id": 4})

    assert lake.rows("id") == [{"id": 4}]


def test_a_sync_that_published_is_current_for_inspect(lake: Lake) -> None:
    writer = lake.synced(1, ID, {"id": 1})
    assert writer.state is not None

    assert publication_of(lake.publisher(), lake.table.store, writer.state, writer.live_files()) == Publication("iceberg", 2)


def test_old_snapshots_go_with_their_manifests_and_the_table_stays_readable(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "SNAPSHOTS_KEPT", timedelta(0))
    for sync_id in range(1, 6):
        lake.synced(sync_id, ID, {"id": sync_id})

    table = lake.iceberg()
    assert len(table.snapshots()) == 1
    used = {manifest.manifest_path for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)}
    used |= {snapshot.manifest_list for snapshot in table.snapshots()}
    bucket = f"s3://{lake.table.settings.bucket}/"
    avro = {f"{bucket}{found.key}" for found in lake.table.store.list("lake/") if found.key.endswith(".avro")}
    assert avro == used
    assert lake.rows("id") == [{"id": number} for number in range(1, 6)]


def test_many_publishes_leave_few_manifests(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "MANIFESTS_TO_MERGE", 4)
    for sync_id in range(1, 10):
        lake.synced(sync_id, ID, {"id": sync_id})
    table = lake.iceberg()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 4
    assert lake.rows("id") == [{"id": number} for number in range(1, 10)]

    writer = lake.session(10)
    lake.merge(writer, lake.set_schema(writer, 0, ID), {"id": 0})
    writer.close()
    lake.synced(11, ID, {"id": 1})
    table = lake.iceberg()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert all(one.has_added_files() or one.has_existing_files() for one in snapshot.manifests(table.io))
    assert lake.rows("id") == [{"id": 0}, {"id": 1}]


def test_files_and_catalog_have_the_field_ids_of_the_chain(lake: Lake) -> None:
    """Also after a member has come, and a column has been given another type and the old one again: no id is used twice."""
    grown = pa.struct([("email", pa.string()), *PERSON])
    seen = []
    for number, person, kind in ((0, PERSON, pa.int64()), (1, grown, pa.int64()), (2, grown, pa.string()), (3, grown, pa.int64())):
        columns = [("people", pa.list_(person)), ("id", kind)]
        writer = lake.session(number + 1)
        schema = lake.set_schema(writer, number, columns, **({"retyped": ["id"]} if number >= 2 else {}))
        lake.merge(writer, schema, {"people": [], "id": number if kind == pa.int64() else "x"})
        writer.close()
        (key,) = lake.live()
        shown = lake.iceberg().schema()
        seen.append({shown.find_column_name(number): number for number in shown.field_ids})
        assert ids_of(pq.read_schema(pa.BufferReader(lake.table.store.get(key)))) == seen[-1]

    names = ("people", "people.element", "people.element.name", "people.element.email", "id")
    first, second, third, fourth = ({name: found.get(name) for name in names} for found in seen)
    assert first["people.element.email"] is None
    assert {**first, "people.element.email": second["people.element.email"]} == second
    assert len({first["id"], third["id"], fourth["id"], *filter(None, second.values())}) == 7
    assert {**second, "id": third["id"]} == third
    assert {**second, "id": fourth["id"]} == fourth


def ids_of(schema: pa.Schema) -> dict[str, int]:
    """The field ids of a file's columns, by the paths that Iceberg gives them."""
    found: dict[str, int] = {}

    def walk(field: pa.Field[Any], path: str) -> None:
        found[path] = int((field.metadata or {})[FIELD_ID])
        for child in (field.type.field(index) for index in range(field.type.num_fields)):
            walk(child, f"{path}.{'element' if pa.types.is_list(field.type) else child.name}")

    for column in schema:
        walk(column, column.name)
    return found
