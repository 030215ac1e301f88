"""What a table that has lived for years costs its readers: calls and bytes that do not grow with its chain."""

from __future__ import annotations

from destination_s3_spark.chain.blocks import block_name
from destination_s3_spark.chain.events import Close, OpenEpoch, SetDataSchema
from destination_s3_spark.chain.log import Chain
from destination_s3_spark.chain.opening import take_snapshot_when_due
from destination_s3_spark.tables.found import find_tables
from unit_tests.chain.bucket import Bucket
from unit_tests.chain.built_chain import SEED, T0, add
from unit_tests.chain.one_table import CHAIN, TABLE, synced
from unit_tests.places import TEMPLATE, PlainTable

PLAIN = PlainTable(SEED.stream, SEED.table_id, "lake/airbyte_internal/users/", SEED.final_root)


def chain_of(store: Bucket, syncs: int, schema_every: int = 10**6) -> Chain:
    """A chain of syncs that each append two files."""
    made = Chain(store, PLAIN, lambda: T0)
    made.append(SEED)
    schema = 0
    for number in range(syncs):
        if number:
            made.append(OpenEpoch(number, 0, T0))
        if number % schema_every == 0:
            schema += 1
            made.append(SetDataSchema({"schemaId": schema, "fields": []}))
        made.append(add(10 * number, 10 * number + 9, schema_id=schema))
        made.mark_settled()
        take_snapshot_when_due(made)
        made.append(Close())
    made.write_hint()
    store.forget()
    return made


def opened(store: Bucket) -> Chain:
    chain = Chain(store, PLAIN, lambda: T0)
    chain.read()
    return chain


def snapshot_bytes(store: Bucket) -> int:
    return sum(len(body) for body in store.objects.values() if b'"kind":"Snapshot"' in body)


def test_the_snapshots_of_a_table_of_many_files_take_a_constant_part_of_its_chain() -> None:
    written = [snapshot_bytes(chain_of_bytes(syncs)) / syncs for syncs in (1000, 2000, 4000)]
    assert written[2] < 1.5 * written[1] < 2 * written[0], written


def chain_of_bytes(syncs: int) -> Bucket:
    store = Bucket()
    chain_of(store, syncs)
    return store


def test_the_schemas_of_a_long_chain_take_a_get_each() -> None:
    store = Bucket()
    written = chain_of(store, 600, schema_every=200)
    chain = opened(store)
    store.forget()

    assert [block.event.schema_id for block in chain.schema_history() if isinstance(block.event, SetDataSchema)] == [1, 2, 3]
    assert chain.schemas([1, 3]) == {1: {"schemaId": 1, "fields": []}, 3: written.head.schema}
    assert len(store.calls) == 3 + 1


def test_finding_tables_takes_no_call_per_object() -> None:
    store = Bucket()
    for sync in range(50):
        synced(store, sync)
    store.objects["lake/airbyte_internal/other/notes.txt"] = b"of somebody else"
    store.forget()

    (found,) = find_tables(store, TEMPLATE).tables
    assert (found.stream, found.folder) == (TABLE.stream, TABLE.folder)
    seed = f"{CHAIN}{block_name(0)}"
    assert store.calls == [
        ("folders", "lake/airbyte_internal/"),
        ("get", "lake/airbyte_internal/other/chain/" + block_name(0)),
        ("get", seed),
    ]
