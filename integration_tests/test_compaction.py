"""Small files joined at the end of a sync and by `optimize`, as readers and operators see it; and the command killed in the middle."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator

import pytest

from integration_tests.connector import BUCKET_PATH, SCRIPT, Connector
from integration_tests.lake import USERS, Lake
from integration_tests.s3_proxy import Fault, S3Proxy, When, s3_proxy
from integration_tests.servers import S3Server, new_bucket
from integration_tests.source import catalog, complete, record, state, stream

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
CATALOG = catalog(stream(schema=SCHEMA))
FINAL_ROOT = f"{BUCKET_PATH}/shop/users/"
SMALL = {"raw_tables": True, "target_file_mb": 1}
OFF = {**SMALL, "compaction": "off"}
MOMENTS = {
    "while it joins": Fault("CreateMultipartUpload", FINAL_ROOT, when=When.AFTER),
    "after the block": Fault("CompleteMultipartUpload", FINAL_ROOT),
    "after a file is there": Fault("CompleteMultipartUpload", FINAL_ROOT, when=When.AFTER),
    "before the deletes": Fault("DeleteObjects"),
}


def messages(number: int) -> list[bytes]:
    """Rows of about 300 KB together, which no codec makes smaller."""
    chance = random.Random(number)
    rows = [record({"id": 10 * number + one, "text": chance.randbytes(75_000).hex()}) for one in range(2)]
    return [*rows, state(number), complete()]


def operate(connector: Connector, command: str, *options: str) -> str:
    path = connector.directory / "operator.json"
    path.write_text(json.dumps(connector.config()))
    done = subprocess.run([str(SCRIPT), command, "--config", str(path), *options], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def lake(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(new_bucket(moto), tmp_path_factory.mktemp("lake"))


def test_a_sync_joins_files_and_an_operator_can(lake: Lake) -> None:
    connector = lake.connector(tables=OFF)
    for number in range(3):
        connector.write(CATALOG, messages(number)).expect_success()
    ids = [row["id"] for row in lake.rows()]
    assert len(lake.chains()[USERS].final_keys) == 3
    said = operate(connector, "optimize")
    assert "1 final, 1 raw files (3 final, 3 raw files before)" in said
    lake.verify_at_rest()
    assert [row["id"] for row in lake.rows()] == ids
    assert lake.manifest() == lake.chains()[USERS].final_keys
    assert "nothing to join" in operate(connector, "optimize")

    joining = lake.connector(tables=SMALL)
    for number in range(3, 6):
        joining.write(CATALOG, messages(number)).expect_success()
    assert len(lake.chains()[USERS].final_keys) < 4
    lake.verify_at_rest()
    assert lake.ids() == sorted(10 * number + one for number in range(6) for one in range(2))
    said = operate(joining, "rebuild", "--stream", "users")
    assert "12 rows are as before, 0 are gone, 0 are new" in said


@pytest.fixture(scope="module")
def proxy(moto: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(moto.endpoint) as found:
        yield found


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_compaction_loses_and_doubles_nothing(moment: str, lake: Lake, proxy: S3Proxy) -> None:
    direct, through = lake.connector(tables=OFF), lake.connector(proxy.endpoint, tables=OFF)
    for number in range(2):
        direct.write(CATALOG, messages(number)).expect_success()
    ids = lake.ids()
    before = lake.manifest()
    fault = MOMENTS[moment]
    with through.run("optimize", config=through.config()) as optimize:
        fault.status, fault.times, fault.effect = 0, 1, lambda _: optimize.kill()
        proxy.forget()
        proxy.inject(fault)
        outcome = optimize.end_input().finish()
    assert outcome.exit_code < 0, f"the fault never came: {outcome.describe()}"
    lake.verify()
    assert lake.ids() == ids
    manifest = lake.manifest()
    assert manifest == before or manifest == lake.chains()[USERS].final_keys
    operate(direct, "repair")
    lake.verify()
    assert lake.ids() == ids
    direct.write(CATALOG, messages(2)).expect_success()
    lake.verify_at_rest()
    assert lake.ids() == sorted([*ids, 20, 21])
