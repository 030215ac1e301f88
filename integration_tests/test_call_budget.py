"""What a small sync costs at the store: requests are money and time, so their number per table has a bound."""

from __future__ import annotations

from collections import Counter

from integration_tests.fault_proxy import FaultProxy
from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users
from unit_tests.s3_proxy import Call

CALLS_PER_TABLE = {"append": {"new": 14, "existing": 12}, "merged": {"new": 23, "existing": 22}}
"""For a new table one LIST looks for files to adopt, and every table has its symlink manifest written."""
DELTA_CALLS_PER_TABLE = 3
"""What `publish.delta` may add for an existing table. Every tenth version has a checkpoint, which takes more."""
WAITING = "waiting"
MODES = {"append": "append", "merged": "append_dedup", WAITING: "append_dedup"}
"""The modes of the tables of each kind. Rows of the last one wait for a merge."""
TABLES = 4
"""Of each kind."""
NAMES = {kind: [f"{kind}_{number}" for number in range(TABLES)] for kind in MODES}
CATALOG = catalog(*(stream(name, mode=mode, primary_key=[["id"]]) for kind, mode in MODES.items() for name in NAMES[kind]))
MESSAGES = [message for names in NAMES.values() for name in names for message in (*users(range(10), name), state(9, name), complete(name))]


def calls_of(calls: list[Call], kind: str) -> list[Call]:
    """The calls for tables of a kind. Those for several tables at once count for each."""
    others = [f"{other}_" for other in MODES if other != kind]
    return [call for call in calls if not any(other in call.key for other in others)]


def test_a_small_sync_makes_few_calls_per_table(moto_lake: ProcessLake, proxy: FaultProxy) -> None:
    connector = moto_lake.connector(proxy.endpoint, tables={"merge": [{"stream": f"{WAITING}_*", "when_runs_mb": 1000}]})
    for publish in ({}, {"delta": True}):
        for sync in ("new", "existing"):  # the first versions of Delta's logs, and the steady state
            proxy.forget()
            connector.write(CATALOG, MESSAGES, publish=publish).expect_success()
            found = {kind: calls_of(proxy.calls, kind) for kind in MODES}
            print(publish, sync, {kind: dict(Counter(call.action for call in calls)) for kind, calls in found.items()})
            if publish and sync == "new":
                continue
            for kind, most in CALLS_PER_TABLE.items():
                bound = most[sync] + (DELTA_CALLS_PER_TABLE if publish else 0)
                assert len(found[kind]) <= bound * TABLES, f"{kind}, {sync}, {publish}: {found[kind]}"
            if sync == "existing":
                assert len(found[WAITING]) <= len(found["append"]), f"no more calls than an append: {found[WAITING]}"
        if not publish:
            moto_lake.verify_at_rest({*NAMES["append"], *NAMES["merged"]})
    for calls in found.values():
        of_log = Counter(call.action for call in calls if "_delta_log" in call.key)
        assert of_log == {"GetObject": TABLES, "PutObject": TABLES}
