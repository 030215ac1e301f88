"""Random jobs, attempts and deaths against an ideal destination: no row lost by a dead source, none doubled by a retry."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.lake import ProcessLake
from integration_tests.platform.inline import InlineDestination
from integration_tests.platform.inline_history import History
from integration_tests.s3_proxy import S3Proxy, s3_proxy
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.rotation import taken

SEED = 30_000
HISTORIES = 24
AT_ONCE = 6
"""Histories of one test, so that a failure says more than that there is one."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def way(moto: S3Server) -> Iterator[S3Proxy]:
    """The way to the store, which a dying destination loses."""
    with s3_proxy(moto.endpoint) as running:
        yield running


def lived(seed: int, moto: S3Server, way: S3Proxy, directory: Path) -> str:
    """What went wrong in the history of this seed first, and the story until then; empty if nothing did."""
    lake = ProcessLake.of(new_bucket(moto), directory / f"lake-{seed}")
    history = History(random.Random(seed), lake, InlineDestination(lake.bucket, directory / f"runs-{seed}", way))
    wrong = next(history.run(), "")
    return f"seed {seed}: {wrong}\n" + "\n".join(history.told) if wrong else ""


@pytest.mark.parametrize("first", taken(range(SEED, SEED + HISTORIES, AT_ONCE), 4))
def test_tables_hold_what_an_ideal_destination_would(first: int, moto: S3Server, way: S3Proxy, tmp_path: Path) -> None:
    wrong = [story for seed in range(first, first + AT_ONCE) if (story := lived(seed, moto, way, tmp_path))]
    assert not wrong, f"{len(wrong)} of {AT_ONCE} histories:\n" + "\n\n".join(wrong)
