"""What readers see of a table while it is written and after a crash: through the log, through the manifest, and once it is repaired."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from destination_s3_spark import tables
from unit_tests.lake.contents import USERS
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Crash, Fate
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH, Outcome
from unit_tests.lake.shop import complete, record, state, stream, users
from unit_tests.lake.table_readers import download

CATALOG = catalog(stream())
MANIFEST = f"{BUCKET_PATH}/shop/users/_symlink_format_manifest/manifest"
FIRST_DATA_BLOCK = "/chain/" + f"{2:020d}"


def sync(connector: InlineConnector, *ids: int) -> Outcome:
    return connector.write(CATALOG, [*users(ids), state(max(ids)), complete()]).expect_success()


def ids_of(config: dict[str, Any]) -> list[int]:
    """The table as Python programs get it."""
    return sorted(tables.read(config, "users", "shop").to_table()["id"].to_pylist())


def manifest_keys(lake: Lake) -> list[str]:
    prefix = f"s3://{lake.bucket.name}/"
    return [line.removeprefix(prefix) for line in lake.bucket.read(MANIFEST).decode().splitlines()]


def ids_through_the_manifest(lake: Lake) -> list[int]:
    """The table as an engine gets it that reads the files of the manifest and nothing else."""
    paths = [str(path) for path in download(lake.bucket, manifest_keys(lake), lake.directory / "listed")]
    with duckdb.connect() as connection:
        return sorted(row[0] for row in connection.read_parquet(paths, union_by_name=True).select("id").fetchall())


def repair(connector: InlineConnector) -> str:
    """What the command prints."""
    outcome = connector.run("repair")
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.text


def test_the_log_reader_and_the_manifest_agree_with_the_table(lake: Lake) -> None:
    connector = lake.connector()
    sync(connector, 1, 2)
    sync(connector, 3)

    assert ids_of(connector.config()) == [1, 2, 3] == ids_through_the_manifest(lake)
    assert manifest_keys(lake) == sorted(lake.chains()[USERS].final_keys)
    metadata = lake.bucket.server.client().head_object(Bucket=lake.bucket.name, Key=MANIFEST)["Metadata"]
    assert int(metadata["ab-chain-sequence"]) == len(lake.chains()[USERS].blocks) - 2, "the block before Close"


def test_a_new_member_of_a_record_is_read_over_all_files(lake: Lake) -> None:
    def schema(*members: str) -> dict[str, Any]:
        address = {"type": "object", "properties": {member: {"type": "string"} for member in members}}
        return {"type": "object", "properties": {"id": {"type": "integer"}, "address": address}}

    connector = lake.connector()
    for number, members in enumerate([("street",), ("city", "street")]):
        message = record({"id": number, "address": dict.fromkeys(members, "x")})
        connector.write(catalog(stream(schema=schema(*members))), [message, complete()]).expect_success()

    rows = tables.read(connector.config(), "users", "shop").to_table(columns=["id", "address"]).sort_by("id").to_pylist()
    assert rows == [{"id": 0, "address": {"city": None, "street": "x"}}, {"id": 1, "address": {"city": "x", "street": "x"}}]


def test_after_a_crash_readers_see_whole_commits_and_repair_finishes_the_last_one(lake: Lake) -> None:
    lake.memory.hook = lambda call: Fate.CRASH_AFTER if call.action == "PutObject" and FIRST_DATA_BLOCK in call.key else None
    with pytest.raises(Crash):
        lake.sync(CATALOG, [*users(range(5)), state(4)])
    lake.memory.hook = None
    direct = lake.connector()
    assert ids_of(direct.config()) == [], "the block is there, its files are not"

    said = repair(direct)

    assert "shop.users: last commit finished, manifest written, left open for the next sync" in said
    assert ids_of(direct.config()) == [0, 1, 2, 3, 4] == ids_through_the_manifest(lake)
    assert "shop.users: nothing to do" in repair(direct)
    direct.write(CATALOG, [*users(range(5)), state(4), *users([5]), state(5), complete()]).expect_success()
    assert lake.ids() == [0, 1, 2, 3, 4, 5], "what was finished is recognised when it comes again"
    lake.verify_at_rest()


SHARED = catalog(stream("users"), stream("orders"))
MESSAGES = [*users([1]), *users([2], "orders"), complete(), complete("orders")]


def test_tables_in_one_folder_have_no_manifest_and_work_as_before(lake: Lake) -> None:
    outcome = lake.connector(s3_path_format="all/").write(SHARED, MESSAGES).expect_success()

    assert "no symlink manifest for tables that share a folder with another one: shop.orders, shop.users" in outcome.log_text
    assert [key for key in lake.bucket.list_keys() if "manifest" in key] == []
    assert lake.ids(USERS) == [1]


def test_manifests_asked_for_where_there_can_be_none_are_a_config_error(lake: Lake) -> None:
    connector = lake.connector(s3_path_format="all/", publish={"symlink": True})

    outcome = connector.write(SHARED, MESSAGES).expect_failure("config_error")

    assert "stream 'shop.orders' and stream 'shop.users' overlap" in outcome.error_message
    assert lake.bucket.list_keys() == []
