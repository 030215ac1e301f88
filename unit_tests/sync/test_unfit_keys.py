"""Keys and cursors that do not fit their types, through whole syncs: in a deduplicated table no row goes for another key's sake."""

from __future__ import annotations

import gzip
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_s3_spark.tables.columns import row_plan
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import JsonObject, complete, records, schema_of, state, stream
from unit_tests.lake.messages import catalog as catalog_of

HUGE = [10**19 + number for number in range(6)]
DELETED = {"_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
PARQUET, AVRO = {"format_type": "Parquet"}, {"format_type": "Avro", "compression_codec": {"codec": "no compression"}}
JSONL = {"format_type": "JSONL", "compression": {"compression_type": "No Compression"}}
CSV = {"format_type": "CSV", "flattening": "Root level flattening", "compression": {"compression_type": "No Compression"}}
Data = Mapping[str, Any]


def users(
    *key: str, id_type: str = "integer", mode: str = "append_dedup", cursor: str | None = None, generation: int = 1, minimum: int = 0
) -> JsonObject:
    properties = {
        "id": {"type": id_type},
        "day": {"type": "string", "format": "date"},
        "seen": {"type": "integer"},
        "note": {"type": "string"},
        "_ab_cdc_deleted_at": {"type": "string"},
    }
    ids: dict[str, Any] = {"generation": generation, "minimum_generation": minimum, "sync_id": generation}
    return catalog_of(stream(schema=schema_of(properties), mode=mode, key=key or ("id",), cursor=cursor or "", **ids))


def sync(lake: Lake, sent: Iterable[Data], at: int = 1, catalog: JsonObject | None = None, cursor: int | None = None) -> None:
    lake.sync(catalog or users(), [records(sent, emitted_at=at), state(at if cursor is None else cursor), complete()])


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The rows of the final table, whatever its format."""
    found: list[dict[str, Any]] = []
    for body in lake.files(".parquet"):
        found += pq.read_table(pa.BufferReader(body)).to_pylist()
    for body in lake.files(".avro"):
        found += fastavro.reader(io.BytesIO(body))
    for body in lake.files(".jsonl"):
        found += [{**json.loads(one), **json.loads(one)["_airbyte_data"]} for one in body.splitlines()]
    for body in lake.files(".csv"):
        names, *lines = (one.split(",") for one in body.decode().replace('"', "").splitlines())
        found += [dict(zip(reversed(names), reversed(one), strict=False)) for one in lines]
    return found


def notes(lake: Lake) -> list[str]:
    return sorted(row["note"] for row in rows(lake))


def huge(note: str, numbers: Sequence[int] = HUGE, **more: Any) -> list[Data]:
    return [{"id": number, "note": f"{note}{place}", **more} for place, number in enumerate(numbers)]


@pytest.mark.parametrize("options", [PARQUET, AVRO, JSONL, CSV], ids=lambda options: options["format_type"])
@pytest.mark.parametrize("raw_tables", [True, False])
def test_records_whose_keys_do_not_fit_are_told_apart_by_their_text(lake: Lake, options: dict[str, Any], raw_tables: bool) -> None:
    lake.format, lake.options = options, {"tables": {"raw_tables": raw_tables}}
    sync(lake, [*huge("a"), {"id": 1, "note": "fits"}, {"id": None, "note": "null"}])
    assert notes(lake) == ["a0", "a1", "a2", "a3", "a4", "a5", "fits", "null"]
    sync(lake, [*huge("b", HUGE[:3]), {"id": 1, "note": "fits too"}], at=2)
    assert notes(lake) == ["a3", "a4", "a5", "b0", "b1", "b2", "fits too", "null"]
    sync(lake, [{"id": HUGE[0], **DELETED}, {"id": None, "note": "nothing"}, {"note": "absent"}], at=3)
    assert notes(lake) == ["a3", "a4", "a5", "absent", "b1", "b2", "fits too"]
    sync(lake, huge("old", HUGE[:1]), at=2)
    assert notes(lake) == ["a3", "a4", "a5", "absent", "b1", "b2", "fits too"], "a deletion is remembered by the text, too"


def test_the_same_records_again_change_nothing(lake: Lake) -> None:
    for number in range(3):
        sync(lake, huge("a"), cursor=number)
        assert notes(lake) == [f"a{place}" for place in range(6)]


def test_rows_whose_key_does_not_fit_say_so_and_have_their_own_ids(lake: Lake) -> None:
    sync(lake, [*huge("a"), *huge("b"), {"id": 1, "note": "fits"}])
    found = {row["note"]: row for row in rows(lake)}
    change = {"field": "id", "change": "NULLED", "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}
    unfit = [found[f"b{place}"] for place in range(6)]
    assert [row["_airbyte_meta"]["changes"] for row in unfit] == [[change]] * 6
    assert {UUID(row["_airbyte_raw_id"]).version for row in unfit} == {8}
    assert UUID(found["fits"]["_airbyte_raw_id"]).version == 7
    raw_ids = [value for body in raw_files(lake) for value in pq.read_table(pa.BufferReader(body))["_airbyte_raw_id"].to_pylist()]
    assert len(set(raw_ids)) == 13
    assert {row["_airbyte_raw_id"] for row in found.values()} < set(raw_ids)


def raw_files(lake: Lake) -> list[bytes]:
    return lake.files(".parquet", stream="airbyte_internal/_raw__stream_users/raw")


def test_a_part_of_a_key_that_does_not_fit_keeps_rows_apart(lake: Lake) -> None:
    catalog = users("id", "day")
    days = ["2026-01-01", "2026-02-30", "soon", "later", None]
    sent = [{"id": number, "day": day, "note": f"{number}{day}"} for number in (1, 2, "x") for day in days]
    sync(lake, sent, catalog=catalog)
    assert notes(lake) == sorted(str(one["note"]) for one in sent)
    sync(lake, [{**one, "note": f"{one['note']}!"} for one in sent], at=2, catalog=catalog)
    assert notes(lake) == sorted(f"{one['note']}!" for one in sent)


def test_numbers_with_more_digits_than_a_double_are_told_apart(lake: Lake) -> None:
    catalog = users(id_type="number")
    numbers = (2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, -(2**53), "9007199254740995.0", 1.5)
    sent = [{"id": number, "note": str(number)} for number in numbers]
    for at in (1, 2):
        sync(lake, sent, at=at, catalog=catalog)
        assert notes(lake) == sorted(str(one["note"]) for one in sent)
    changes = {row["note"]: row["_airbyte_meta"]["changes"] for row in rows(lake)}
    rounded = {"field": "id", "change": "TRUNCATED", "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}
    odd = (str(2**53 + 1), str(-(2**53) - 1), "9007199254740995.0")
    assert changes == {str(one["note"]): [rounded] if one["note"] in odd else [] for one in sent}


def test_keys_of_text_that_is_no_unicode_are_told_apart(lake: Lake) -> None:
    catalog = users(id_type="string")
    sent = [{"id": text, "note": text.encode("unicode-escape").decode()} for text in ("\ud800", "\ud801", "\ufffd")]
    for at in (1, 2):
        sync(lake, sent, at=at, catalog=catalog)
        assert notes(lake) == ["\\ud800", "\\ud801", "\\ufffd"]


@pytest.mark.parametrize("raw_tables", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "of_landed"),
    [(users(mode="append"), users(generation=2), True), (users("id"), users("day", generation=2), False)],
    ids=["appended", "another key"],
)
def test_rows_of_a_table_that_was_not_told_apart_by_this_key_are_kept(
    lake: Lake, raw_tables: bool, before: JsonObject, after: JsonObject, of_landed: bool
) -> None:
    lake.options = {"tables": {"raw_tables": raw_tables}}
    sent = [{**one, "day": f"soon {number}"} for number, one in enumerate(huge("a", [*HUGE, 1, 2]))]
    sync(lake, sent, catalog=before)
    sync(lake, [{"id": 9, "day": "2026-01-01", "note": "z"}], at=2, catalog=after)
    assert notes(lake) == [*(f"a{place}" for place in range(8)), "z"]
    sync(lake, [{**sent[0], "note": "b0"}], at=3, catalog=after)
    # What the key was as text is only known of files that are as they landed, and beside the raw rows that landed with them.
    left = [f"a{place}" for place in range(1 if raw_tables and of_landed else 0, 8)]
    assert notes(lake) == [*left, "b0", "z"]
    sync(lake, [{**sent[0], "note": "c0"}], at=4, catalog=after)
    assert notes(lake) == [*left, "c0", "z"]


@pytest.mark.parametrize("options", [PARQUET, AVRO], ids=lambda options: options["format_type"])
def test_rows_that_an_earlier_version_merged_into_one_stay_and_newer_ones_stand_beside_them(
    lake: Lake, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.format = options
    with monkeypatch.context() as earlier:
        earlier.setattr(row_plan, "_key_of", lambda stream: ())
        sync(lake, [*huge("a"), {"id": 1, "note": "fits"}])
        assert notes(lake) == ["a5", "fits"]
    sync(lake, [*huge("b", HUGE[:2]), {"id": 1, "note": "still"}], at=2)
    assert notes(lake) == ["a5", "b0", "b1", "still"]
    sync(lake, huge("c", HUGE[1:3]), at=3)
    assert notes(lake) == ["a5", "b0", "c0", "c1", "still"]


def test_a_refresh_keeps_them_apart_too(lake: Lake) -> None:
    sync(lake, huge("a"))
    sync(lake, huge("b", HUGE[:4]), at=2, catalog=users(generation=2, minimum=2))
    assert notes(lake) == ["b0", "b1", "b2", "b3"]


def test_a_cursor_that_does_not_fit_is_less_than_any_other(lake: Lake) -> None:
    catalog = users(cursor="seen")
    sync(lake, [{"id": 1, "seen": 1, "note": "a"}, {"id": 2, "seen": 10**19, "note": "b"}], catalog=catalog)
    sync(lake, [{"id": 1, "seen": 10**19, "note": "c"}, {"id": 2, "seen": 10**19 + 1, "note": "d"}], at=2, catalog=catalog)
    assert notes(lake) == ["a", "d"]
    sync(lake, [{"id": 2, "seen": 0, "note": "e"}], at=1, catalog=catalog)
    assert notes(lake) == ["a", "e"]


def test_a_sync_warns_of_values_that_decide_and_do_not_fit(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "airbyte")
    catalog = users(cursor="seen")
    sync(lake, [*huge("a", HUGE[:2], seen=1), {"id": 3, "seen": "x"}, {"id": 4, "seen": 1, "day": "soon"}], catalog=catalog)
    apart = "null or changed in their rows, which are told apart by the key as the source sent it"
    older = "their records count as older than any with a cursor"
    assert [record.getMessage() for record in caplog.records if "do not fit" in record.getMessage()] == [
        f'stream users: the primary key field "id" has values that do not fit its type integer (2 of them): {apart}',
        f'stream users: the cursor field "seen" has values that do not fit its type integer (1 of them): {older}',
    ]


@pytest.mark.parametrize("options", [PARQUET, AVRO, JSONL], ids=lambda options: options["format_type"])
def test_a_change_log_tells_of_each_of_them(lake: Lake, options: dict[str, Any]) -> None:
    lake.format, lake.options = options, {"change_log": {"enabled": True, "format": "jsonl"}}
    sync(lake, huge("a"))
    sync(lake, [*huge("b", HUGE[:3]), {"id": HUGE[5], **DELETED}, {"id": 7 * 10**19, "note": "new"}], at=2)
    assert notes(lake) == ["a3", "a4", "b0", "b1", "b2", "new"]
    logged = [
        json.loads(one) for body in lake.files("-changes.jsonl.gz", stream="airbyte_changes") for one in gzip.decompress(body).splitlines()
    ]
    assert sorted((event["op"], event["new"].get("note")) for event in logged) == sorted(
        [*(("U", f"b{place}") for place in range(3)), ("D", None), ("I", "new")], key=str
    )


@pytest.mark.parametrize("partitions", [[], [{"stream": "users", "column": "day", "transform": "month"}]], ids=["whole", "partitions"])
def test_versions_of_keys_that_are_cut_are_those_of_the_rows_beside_them(lake: Lake, partitions: list[Data]) -> None:
    lake.options = {"tables": {"history": [{"stream": "*"}], "cdc_deletion_mode": "soft", "partition_by": partitions}}
    cut = [{"day": f"2026-01-01T0{hour}:00:00", "note": str(hour)} for hour in range(1, 4)]
    others = [{"day": "2026-01-01", "note": "fits"}, {"day": "2026-01-02", "note": "deleted", **DELETED}]
    sync(lake, [*cut, *others], catalog=users("day"))
    sync(lake, [{**cut[0], "note": "new"}, {"day": "2026-01-03", "note": "another"}], at=2, catalog=users("day"))
    sync(lake, [{**cut[1], **DELETED}], at=3, catalog=users("day"))
    assert notes(lake) == ["2", "3", "another", "deleted", "fits", "new"]
