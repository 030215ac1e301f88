"""Random jobs, attempts and deaths against an ideal destination: no row lost by a dead source, none doubled by a retry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from destination_s3_spark.storage.settings import S3Settings
from unit_tests.lake.lake import Lake
from unit_tests.sampling import chance, rounds
from unit_tests.sync.platform.history import History

HISTORIES = rounds(24, 240)
AT_ONCE = 6
"""Histories of one test, so that a failure says more than that there is one."""


@pytest.mark.parametrize("first", range(0, HISTORIES, AT_ONCE))
def test_tables_hold_what_an_ideal_destination_would(first: int, make_bucket: Callable[[], S3Settings], tmp_path: Path) -> None:
    wrong = []
    for number in range(first, first + AT_ONCE):
        history = History(chance(f"history {number}"), Lake(make_bucket(), tmp_path / f"{number}"))
        if found := next(history.run(), ""):
            wrong.append(f"history {number}: {found}\n" + "\n".join(history.told))
    assert not wrong, f"{len(wrong)} of {AT_ONCE} histories:\n" + "\n\n".join(wrong)
