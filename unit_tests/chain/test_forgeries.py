"""Blocks and hints that somebody else wrote: whatever they name, nothing outside of the table is read, changed or deleted."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from destination_s3_spark.chain.blocks import block_hash, block_name, canonical
from destination_s3_spark.chain.files import FileEntry, FileKind, Token, table_number
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import Session, WriteDisposition
from destination_s3_spark.chain.territory import OrphanUploads
from destination_s3_spark.errors import SyncError
from destination_s3_spark.formats.file_statistics import WrittenFile
from destination_s3_spark.tables.commit.repair import repair
from destination_s3_spark.tables.commit.writer import TableWriter
from destination_s3_spark.tables.found import find_tables
from destination_s3_spark.tables.publishers.delta import DeltaTable
from destination_s3_spark.tables.publishers.symlink import SymlinkManifest
from destination_s3_spark.tables.retention import delete_expired_raw
from destination_s3_spark.tables.updates.inputs import replaced_by_pending
from destination_s3_spark.tables.verification import verify
from unit_tests.cases import each
from unit_tests.chain.bucket import Bucket, keys_of, name_of
from unit_tests.chain.built_chain import T0
from unit_tests.chain.one_table import CHAIN, FIRST, SECOND, STARTED, TABLE, land
from unit_tests.lake.memory_bucket import Part, Upload
from unit_tests.places import TEMPLATE, table_of
from unit_tests.sampling import sample

OTHER = table_of("orders", "shop")
NUMBER, OTHERS = table_number(TABLE.table_id), table_number(OTHER.table_id)
HINT = f"{CHAIN}hint.json"
PUBLISHERS = (SymlinkManifest("bucket"), DeltaTable(lambda: T0))
OWN = f"f-{Token(NUMBER, 1, 1)}.parquet"
THEIRS = f"f-{Token(OTHERS, 1, 1)}.parquet"
FOREIGN = [
    "finance/payroll.parquet",
    "lake/finance/payroll.parquet",
    f"{OTHER.final_root}{THEIRS}",
    f"{OTHER.folder}raw/{THEIRS}",
    f"{OTHER.folder}raw/{OWN}",
    f"{OTHER.chain_prefix}{block_name(0)}",
    f"{OTHER.chain_prefix}hint.json",
    f"{OTHER.final_root}_delta_log/{0:020}.json",
    f"{OTHER.final_root}_symlink_format_manifest/manifest",
    f"{TABLE.folder}../{OTHER.table_id}/raw/{OWN}",
]
BLOCKS = [HINT, f"{CHAIN}{block_name(0)}", f"{CHAIN}{block_name(2)}"]
UPLOADS = [(f"{OTHER.final_root}open-{Token(OTHERS, 1, 5)}.parquet", "another table's"), ("finance/open.parquet", "finance's")]
NAMES = [TABLE.table_id, OTHER.table_id, OTHER.final_root, OTHER.folder, "finance/", "", "orders", "shop"]
NUMBERS = [0, 1, -1, 2**31, 2**53, 2**59, 2**62, 2**63 - 1, -(2**63), NUMBER, OTHERS]
TIMES = ["1970-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "9999-12-31T23:59:59Z"]
SEEDS = range(150)


def writer(store: Bucket, hour: int, disposition: WriteDisposition = WriteDisposition.APPEND) -> TableWriter:
    now = T0 + timedelta(hours=hour)
    chain, orphans = Chain(store, TABLE, lambda: now), OrphanUploads(store, "lake/")
    session = Session(hour + 1, 0 if disposition is WriteDisposition.APPEND else hour, STARTED, disposition)
    made = TableWriter(chain, session, orphans, publishers=PUBLISHERS, keep_replaced=timedelta(hours=2))
    made.chain.read()
    return made


def merged(store: Bucket, made: TableWriter) -> None:
    """All final files joined into one."""
    old = made.live_files().of(FileKind.FINAL)
    rows = sum(file.rows for file in old)
    key = f"{TABLE.final_root}m-{made.next_token()}.parquet"
    upload = store.stage(key, b"x" * max(1, min(rows, 1000)))
    made.merge([FileEntry.staged(FileKind.FINAL, upload, WrittenFile(rows))], [*old, *made.live_files().dropped], None)


def bucket(*, unclean: bool) -> Bucket:
    """A table with files that stay for a while, beside what belongs to others; its last session may have died."""
    store = Bucket()
    for hour in range(3):
        made = writer(store, hour)
        land(made, store, 0, 100)
        made.commit([replace(FIRST, state_hash=f"hour {hour}")])
        merged(store, made)
        made.close()
    if unclean:
        made = writer(store, 3)
        land(made, store, 0, 100)
        with suppress(SyncError):
            made.commit([SECOND])
    for key in FOREIGN:
        store.objects[key] = b"not yours"
    for key, upload_id in UPLOADS:
        store.uploads[upload_id] = Upload(key, {}, {1: Part.of(b"not yours")})
    store.forget()
    return store


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything in a JSON value that is neither an object nor an array."""
    match value:
        case dict():
            for name, member in value.items():
                yield from places(member, (*path, name))
        case list():
            for number, item in enumerate(value):
                yield from places(item, (*path, number))
            yield (*path, len(value))
        case _:
            yield path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def forged_value(chance: random.Random, old: Any, siblings: list[Any]) -> Any:
    """Something that looks valid in the place of the old value: above all, keys of others where there was a key."""
    if isinstance(old, str) and ("/" in old or not chance.randrange(6)):
        return chance.choice([*FOREIGN, *BLOCKS, *NAMES])
    if isinstance(old, str):
        return chance.choice([*TIMES, *NAMES, old[::-1], "00"])
    if isinstance(old, bool) or old is None:
        return chance.choice([True, False, None, *FOREIGN[:2], [], {}, 0])
    if isinstance(old, int):
        return chance.choice(NUMBERS)
    item = copy.deepcopy(chance.choice(siblings)) if siblings else chance.choice(FOREIGN)
    return {**item, "key": chance.choice(FOREIGN)} if isinstance(item, dict) and "key" in item else chance.choice(FOREIGN)


def forge(chance: random.Random, document: Any) -> None:
    """Change a few fields of a document in place."""
    for _ in range(chance.choice([1, 1, 2, 4])):
        all_places = list(places(document))
        with_keys = [path for path in all_places if "/" in str(_or_none(document, path))]
        path = chance.choice(with_keys if with_keys and chance.randrange(2) else all_places)
        around = at(document, path[:-1])
        if isinstance(around, list) and path[-1] == len(around):
            around.append(forged_value(chance, [], around))
        else:
            around[path[-1]] = forged_value(chance, around[path[-1]], [])


def _or_none(document: Any, path: tuple[Any, ...]) -> Any:
    around = at(document, path[:-1])
    return None if isinstance(around, list) and path[-1] == len(around) else around[path[-1]]


def write_hint(store: Bucket, hint: Any) -> None:
    hint["checksum"] = hashlib.sha256(canonical(hint["known"])).hexdigest()
    store.objects[HINT] = canonical(hint)


def forge_hint(store: Bucket, chance: random.Random) -> None:
    """The hint with other contents and a fresh checksum."""
    hint = json.loads(store.objects[HINT])
    forge(chance, hint["known"])
    if not chance.randrange(3):  # as of a session that never ended
        blocks = [json.loads(store.objects[key]) for key in block_keys(store)]
        before, keys = hint["known"]["state"]["contents"], chance.sample(FOREIGN + BLOCKS, 3)
        number = chance.choice([block["sequenceNumber"] for block in blocks])
        undo = {"sequenceNumber": number, "voided": False, "files": [], "removed": keys, "checkpoints": 0, "before": before}
        hint["known"]["state"] |= {"closed": chance.choice([False, True]), "settled": None, "unsettled": undo}
    if not chance.randrange(3):  # of files whose time is over
        leaving = {"until": TIMES[0], "keys": chance.sample(FOREIGN + BLOCKS, 3), "bytes": 1, "block": chance.choice([None, 2, 5])}
        hint["known"]["state"]["contents"]["leaving"] = [leaving]
    write_hint(store, hint)


def block_keys(store: Bucket) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(CHAIN) and key != HINT)


def forge_chain(store: Bucket, chance: random.Random) -> None:
    """A chain with other contents and good links, and its hint, if it keeps one, with the new link."""
    keys = block_keys(store)
    changed = chance.randrange(len(keys))
    digest = None
    for number, key in enumerate(keys):
        block = json.loads(store.objects[key])
        if number == changed:
            forge(chance, block["event"] if chance.randrange(4) else block)
        block["prevBlockHash"] = digest
        store.objects[key] = canonical(block)
        digest = block_hash(store.objects[key])
    hint = json.loads(store.objects[HINT])
    if chance.randrange(2):
        del store.objects[HINT]
    else:
        number = hint["sequenceNumber"]
        hint["known"]["state"]["blockHash"] = block_hash(store.objects[keys[number]])
        write_hint(store, hint)


def is_own(key: str) -> bool:
    """Whether an object is the table's, said in other words than the code's."""
    root, name = TABLE.final_root, key.rpartition("/")[2]
    if ".." in key:
        return False
    if key.startswith(root):
        folders = ("_delta_log/", "_symlink_format_manifest/", "_iceberg/")
        return key.removeprefix(root).startswith(folders) or str(NUMBER) in name
    return key.startswith(TABLE.folder)


def expect_own_files(live: LiveFiles) -> None:
    """What tasks on executors read without another check."""
    assert [file.key for file in (*live.files, *live.dropped) if not is_own(file.key) or str(NUMBER) not in file.key] == []


def appended(store: Bucket) -> None:
    made = writer(store, 24)
    land(made, store, 0, 100)
    made.commit([replace(FIRST, state_hash="a day later")])
    expect_own_files(made.live_files())
    merged(store, made)
    delete_expired_raw(made, 1)
    made.close()


def refreshed(store: Bucket) -> None:
    made = writer(store, 26, WriteDisposition.TRUNCATE)
    made.open()
    expect_own_files(made.live_files())
    if made.live_files().pending is not None:
        made.replace((), replaced_by_pending(made.live_files()))
    made.close()


def repaired(store: Bucket) -> None:
    repair(store, TABLE, PUBLISHERS, OrphanUploads(store, "lake/"), STARTED)


def verified(store: Bucket) -> None:
    chain = Chain(store, TABLE)
    chain.catch_up()
    seed = next(iter(find_tables(Bucket(), TEMPLATE).tables), None)
    assert seed is None
    verify(store, TABLE, lambda function, items: list(map(function, items)))


def idled(store: Bucket) -> None:
    writer(store, 28).close()


STEPS: list[Callable[[Bucket], None]] = [verified, appended, idled, repaired, refreshed, repaired]


def expect_nothing_foreign(store: Bucket) -> None:
    calls = [(name_of(call), keys_of(call)) for call in store.memory.calls]
    touched = [key for name, keys in calls for key in keys if name not in {"list", "folders", "list_uploads"}]
    assert [key for key in touched if not is_own(key) and key] == []
    listed = [prefix for name, keys in calls for prefix in keys if name in {"list", "folders"}]
    assert [prefix for prefix in listed if not prefix.startswith((TABLE.folder, TABLE.final_root))] == []
    assert {key: store.objects.get(key) for key in FOREIGN} == dict.fromkeys(FOREIGN, b"not yours")
    assert {upload_id for _, upload_id in UPLOADS} <= store.uploads.keys()
    assert not {key for name, keys in calls if name == "delete" for key in keys if key.startswith(CHAIN)}


@each("unclean", [False, True])
@each("forgery", [forge_hint, forge_chain])
def test_nothing_outside_of_the_table_is_ever_touched(forgery: Callable[[Bucket, random.Random], None], unclean: bool) -> None:
    whole = bucket(unclean=unclean)
    for seed in sample(SEEDS, len(SEEDS) // 3):
        chance, store = random.Random(f"{forgery.__name__}{unclean}{seed}"), whole.copy()
        forgery(store, chance)
        for step in chance.sample(STEPS, len(STEPS)):
            with suppress(SyncError):
                step(store)
            expect_nothing_foreign(store)


def test_the_same_steps_do_their_work_without_a_forgery() -> None:
    store = bucket(unclean=True)
    for step in STEPS:
        step(store)
        expect_nothing_foreign(store)
    assert verify(store, TABLE).blocks > 20
