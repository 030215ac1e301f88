"""The common ground of commands that write to tables."""

from __future__ import annotations

import pytest

from destination_s3_spark.cli import maintenance
from destination_s3_spark.errors import Fenced
from unit_tests.chain.fake_store import FakeStore
from unit_tests.chain.one_table import writer


def test_a_long_job_learns_now_and_then_whether_the_table_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore()
    made = writer(store)
    made.open()
    seldom = maintenance._Lookout(made)
    monkeypatch.setattr(maintenance, "OWNER_CHECK_EVERY_S", 0.0)
    often = maintenance._Lookout(made)
    calls = len(store.calls)
    seldom.look()
    assert len(store.calls) == calls
    often.look()
    assert len(store.calls) == calls + 1

    writer(store, sync_id=2).open()
    seldom.look()
    with pytest.raises(Fenced, match="sync id 2"):
        often.look()
