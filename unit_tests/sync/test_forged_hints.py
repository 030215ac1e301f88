"""Hints with a sound checksum and numbers that no session writes: a sync goes on, by the hint or by the chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unit_tests.cases import each
from unit_tests.lake.lake import Lake
from unit_tests.sync.dedup_lake import sync, table

Known = dict[str, Any]
HUGE = 10**40
NUMBERS: dict[str, Callable[[Known], object]] = {
    "a number of the block": lambda known: known["state"].update(sequenceNumber=HUGE),
    "a snapshot below the first block": lambda known: known["state"].update(snapshot=-(10**18)),
    "an offset": lambda known: known["state"]["contents"].update(nextOffset=HUGE),
    "a rate near zero": lambda known: known.update(merge_rate=1e-300),
    "a rate without end": lambda known: known.update(merge_rate=1e308),
}


def forged(body: bytes, change: Callable[[Known], object]) -> bytes:
    hint = json.loads(body)
    change(hint["known"])
    known = msgspec.json.encode(hint["known"], order="sorted")
    return msgspec.json.encode({**hint, "known": msgspec.Raw(known), "checksum": hashlib.sha256(known).hexdigest()})


@pytest.fixture
def make(make_bucket: Any, tmp_path: Path) -> Callable[[], Lake]:
    def made() -> Lake:
        settings = make_bucket()
        return Lake(settings, tmp_path / settings.bucket, options={"tables": {"merge_limit_minutes": 5}})

    return made


@each("name", NUMBERS)
def test_a_sync_goes_on(make: Callable[[], Lake], name: str) -> None:
    lake = make()
    sync(lake, 1, range(5))
    (key,) = [found.key for found in lake.store.list("lake/") if found.key.endswith("hint.json")]
    lake.store.put(key, forged(lake.store.get(key), NUMBERS[name]))
    sync(lake, 2, range(3))
    assert table(lake) == {one: f"{one} of {2 if one < 3 else 1}" for one in range(5)}
    assert not lake.verified().problems
