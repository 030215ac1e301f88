"""What a small sync costs at the store: requests are money and time, so their number per table has a bound."""

from __future__ import annotations

from integration_tests.lake import Lake
from integration_tests.s3_proxy import S3Proxy
from integration_tests.source import catalog, complete, state, stream, users

CALLS_PER_TABLE = 12
NAMES = [f"table_{number}" for number in range(4)]
CATALOG = catalog(*map(stream, NAMES))
MESSAGES = [message for name in NAMES for message in (*users(range(10), name), state(9, name), complete(name))]


def test_a_small_append_sync_makes_at_most_twelve_calls_per_table(moto_lake: Lake, proxy: S3Proxy) -> None:
    connector = moto_lake.connector(proxy.endpoint)
    for kind in ("new", "existing"):
        proxy.forget()
        connector.write(CATALOG, MESSAGES).expect_success()
        counts = proxy.counts()
        print(f"{kind} tables: {counts.total() / len(NAMES):.1f} calls per table, {dict(counts)}")
        assert counts.total() <= CALLS_PER_TABLE * len(NAMES), f"{kind} tables: {counts}"
    moto_lake.verify_at_rest()


def test_a_sync_without_records_makes_next_to_no_calls(moto_lake: Lake, proxy: S3Proxy) -> None:
    moto_lake.connector(proxy.endpoint).write(CATALOG, [complete(name) for name in NAMES]).expect_success()
    assert proxy.counts().keys() <= {"GetObject", "HeadObject", "ListObjects", "ListMultipartUploads"}
    assert proxy.counts().total() <= 3 * len(NAMES), proxy.counts()
