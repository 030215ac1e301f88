"""A connector that dies in a merge: readers see whole tables, old or new, and `repair` or the next sync clears up what is left over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from destination_s3_spark import tables
from integration_tests.connector import Connector
from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Call, S3Proxy, When, s3_proxy
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.histories import visible
from unit_tests.lake.messages import JsonObject, catalog
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, state, stream
from unit_tests.lake.table_readers import Row, download, read_pyarrow

FIELDS: JsonObject = {
    "id": {"type": "integer"},
    "round": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
}
STREAM = stream(schema={"type": "object", "properties": FIELDS}, mode="append_dedup", primary_key=[["id"]], cursor_field=["round"])
FINAL_ROOT = f"{BUCKET_PATH}/shop/users/"
Table: TypeAlias = list[tuple[int, int]]
"""(id, round it was last sent in) of each row, sorted."""


class MergeBlock:
    """The request that creates the block of a merge: the first one for a block after a run has become visible."""

    def __init__(self) -> None:
        self._landed = False

    def __call__(self, call: S3Call) -> bool:
        self._landed |= call.action == "CompleteMultipartUpload" and "/delta/" in call.key
        return self._landed and call.action == "PutObject" and "/chain/0" in call.key


COMPLETE = "CompleteMultipartUpload"
TOMBSTONES = "/tombstones/"
MOMENTS = {
    "while it merges": Fault("CreateMultipartUpload", FINAL_ROOT),
    "before the block": Fault(only=MergeBlock()),
    "after the block": Fault(only=MergeBlock(), when=When.AFTER),
    "between completes": Fault(COMPLETE, TOMBSTONES),
    "after the completes": Fault(COMPLETE, FINAL_ROOT, when=When.AFTER),
    "before the deletes": Fault("DeleteObjects"),
}
COMPLETED_BY_THEN = {"between completes": FINAL_ROOT, "after the completes": TOMBSTONES}
"""The other file of a merge's two, whose completion the kill waits for. They are completed side by side."""
COMMITTED = ("after the block", "between completes", "after the completes", "before the deletes")
"""The moments after which the merge is finished by whoever comes next."""
VISIBLE = ("after the completes", "before the deletes")
"""Those after which all new files are there; the manifest comes later."""
LISTED = ("before the deletes",)


@dataclass(frozen=True, slots=True)
class Death:
    """What readers saw after a kill: by folder, by manifest, by the chain and through the package; and then after `repair`.

    `old` and `new`: both tables.
    """

    old: Table
    new: Table
    folder: list[tuple[int, int]]
    manifest: Table
    chain: Table
    package: Table
    repaired: dict[str, Table]
    said: str
    left_over: list[str]


def messages(number: int) -> list[bytes]:
    """Two rows that change in every round, one that never does, one that is new, and the deletion of the one that was."""
    ids = [1, 2, 100 + number] if number else [1, 2, 3, 100]
    gone = [record({"id": 99 + number, "round": number, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"})] if number else []
    return [*(record({"id": one, "round": number}) for one in ids), *gone, state(number), complete()]


def table_after(number: int) -> Table:
    return [(1, number), (2, number), (3, 0), (100 + number, number)]


def as_table(rows: list[Row]) -> Table:
    return sorted((row["id"], row["round"]) for row in rows)


def wait_for_completion(proxy: S3Proxy, key_contains: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not any(call.action == COMPLETE and call.status == 200 and key_contains in call.key for call in proxy.calls):
        assert time.monotonic() < deadline, f"no file of {key_contains} was completed"
        time.sleep(0.01)


def killed_sync(connector: Connector, proxy: S3Proxy, moment: str, number: int) -> Outcome:
    fault = MOMENTS[moment]
    with connector.start(catalog(STREAM)) as sync:

        def kill(_: S3Call) -> None:
            if moment in COMPLETED_BY_THEN:
                wait_for_completion(proxy, COMPLETED_BY_THEN[moment])
            sync.kill()

        fault.status, fault.times, fault.effect = 0, 1, kill
        proxy.forget()
        proxy.inject(fault)
        outcome = sync.send(*messages(number)).end_input().finish()
    assert outcome.exit_code < 0, f"the fault never came: {outcome.describe()}"
    assert len(outcome.states) == 1, "the rows were committed before they were merged"
    return outcome


def look(lake: ProcessLake, connector: Connector, merged: int, number: int) -> Death:
    lake.verify()
    folder, chain = as_table(visible(lake, "shop")["users"]), as_table(lake.rows())
    shown, package = by_manifest(lake, number), by_package(connector)
    with connector.run("repair", config=connector.config()) as repair:
        repaired = repair.end_input().finish()
    assert repaired.exit_code == 0, repaired.stderr
    lake.verify()
    said = b"".join(repaired.lines).decode()
    left_over = [*lake.bucket.open_uploads(), *(key for key in lake.bucket.list_keys() if "/scratch/" in key)]
    now = {"folder": as_table(visible(lake, "shop")["users"]), "manifest": by_manifest(lake, number), "package": by_package(connector)}
    return Death(table_after(merged), table_after(number), folder, shown, chain, package, now, said, left_over)


def by_manifest(lake: ProcessLake, number: int) -> Table:
    """The rows of the files that the manifest lists."""
    return as_table(read_pyarrow(download(lake.bucket, lake.manifest() or [], lake.directory / f"manifest-{number}")))


def by_package(connector: Connector) -> Table:
    """The rows as Python programs get them."""
    return as_table(tables.read(connector.config(), "users", "shop").to_table(columns=["id", "round"]).to_pylist())


@pytest.fixture(scope="module")
def deaths(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Death]]:
    """A table whose every sync dies in its merge, each at another moment; the last one ends well."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("deaths"))
    with s3_proxy(moto.endpoint) as proxy:
        connector, direct = lake.connector(proxy.endpoint), lake.connector()
        direct.write(catalog(STREAM), messages(0)).expect_success()
        found, merged = {}, 0
        for number, moment in enumerate(MOMENTS, start=1):
            killed_sync(connector, proxy, moment, number)
            found[moment] = look(lake, direct, merged, number)
            merged = number if moment in COMMITTED else merged
        last = len(MOMENTS) + 1
        direct.write(catalog(STREAM), messages(last)).expect_success()
        lake.verify_at_rest()
        assert as_table(lake.rows()) == table_after(last)
        yield found


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reader_of_the_manifest_or_the_chain_sees_a_whole_table(deaths: dict[str, Death], moment: str) -> None:
    death = deaths[moment]
    assert death.manifest == (death.new if moment in LISTED else death.old)
    assert death.package == (death.new if moment in VISIBLE else death.old)
    assert death.chain in (death.old, death.new)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reader_of_the_folder_sees_committed_rows_only_and_misses_none(deaths: dict[str, Death], moment: str) -> None:
    death = deaths[moment]
    assert set(death.folder) <= {*death.old, *death.new}
    assert {1, 2, 3} <= {key for key, _ in death.folder}


@pytest.mark.parametrize("moment", MOMENTS)
def test_repair_finishes_a_merge_that_was_committed_and_takes_back_one_that_was_not(deaths: dict[str, Death], moment: str) -> None:
    death = deaths[moment]
    assert death.repaired == dict.fromkeys(("folder", "manifest", "package"), death.new if moment in COMMITTED else death.old)
    assert death.left_over == []
    assert "shop.users" in death.said
