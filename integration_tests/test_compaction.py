"""Small files joined at the end of a sync and by `optimize`, as readers and operators see it; and the command killed in the middle."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass, replace

import pytest

from integration_tests.connector import SCRIPT, Connector
from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, When, s3_proxy
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.contents import USERS
from unit_tests.lake.messages import catalog
from unit_tests.lake.outcome import BUCKET_PATH
from unit_tests.lake.shop import complete, record, state, stream

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
CATALOG = catalog(stream(schema=SCHEMA))
SMALL = {"raw_tables": True, "target_file_mb": 1}
OFF = {**SMALL, "compaction": "off"}
MOMENTS = {
    "while_it_joins": Fault("CreateMultipartUpload", f"{BUCKET_PATH}/shop/while_it_joins/", when=When.AFTER),
    "after_the_block": Fault("CompleteMultipartUpload", f"{BUCKET_PATH}/shop/after_the_block/"),
    "after_a_file_is_there": Fault("CompleteMultipartUpload", f"{BUCKET_PATH}/shop/after_a_file_is_there/", when=When.AFTER),
    "before_the_deletes": Fault("DeleteObjects"),
}
"""When `optimize` dies, by the name of the table that it works on."""
NAMES = list(MOMENTS)


def messages(number: int, name: str = "users") -> list[bytes]:
    """Rows of about 300 KB together, which no codec makes smaller."""
    chance = random.Random(number)
    rows = [record({"id": 10 * number + one, "text": chance.randbytes(75_000).hex()}, name) for one in range(2)]
    return [*rows, state(number, name), complete(name)]


def operate(connector: Connector, command: str, *options: str) -> str:
    path = connector.directory / "operator.json"
    path.write_text(json.dumps(connector.config()))
    done = subprocess.run([str(SCRIPT), command, "--config", str(path), *options], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sync_joins_files_and_an_operator_can(moto_lake: ProcessLake) -> None:
    lake = moto_lake
    connector = lake.connector(tables=OFF)
    for number in range(2):
        connector.write(CATALOG, messages(number)).expect_success()
    ids = [row["id"] for row in lake.rows()]
    assert len(lake.chains()[USERS].final_keys) == 2
    said = operate(connector, "optimize")
    assert "1 final, 1 raw files (2 final, 2 raw files before)" in said
    lake.verify_at_rest()
    assert [row["id"] for row in lake.rows()] == ids
    assert lake.manifest() == lake.chains()[USERS].final_keys
    assert "nothing to join" in operate(connector, "optimize")

    joining = lake.connector(tables=SMALL)
    for number in range(2, 4):
        joining.write(CATALOG, messages(number)).expect_success()
    assert len(lake.chains()[USERS].final_keys) < 3
    lake.verify_at_rest()
    assert lake.ids() == sorted(10 * number + one for number in range(4) for one in range(2))
    said = operate(joining, "rebuild", "--stream", "users")
    assert "8 rows are as before, 0 are gone, 0 are new" in said


@dataclass(frozen=True, slots=True)
class Death:
    """The ids in a table after `optimize` died, after `repair`, and after one more sync; and what the manifest listed in between."""

    dead: list[int]
    repaired: list[int]
    later: list[int]
    manifest_is_whole: bool


def messages_of_all(number: int) -> list[bytes]:
    return [line for name in NAMES for line in messages(number, name)]


@pytest.fixture(scope="module")
def deaths(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Death]:
    """Two syncs of a table for each moment, `optimize` killed at that moment, `repair`, and a third sync of all tables."""
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("deaths"))
    direct, streams = lake.connector(tables=OFF), catalog(*(stream(name, schema=SCHEMA) for name in NAMES))
    for number in range(2):
        direct.write(streams, messages_of_all(number)).expect_success()
    dead: dict[str, list[int]] = {}
    whole: dict[str, bool] = {}
    for name in NAMES:
        before = lake.manifest(("shop", name))
        kill_optimize(lake, name)
        lake.verify()
        dead[name], manifest = lake.ids(("shop", name)), lake.manifest(("shop", name))
        whole[name] = manifest in (before, lake.chains()["shop", name].final_keys)
    operate(direct, "repair")
    lake.verify()
    repaired = {name: lake.ids(("shop", name)) for name in NAMES}
    direct.write(streams, messages_of_all(2)).expect_success()
    lake.verify_at_rest()
    return {name: Death(dead[name], repaired[name], lake.ids(("shop", name)), whole[name]) for name in NAMES}


def kill_optimize(lake: ProcessLake, name: str) -> None:
    """Run the command for the table of a moment, and kill it then."""
    with s3_proxy(lake.bucket.server.endpoint) as proxy:
        through = lake.connector(proxy.endpoint, tables=OFF)
        with through.run("optimize", "--stream", name, config=through.config()) as optimize:
            proxy.inject(replace(MOMENTS[name], status=0, times=1, effect=lambda _: optimize.kill()))
            outcome = optimize.end_input().finish()
    assert outcome.exit_code < 0, f"the fault never came: {outcome.describe()}"


@pytest.mark.parametrize("moment", NAMES)
def test_a_killed_compaction_loses_and_doubles_nothing(deaths: dict[str, Death], moment: str) -> None:
    assert deaths[moment] == Death([0, 1, 10, 11], [0, 1, 10, 11], [0, 1, 10, 11, 20, 21], manifest_is_whole=True)
