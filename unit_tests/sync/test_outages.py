"""A store that goes down in mid-sync and stays down: the sync ends as transient, without a further STATE, and the next one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from destination_s3_spark.errors import TransientError
from unit_tests.lake.lake import AT_ONCE, Lake
from unit_tests.lake.memory_bucket import Fate, Refusal, S3Call
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users

CATALOG = catalog(stream())
OUTAGES: dict[str, Callable[[S3Call], Fate | Refusal | None]] = {
    "no part is taken": lambda call: Refusal(503, "SlowDown") if call.action == "UploadPart" else None,
    "no answer at all": lambda _: Fate.LOST_BEFORE,
    "no answer, though all is done": lambda _: Fate.LOST_AFTER,
    "puts get no answer": lambda call: Fate.LOST_BEFORE if call.action == "PutObject" else None,
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_store_that_stays_down_in_mid_sync_gets_no_further_state(lake: Lake, outage: str) -> None:
    def blocks() -> Iterator[bytes]:
        yield from [*users([1]), state(1)]
        yield from lake.silence(1)
        lake.memory.hook = OUTAGES[outage]
        yield from [*users([2]), state(2), complete()]

    lake.limits = AT_ONCE
    with pytest.raises(TransientError):
        lake.sync(CATALOG, blocks())
    lake.memory.hook = None
    assert lake.cursors() == [1]
    lake.verify()
    assert lake.ids() == [1]
    lake.sync(CATALOG, [*users([2]), state(2), complete()])
    lake.verify_at_rest()
    assert lake.ids() == [1, 2]
