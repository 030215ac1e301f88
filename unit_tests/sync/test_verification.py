"""`verify` over real tables: nothing to say about sound ones, and a problem for every kind of damage."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from destination_s3_spark.chain import opening
from destination_s3_spark.chain.blocks import block_name, canonical
from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.hint import HINT_NAME
from destination_s3_spark.formats.file_statistics import KeyRange
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables.runs.keys import BOUND_BYTES
from destination_s3_spark.tables.verification import CheckedFooter, checked_footer, key_problems, order_problem
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import complete, records, state
from unit_tests.sync.logged_lake import cdc_catalog, send_five

Make = Callable[..., Lake]


@pytest.fixture
def make_lake(s3_settings: S3Settings, tmp_path: Path) -> Make:
    """A lake with a table of four syncs."""

    def make(key: str | None, **options: object) -> Lake:
        chosen = {"format": options.pop("format")} if "format" in options else {}
        lake = Lake(s3_settings, tmp_path, options=options, **chosen)  # type: ignore[arg-type]
        for number in range(4):
            send_five(lake, number, key)
        return lake

    return make


def keys(lake: Lake, part: str) -> list[str]:
    return [info.key for info in lake.store.list("lake/") if part in info.key]


@pytest.mark.parametrize("key", [None, "id"])
@pytest.mark.parametrize("kind", ["Parquet", "CSV"])
def test_a_sound_table_has_no_problems(make_lake: Make, key: str | None, kind: str) -> None:
    lake = make_lake(key, format={"format_type": kind, **({"flattening": "Root level flattening"} if kind == "CSV" else {})})
    result = lake.verified()

    assert result.problems == ()
    assert result.blocks > 12
    assert result.rows == (8 if key else 20)
    assert (result.remarks == ()) == (kind == "Parquet")


@pytest.mark.parametrize("key", [None, "id"])
def test_a_chain_with_snapshots_has_none(make_lake: Make, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    monkeypatch.setattr(opening, "SNAPSHOT_EVERY", 4)
    lake = make_lake(key, tables={"raw_retention_days": 1, "compaction": "on"})
    send_five(lake, 5, key)

    assert lake.verified().problems == ()
    rewritten(lake, max(snapshots(lake)), lambda block: block["event"]["files"].pop())  # type: ignore[index]
    assert "a Snapshot carries the fold of the blocks before it" in lake.verified().problems[0]


def snapshots(lake: Lake) -> list[int]:
    blocks = [json.loads(lake.store.get(key)) for key in keys(lake, "/chain/") if not key.endswith(HINT_NAME)]
    return [block["sequenceNumber"] for block in blocks if block["event"]["kind"] == "Snapshot"]


def test_a_refreshed_table_and_one_with_a_change_log_have_none(make_lake: Make) -> None:
    lake = make_lake("id", change_log={"enabled": True})
    send_five(lake, 5, "id", generation=2)
    send_five(lake, 6, "id", generation=2)

    assert lake.verified().problems == ()


def test_a_table_whose_rows_are_all_deleted_has_none(make_lake: Make) -> None:
    lake = make_lake("id")
    for mode_key in ("id", None):  # deduplicated, then appended to
        deleted = {"_ab_cdc_lsn": 9, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
        sent = records(({"id": row, **deleted} for row in range(8)), emitted_at=2)
        lake.sync(cdc_catalog(key=mode_key), [sent, state(9), complete()])

        assert lake.verified().rows == (0 if mode_key else 8)
        assert lake.verified().problems == ()


def test_files_that_stay_for_a_while_are_a_remark(make_lake: Make) -> None:
    lake = make_lake("id", publish={"keep_replaced_minutes": 60})
    result = lake.verified()

    assert result.problems == ()
    (remark,) = result.remarks
    assert re.fullmatch(r"\d replaced files stay for running queries \(publish\.keep_replaced_minutes\), the last until .* UTC", remark)


def test_a_hint_that_says_something_else_than_the_chain_is_a_problem(make_lake: Make) -> None:
    lake = make_lake(None)
    store = lake.store
    (key,) = keys(lake, HINT_NAME)
    whole = store.get(key)
    for change in (
        lambda known: known["state"]["contents"].update(nextOffset=10**9),
        lambda known: known["state"].update(epoch=7),
        lambda known: known["state"].update(sequenceNumber=99),
        lambda known: known["live"]["files"].pop(),
        lambda known: known["live"]["files"][0].update(rows=4),
        lambda known: known["live"].update(dropped=[known["live"]["files"].pop()]),
    ):
        hint = json.loads(whole)
        change(hint["known"])
        hint["checksum"] = hashlib.sha256(canonical(hint["known"])).hexdigest()
        store.put(key, canonical(hint))

        assert any(key in problem for problem in lake.verified().problems)
    store.put(key, whole)
    assert lake.verified().problems == ()


def test_a_raw_table_that_lacks_rows_is_a_remark(make_lake: Make) -> None:
    lake = make_lake(None, tables={"raw_tables": False})
    result = lake.verified()

    assert result.problems == ()
    assert result.remarks == ("the raw table has 0 of the 20 records that came in",)


def gone(store: S3Store, key: str) -> None:
    store.delete([key])


def cut(store: S3Store, key: str) -> None:
    store.put(key, store.get(key)[:-1])


def copied(store: S3Store, key: str) -> None:
    """An object with a name of this table that no block knows."""
    head, _, digits = key.removesuffix(".parquet").rpartition("-")
    store.put(f"{head}-{int(digits) + 99:026d}.parquet", store.get(key))


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("folder", ["lake/users/", "/raw/"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (gone, "is gone"),
        (cut, "has another size than the one that was written"),
        (copied, "is not part of the table, but in its folders"),
    ],
)
def test_a_file_that_is_not_as_the_chain_says_is_a_problem(
    make_lake: Make, key: str | None, folder: str, damage: Callable[[S3Store, str], None], said: str
) -> None:
    lake = make_lake(key)
    target = next(found for found in keys(lake, folder) if found.endswith(".parquet"))
    damage(lake.store, target)

    assert any(said in problem for problem in lake.verified().problems), lake.verified()


def test_a_file_of_the_same_size_with_other_rows_is_a_problem(make_lake: Make) -> None:
    lake = make_lake(None)
    store = lake.store
    one = next(info.key for info in store.list("lake/users/") if info.key.endswith(".parquet"))
    store.put(one, bytes(len(store.get(one))))

    assert [problem for problem in lake.verified().problems if one in problem and "cannot be read" in problem]


def rewritten(lake: Lake, number: int, change: Callable[[dict[str, object]], object]) -> None:
    (key,) = keys(lake, f"/chain/{block_name(number)}")
    block = json.loads(lake.store.get(key))
    change(block)
    lake.store.put(key, json.dumps(block, separators=(",", ":"), sort_keys=True).encode())


def test_a_changed_missing_or_unreadable_block_is_a_problem(make_lake: Make) -> None:
    lake = make_lake(None)
    rewritten(lake, 3, lambda block: block.update(nonce="another"))
    assert any("block 4 breaks a rule" in problem and "prevBlockHash" in problem for problem in lake.verified().problems)

    store = lake.store
    (key,) = keys(lake, f"/chain/{block_name(3)}")
    store.put(key, b"{")
    assert any("block 3 cannot be read" in problem for problem in lake.verified().problems)

    store.delete([key])
    assert any("block 3 is missing" in problem for problem in lake.verified().problems)


def ranged(key: str, first: str, last: str, of: str = "k") -> CheckedFooter:
    return CheckedFooter(FileEntry(FileKind.FINAL, key, 10, 100, sorted_by=of), KeyRange(first, last, of))


def test_overlapping_ranges_of_keys_are_a_problem() -> None:
    def problems(*files: CheckedFooter) -> list[str]:
        return list(key_problems(files))

    long = "ab" * BOUND_BYTES
    assert problems(ranged("b", "20", "2f"), ranged("a", "10", "1f")) == []
    assert problems(ranged("b", "1f", "2f"), ranged("a", "10", "1f")) == ["a and b have overlapping ranges of keys"]
    assert problems(ranged("a", "10", "1f"), ranged("b", "10", "1f", of="another key")) == []
    assert problems(ranged("a", "10", long), ranged("b", long, "ff")) == []


def test_a_file_with_unsorted_keys_or_others_than_block_or_hint_say_is_a_problem() -> None:
    file, keys = ranged("a", "10", "2f").file, KeyRange("10", "2f", "k")
    firsts = [b"\x10", b"\x20"]
    assert order_problem(file, keys, firsts) is None
    assert order_problem(replace(file, keys=keys), keys, firsts) is None
    assert "other keys than the hint says" in (order_problem(replace(file, keys=KeyRange("11", "2f", "k")), keys, firsts) or "")
    for wrong in ((file, keys, firsts[::-1]), (file, keys, [b"\x10", b"\x30"]), (replace(file, sorted_by="other"), keys, firsts)):
        assert "is not sorted by the key that its block says" in (order_problem(*wrong) or "")


def test_a_block_that_counts_other_rows_than_its_file_is_a_problem(make_lake: Make) -> None:
    lake = make_lake(None)
    store = lake.store
    target, other = [key for key in keys(lake, "lake/users/") if key.endswith(".parquet")][:2]
    rows = pq.read_table(pa.BufferReader(store.get(target)))
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables([rows, rows]), sink)
    assert other != target
    # Only the footer tells: the sizes in the chain are those of the object.
    entry = next(file for file in lake.live(FileKind.FINAL) if file.key == target)
    store.put(target, sink.getvalue())

    assert checked_footer(store, replace(entry, bytes=len(sink.getvalue()))).problem == f"{target} has 10 rows, its block says 5"


def test_a_damaged_or_missing_hint_is_a_remark(make_lake: Make) -> None:
    lake = make_lake(None)
    store = lake.store
    (hint,) = keys(lake, HINT_NAME)
    store.put(hint, b"{}")
    assert (lake.verified().problems, lake.verified().remarks) == ((), ("the hint is damaged; readers ignore it",))

    store.delete([hint])
    assert (lake.verified().problems, lake.verified().remarks) == ((), ("there is no hint; the next sync writes one",))


def test_the_command_says_what_was_read_and_what_is_wrong(make_lake: Make) -> None:
    lake = make_lake(None)
    connector = lake.connector()

    sound = connector.run("verify")
    assert (sound.exit_code, sound.text) == (0, "[1/1] users: all is well. 13 blocks, 8 files, 20 rows\n")

    target = next(key for key in keys(lake, "lake/users/") if key.endswith(".parquet"))
    gone(lake.store, target)
    damaged = connector.run("verify", "--stream", "users")
    assert damaged.exit_code == 1
    assert f"1 problem. 13 blocks, 8 files, 20 rows\n      {target} is gone\n" in damaged.text
