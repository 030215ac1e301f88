"""Which keys are a table's own, and the bucket as a table may use it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from destination_s3_spark.chain.files import GENERATION_METADATA, Token, table_number
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.state import Identity
from destination_s3_spark.chain.table_store import TableStore
from destination_s3_spark.errors import DataError
from destination_s3_spark.storage.object_store import ObjectRange, StagedUpload
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket
from unit_tests.places import table_of

TABLE = table_of("users", "shop")
OTHER = table_of("orders", "shop")
NUMBER, OTHERS = table_number(TABLE.table_id), table_number(OTHER.table_id)
OWN = f"f-{Token(NUMBER, 1, 1)}.parquet"
FOREIGN = f"f-{Token(OTHERS, 1, 1)}.parquet"
ADOPTED = "2026_01_01_1700000000000_0.parquet"
ROOT, FOLDER = TABLE.final_root, TABLE.folder
CHANGES = "lake/airbyte_changes/shop/users/"
VERSIONS = "lake/airbyte_history/shop/users/"

NAMED = [
    f"{ROOT}{OWN}",
    f"{ROOT}day=2026-01-01/{OWN}",
    f"{FOLDER}raw/{OWN}",
    f"{FOLDER}tombstones/{OWN}",
    f"{CHANGES}{Token(NUMBER, 1, 1)}-00000-changes.csv.gz",
    f"{CHANGES}{Token(NUMBER, 1, 1)}-manifest.json",
    f"{VERSIONS}1/current-{Token(NUMBER, 1, 1)}.parquet",
    f"{VERSIONS}12/closed-{Token(NUMBER, 1, 1)}.parquet",
]
USED = [
    f"{FOLDER}scratch/{Token(NUMBER, 1, 1)}/0",
    f"{FOLDER}iceberg/v1.metadata.json",
    f"{ROOT}_delta_log/{0:020}.json",
    f"{ROOT}_iceberg/v1.metadata.json",
    f"{ROOT}_symlink_format_manifest/manifest",
    f"{VERSIONS}_delta_log/{0:020}.json",
    f"{VERSIONS}_iceberg/v1.metadata.json",
    f"{VERSIONS}_symlink_format_manifest/manifest",
]
BLOCKS = [f"{TABLE.chain_prefix}hint.json", f"{TABLE.chain_prefix}{0:020}.json"]
OUTSIDE = [
    "",
    "finance/payroll.parquet",
    "lake/finance/payroll.parquet",
    f"lake/finance/{OWN}",
    f"{ROOT}{FOREIGN}",
    f"{FOLDER}../{OTHER.table_id}/raw/{OWN}",
    f"{ROOT}../orders/{OWN}",
    f"{OTHER.final_root}{FOREIGN}",
    f"{OTHER.final_root}{ADOPTED}",
    f"{OTHER.folder}raw/{FOREIGN}",
    f"{OTHER.folder}raw/{OWN}",
    f"{OTHER.chain_prefix}hint.json",
    f"{OTHER.final_root}_delta_log/{0:020}.json",
    f"lake/airbyte_changes/shop/orders/{Token(OTHERS, 1, 1)}-manifest.json",
    f"{CHANGES}deeper/{Token(NUMBER, 1, 1)}-manifest.json",
    f"{VERSIONS}{OWN}",
    f"{VERSIONS}0/{OWN}",
    f"{VERSIONS}1/deeper/{OWN}",
    f"{VERSIONS}1/_delta_log/{0:020}.json",
    f"lake/airbyte_history/shop/orders/1/{OWN}",
    f"lake/airbyte_history/shop/orders/_delta_log/{0:020}.json",
]


@each("key", NAMED)
def test_a_block_may_name_files_with_the_tables_number_in_its_folders(key: str) -> None:
    territory = TABLE.territory(ROOT)
    assert territory.names(key, adopted=False)
    assert territory.holds(key)
    assert territory.may_write(key)
    assert territory.may_delete(key)


@each("key", [*USED, *BLOCKS, *OUTSIDE])
def test_a_block_may_name_nothing_else(key: str) -> None:
    assert not TABLE.territory(ROOT).names(key, adopted=True)


@each("root", ["", "lake/"])
@each("key", [f"{OTHER.folder}raw/{OWN}", f"{OTHER.chain_prefix}{OWN}", f"lake/shop/orders/{FOREIGN}"])
def test_a_root_around_everything_is_no_way_into_other_tables(key: str, root: str) -> None:
    assert TABLE.territory(root).names(f"lake/shop/anywhere/{OWN}", adopted=False)
    assert not TABLE.territory(root).holds(key)


def test_only_adopted_files_may_lack_the_number() -> None:
    territory = TABLE.territory(ROOT)
    assert territory.names(f"{ROOT}{ADOPTED}", adopted=True)
    assert not territory.names(f"{ROOT}{ADOPTED}", adopted=False)
    assert not territory.may_write(f"{ROOT}{ADOPTED}")


def table_store(store: Bucket) -> TableStore:
    return TableStore(store, Chain(store, TABLE))


ATTEMPTS = {
    "get": lambda store, key: store.get(key),
    "get_range": lambda store, key: store.get_range(key, 0, 1, 1),
    "head": lambda store, key: store.head(key),
    "put": lambda store, key: store.put(key, b""),
    "create": lambda store, key: store.create(key, b""),
    "replace": lambda store, key: store.replace(key, b"", {}, None),
    "delete": lambda store, key: store.delete([NAMED[0], key]),
    "list": lambda store, key: store.list(key),
    "folders": lambda store, key: store.folders(key),
    "copy of": lambda store, key: store.stage_copy(key, NAMED[0]),
    "copy to": lambda store, key: store.stage_copy(NAMED[0], key),
    "join of": lambda store, key: store.stage_joined([ObjectRange(key, 0, 1)], b"x", NAMED[0], {}),
    "join to": lambda store, key: store.stage_joined([], b"x", key, {}),
    "complete": lambda store, key: store.complete_upload(StagedUpload(key, "upload", (), 1)),
    "abort": lambda store, key: store.abort_upload(key, "upload"),
    "list_uploads": lambda store, key: store.list_uploads(key),
    "hasty": lambda store, key: store.hasty().abort_upload(key, "upload"),
    "require": lambda store, key: store.require(key),
}
LISTS = {"list", "folders", "list_uploads"}


@each("attempt", ATTEMPTS)
@each("key", OUTSIDE)
def test_no_request_leaves_the_table(attempt: str, key: str) -> None:
    store = Bucket()
    if attempt in LISTS and key.startswith((ROOT, FOLDER, CHANGES, VERSIONS)):
        return
    with pytest.raises(DataError, match="is not one of its objects, so it was neither read nor changed"):
        ATTEMPTS[attempt](table_store(store), key)

    assert store.calls == []


@each("attempt", sorted(ATTEMPTS.keys() - LISTS - {"get", "get_range", "head", "copy of", "join of", "require"}))
@each("key", BLOCKS)
def test_blocks_are_read_and_nothing_else(attempt: str, key: str) -> None:
    store = Bucket()
    store.objects[key] = b"block"
    with pytest.raises(DataError):
        ATTEMPTS[attempt](table_store(store), key)
    assert table_store(store).get(key) == b"block"


@each("key", [*NAMED, *USED])
def test_the_tables_own_objects_are_written_read_and_deleted(key: str) -> None:
    store = Bucket()
    own = table_store(store)
    own.put(key, b"x")
    assert own.get(key) == b"x"
    own.delete([key])
    assert store.names() == ["put", "get", "delete"]


def test_a_file_to_be_adopted_is_known_by_its_name_or_by_its_metadata() -> None:
    store = Bucket()
    own = table_store(store)
    renamed = f"{ROOT}another_pattern.parquet"
    for key, metadata in ((f"{ROOT}{ADOPTED}", {}), (renamed, {GENERATION_METADATA: "0"}), (f"{ROOT}payroll.parquet", {"x": "y"})):
        store.memory.put(key, b"x", metadata)

    own.delete([f"{ROOT}{ADOPTED}"])
    assert store.names() == ["delete"]
    own.delete([renamed])
    assert store.names() == ["delete", "head", "delete"]
    with pytest.raises(DataError, match=r"payroll\.parquet' is not one of its objects"):
        own.delete([f"{ROOT}payroll.parquet"])
    assert list(store.objects) == [f"{ROOT}payroll.parquet"]


def test_an_identity_belongs_to_one_folder() -> None:
    mine = Identity(TABLE.stream, TABLE.table_id, NUMBER, ROOT, 1)
    assert TABLE.flaw(mine) is None
    assert "stream shop.orders" in (TABLE.flaw(Identity(OTHER.stream, TABLE.table_id, NUMBER, ROOT, 1)) or "")
    assert "number" in (TABLE.flaw(Identity(TABLE.stream, TABLE.table_id, OTHERS, ROOT, 1)) or "")
    assert OTHER.table_id in (TABLE.flaw(Identity(TABLE.stream, OTHER.table_id, NUMBER, ROOT, 1)) or "")
    elsewhere = Identity(TABLE.stream, TABLE.table_id, NUMBER, OTHER.final_root, 1)
    assert "final root" in (TABLE.flaw(elsewhere) or "")
    assert replace(TABLE, root_flaw=lambda _: None).flaw(elsewhere) is None
