"""Small files joined at the end of a sync and by `optimize`, as readers and operators see it; and the command killed at any call."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from unit_tests.lake.deaths import DYING, deaths
from unit_tests.lake.inline_connector import InlineConnector
from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Fate
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
CATALOG = catalog(stream(schema=SCHEMA))
SMALL = {"raw_tables": True, "target_file_mb": 1}
OFF = {**SMALL, "compaction": "off"}


def messages(number: int) -> list[bytes]:
    """Rows of about 300 KB together, which no codec makes smaller."""
    chance = random.Random(number)
    rows = [record({"id": 10 * number + one, "text": chance.randbytes(75_000).hex()}) for one in range(2)]
    return [*rows, state(number), complete()]


def operate(connector: InlineConnector, command: str, *options: str) -> str:
    done = connector.run(command, *options)
    assert done.exit_code == 0, done.stderr
    return done.text


def test_a_sync_joins_files_and_an_operator_can(lake: Lake) -> None:
    connector = lake.connector(tables=OFF)
    for number in range(2):
        connector.write(CATALOG, messages(number)).expect_success()
    ids = [row["id"] for row in lake.rows()]
    assert len(lake.chain().final_keys) == 2
    said = operate(connector, "optimize")
    assert "1 final, 1 raw files (2 final, 2 raw files before)" in said
    lake.verify_at_rest()
    assert [row["id"] for row in lake.rows()] == ids
    assert lake.manifest() == lake.chain().final_keys
    assert "nothing to join" in operate(connector, "optimize")

    joining = lake.connector(tables=SMALL)
    for number in range(2, 4):
        joining.write(CATALOG, messages(number)).expect_success()
    assert len(lake.chain().final_keys) < 3
    lake.verify_at_rest()
    assert lake.ids() == sorted(10 * number + one for number in range(4) for one in range(2))
    said = operate(joining, "rebuild", "--stream", "users")
    assert "8 rows are as before, 0 are gone, 0 are new" in said


@dataclass(frozen=True, slots=True)
class Death:
    """The ids in a table after `optimize` died, after `repair`, and after one more sync; and whether the manifest in between was whole."""

    dead: list[int]
    repaired: list[int]
    later: list[int]
    manifest_is_whole: bool


@pytest.mark.parametrize("fate", DYING)
def test_a_compaction_killed_at_any_call_loses_and_doubles_nothing(lake: Lake, fate: Fate) -> None:
    connector = lake.connector(tables=OFF)
    for number in range(2):
        connector.write(CATALOG, messages(number)).expect_success()
    before, seen = lake.manifest(), set()
    for call in deaths(lake, lambda: operate(connector, "optimize", "--stream", "users"), fate):
        seen.add(call.action)
        lake.verify()
        dead, manifest = lake.ids(), lake.manifest()
        is_whole = manifest in (before, lake.chain().final_keys)
        operate(connector, "repair")
        lake.verify()
        repaired = lake.ids()
        connector.write(CATALOG, messages(2)).expect_success()
        lake.verify_at_rest()
        found = Death(dead, repaired, lake.ids(), is_whole)
        assert found == Death([0, 1, 10, 11], [0, 1, 10, 11], [0, 1, 10, 11, 20, 21], manifest_is_whole=True), call
    assert {"CreateMultipartUpload", "CompleteMultipartUpload", "PutObject", "DeleteObjects"} <= seen
