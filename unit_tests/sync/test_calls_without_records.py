"""What a sync without records costs at the store."""

from __future__ import annotations

from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, stream

TABLES = 4


def test_a_sync_without_records_makes_next_to_no_calls(lake: Lake) -> None:
    names = [f"append_{number}" for number in range(TABLES)]
    lake.connector().write(catalog(*(stream(name, key="id") for name in names)), [complete(name) for name in names]).expect_success()
    assert lake.memory.counts().keys() <= {"GetObject", "HeadObject", "ListObjectsV2", "ListMultipartUploads"}
    assert 0 < lake.memory.counts().total() <= 3 * TABLES, lake.memory.counts()
