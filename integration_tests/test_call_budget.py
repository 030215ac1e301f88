"""What a small sync costs at the store: requests are money and time, so their number per table has a bound."""

from __future__ import annotations

from collections import Counter

import pytest

from integration_tests.lake import Lake
from integration_tests.s3_proxy import S3Proxy
from integration_tests.source import catalog, complete, state, stream, users

CALLS_PER_TABLE = {"append": {"new": 14, "existing": 12}, "append_dedup": {"new": 23, "existing": 22}}
"""For a new table one LIST looks for files to adopt, and every table has its symlink manifest written."""
DELTA_CALLS_PER_TABLE = 3
"""What `publish.delta` may add for an existing table. Every tenth version has a checkpoint, which takes more."""
NAMES = [f"table_{number}" for number in range(4)]
CATALOG = catalog(*map(stream, NAMES))
MESSAGES = [message for name in NAMES for message in (*users(range(10), name), state(9, name), complete(name))]


@pytest.mark.parametrize("mode", CALLS_PER_TABLE)
def test_a_small_sync_makes_few_calls_per_table(moto_lake: Lake, proxy: S3Proxy, mode: str) -> None:
    connector = moto_lake.connector(proxy.endpoint)
    streams = catalog(*(stream(name, mode=mode, primary_key=[["id"]]) for name in NAMES))
    for kind, most in CALLS_PER_TABLE[mode].items():
        proxy.forget()
        connector.write(streams, MESSAGES).expect_success()
        counts = proxy.counts()
        print(f"{mode}, {kind} tables: {counts.total() / len(NAMES):.1f} calls per table, {dict(counts)}")
        assert counts.total() <= most * len(NAMES), f"{kind} tables: {counts}"
    moto_lake.verify_at_rest()

    delta = moto_lake.connector(proxy.endpoint, publish={"delta": True})
    for _ in ("the first version of each log", "the steady state"):
        proxy.forget()
        delta.write(streams, MESSAGES).expect_success()
    counts = proxy.counts()
    of_log = Counter(call.action for call in proxy.calls if "_delta_log" in call.key)
    print(f"{mode}, Delta tables: {counts.total() / len(NAMES):.1f} calls per table, {dict(of_log)} for the logs")
    assert of_log == {"GetObject": len(NAMES), "PutObject": len(NAMES)}
    assert counts.total() <= (CALLS_PER_TABLE[mode]["existing"] + DELTA_CALLS_PER_TABLE) * len(NAMES), f"Delta tables: {counts}"


@pytest.mark.parametrize("publish", [{}, {"delta": True}], ids=["files", "delta"])
def test_a_sync_whose_rows_wait_for_a_merge_makes_no_more_calls_than_an_append(
    moto_lake: Lake, proxy: S3Proxy, publish: dict[str, bool]
) -> None:
    tables = {"merge": [{"stream": "*", "when_runs_mb": 1000}]}
    connector = moto_lake.connector(proxy.endpoint, publish=publish, tables=tables)
    counts = {}
    for mode in ("append", "append_dedup"):
        streams = catalog(*(stream(name, mode, mode=mode, primary_key=[["id"]]) for name in NAMES))
        messages = [message for name in NAMES for message in (*users(range(10), name, mode), state(9, name, mode), complete(name, mode))]
        for _ in ("new", "existing", "the steady state"):
            proxy.forget()
            connector.write(streams, messages).expect_success()
            counts[mode] = proxy.counts()
    print({mode: dict(of) for mode, of in counts.items()})
    assert counts["append_dedup"].total() <= counts["append"].total(), counts


def test_a_sync_without_records_makes_next_to_no_calls(moto_lake: Lake, proxy: S3Proxy) -> None:
    moto_lake.connector(proxy.endpoint).write(CATALOG, [complete(name) for name in NAMES]).expect_success()
    assert proxy.counts().keys() <= {"GetObject", "HeadObject", "ListObjects", "ListMultipartUploads"}
    assert proxy.counts().total() <= 3 * len(NAMES), proxy.counts()
