"""Attacks on a bucket by whoever may write under `airbyte_internal/`, against syncs and commands: others' objects stay as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from destination_s3_spark.chain.blocks import block_hash, block_name, canonical
from destination_s3_spark.chain.files import GENERATION_METADATA, Token, table_number
from destination_s3_spark.cli import operator_command
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import S3Settings
from destination_s3_spark.tables import dataset
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog, complete, state, stream, users
from unit_tests.places import table_of

USERS, ORDERS = table_of("users"), table_of("orders")
HINT = f"{USERS.chain_prefix}hint.json"
PAYROLL = ["finance/payroll.parquet", "lake/finance/payroll.parquet", "lake/finance/_symlink_format_manifest/manifest"]
STARTED = "2026-01-01T00:00:00Z"


@pytest.fixture
def lake(s3_settings: S3Settings, tmp_path: Path) -> Lake:
    """Tables of users and orders, both with Delta logs, and objects of finance."""
    made = Lake(s3_settings, tmp_path, options={"publish": {"delta": True, "keep_replaced_minutes": 60}})
    for number in (1, 2):
        sync(made, number, "users", "orders")
    store = S3Store(s3_settings)
    for key in PAYROLL:
        store.put(key, b"secret", {GENERATION_METADATA: "0"} if "manifest" in key else {})
    store.put(f"{ORDERS.final_root}{Token(table_number(ORDERS.table_id), 9, 9)}.parquet", b"theirs")
    (tmp_path / "config.json").write_text(json.dumps(made.raw_config()))
    return made


def sync(lake: Lake, number: int, *streams: str) -> None:
    blocks = [block for name in streams for block in (*users(range(3), name), state(number, name), complete(name))]
    lake.sync(catalog(*map(stream, streams)), blocks)


class Others:
    """What is not the table's of users: it must be the same after an attack."""

    def __init__(self, lake: Lake, own: str = "") -> None:
        self._store = lake.store
        self._own = tuple(filter(None, (USERS.folder, USERS.final_root, own)))
        client, bucket = self._store.client, lake.settings.bucket
        self.uploads = [
            (key, client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"])
            for key in (f"{ORDERS.final_root}{Token(table_number(ORDERS.table_id), 99, 1)}.parquet", "finance/open.parquet")
        ]
        self.before = self._contents()

    def expect_untouched(self) -> None:
        assert self._contents() == self.before
        assert set(self.uploads) <= set(self._store.list_uploads(""))

    def _contents(self) -> dict[str, bytes]:
        return {info.key: self._store.get(info.key) for info in self._store.list("") if not info.key.startswith(self._own)}


def forged_hint(lake: Lake, change: Callable[[dict[str, Any]], None]) -> None:
    store = lake.store
    hint = json.loads(store.get(HINT))
    change(hint["known"])
    hint["checksum"] = hashlib.sha256(canonical(hint["known"])).hexdigest()
    store.put(HINT, canonical(hint))


def seed(folder: str, *more: dict[str, Any], **fields: Any) -> dict[str, bytes]:
    """The objects of a chain that begins with this Seed."""
    event = {"kind": "Seed", "syncId": 1, "generationId": 0, "startedAt": STARTED, "adopted": [], "pending": None, "formatVersion": 1}
    objects: dict[str, bytes] = {}
    digest = None
    for number, payload in enumerate(({**event, **fields}, *more)):
        block = {"format": 1, "sequenceNumber": number, "prevBlockHash": digest, "systemTime": STARTED, "epoch": 1, "nonce": "n"}
        body = canonical({**block, "settled": None, "event": payload})
        objects[f"{folder}chain/{block_name(number)}"] = body
        digest = block_hash(body)
    return objects


def named(stream: str, root: str, **more: Any) -> dict[str, Any]:
    table = table_of(stream)
    identity = {"stream": {"namespace": None, "name": stream}, "tableId": table.table_id, "tableNumber": table_number(table.table_id)}
    return {**identity, "finalRoot": root, **more}


def everything_to_delete(lake: Lake) -> list[str]:
    return [info.key for info in lake.store.list("") if not info.key.startswith((USERS.folder, USERS.final_root))]


def unsettled(keys: list[str], closed: bool) -> Callable[[dict[str, Any]], None]:
    def change(known: dict[str, Any]) -> None:
        now = known["state"]
        undo = {"voided": False, "files": [], "removed": keys, "checkpoints": 0, "before": now["contents"]}
        undo["sequenceNumber"] = now["lastData"]
        now |= {"closed": closed, "settled": None, "unsettled": undo}

    return change


def leaving(keys: list[str]) -> Callable[[dict[str, Any]], None]:
    def change(known: dict[str, Any]) -> None:
        known["state"]["contents"]["leaving"] = [{"until": STARTED, "keys": keys, "bytes": 0, "block": None}]

    return change


def listed(keys: list[str]) -> Callable[[dict[str, Any]], None]:
    def change(known: dict[str, Any]) -> None:
        for file in known["live"]["files"]:
            file["key"] = keys[0]

    return change


def rooted(_: list[str]) -> Callable[[dict[str, Any]], None]:
    def change(known: dict[str, Any]) -> None:
        known["state"]["identity"]["finalRoot"] = ORDERS.final_root
        known["state"]["lastData"] = 10**6
        known["live"]["files"] = []

    return change


HINTS = {
    "an unsettled block": lambda keys: unsettled(keys, closed=False),
    "an unsettled block of a closed table": lambda keys: unsettled(keys, closed=True),
    "files whose time is over": leaving,
    "files of others": listed,
    "another table's root": rooted,
}
COMMANDS = ["repair", "inspect", "verify"]


def run(lake: Lake, command: str) -> int:
    return operator_command([command, "--config", str(lake.directory / "config.json")])


@pytest.mark.parametrize("forgery", HINTS)
def test_a_forged_hint_is_no_way_to_other_objects(lake: Lake, forgery: str) -> None:
    others = Others(lake)
    ids = lake.ids_in_folder()
    for attempt in (*COMMANDS, "read", "write", "idle"):
        forged_hint(lake, HINTS[forgery](everything_to_delete(lake)))
        with suppress(DataError):
            if attempt == "read":
                found = dataset.read(lake.raw_config(), "users").to_table()
                assert sorted(found["id"].to_pylist()) == ids
            elif attempt in COMMANDS:
                code = run(lake, attempt)
                assert code == (1 if attempt == "verify" else 0), attempt
            else:
                lake.sync(catalog(stream()), [*(users([7]) if attempt == "write" else []), state(7), complete()])
        others.expect_untouched()

    assert set(ids) <= set(lake.ids_in_folder())


SEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a folder of finance": ("evil", named("evil", "lake/finance/", adopted=[PAYROLL[1]])),
    "a root outside of the bucket path": ("evil", named("evil", "finance/", adopted=[PAYROLL[0]])),
    "a folder of the connector": ("evil", named("evil", "lake/airbyte_internal/", adopted=[])),
    "another table's root": ("evil", named("evil", ORDERS.final_root)),
    "a folder in another table's root": ("evil", named("evil", f"{ORDERS.final_root}_delta_log/")),
    "another table's identity": ("evil", named("orders", ORDERS.final_root)),
    "another table's id": ("evil", {**named("evil", "lake/evil/"), "tableId": ORDERS.table_id}),
    "another table's number": ("evil", {**named("evil", "lake/evil/"), "tableNumber": table_number(ORDERS.table_id)}),
}


@pytest.mark.parametrize("forgery", SEEDS)
def test_a_chain_from_nothing_owns_nothing_of_others(lake: Lake, forgery: str, capsys: pytest.CaptureFixture[str]) -> None:
    stream, fields = SEEDS[forgery]
    folder = table_of(stream).folder
    store = lake.store
    removed = [{"kind": "adopted", "key": key, "rows": 0, "bytes": 0} for key in fields.get("adopted", ())]
    replace = {"kind": "ReplaceData", "schemaId": None, "syncId": 1, "generationId": 0, "files": [], "filesRemoved": removed}
    for key, body in seed(folder, *([replace] if removed else []), **fields).items():
        store.put(key, body)
    others = Others(lake, own=folder)
    for attempt in (*COMMANDS, "read", "write"):
        with suppress(DataError):
            if attempt in COMMANDS:
                # What a chain says about a folder that nobody claims can be shown, but not used.
                assert run(lake, attempt) == (0 if (attempt, forgery) == ("inspect", "a folder of finance") else 1), attempt
            elif attempt == "read":
                assert dataset.read(lake.raw_config(), "evil").to_table().num_rows == 0
            else:
                sync(lake, 7, "evil")
        others.expect_untouched()
        said = capsys.readouterr()
        if attempt in COMMANDS:
            assert stream in said.out + said.err
            assert "orders" in said.out


def test_one_damaged_folder_does_not_keep_commands_from_the_others(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.store.put(f"lake/airbyte_internal/zzz/chain/{block_name(0)}", b"{}")
    reason = f"lake/airbyte_internal/zzz/chain/{block_name(0)} is not the first block of a chain: it is damaged"
    for command in COMMANDS:
        assert run(lake, command) == 1
        said = capsys.readouterr()
        assert "users" in said.out
        assert "orders" in said.out
        assert reason in said.out + said.err
    assert operator_command(["verify", "--config", str(lake.directory / "config.json"), "--stream", "users"]) == 0
    sync(lake, 8, "users", "orders")


def test_a_damaged_chain_is_one_unread_table_of_inspect(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    store = lake.store
    store.delete([HINT])
    store.put(f"{USERS.chain_prefix}{block_name(1)}", b"{}")

    assert run(lake, "inspect") == 1
    said = capsys.readouterr()
    assert "orders" in said.out
    assert "users: The chain of table users" in said.err
