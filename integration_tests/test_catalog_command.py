"""`catalog` as a person runs it: what it makes of a source's `discover` is synced by `write` as it stands."""

from __future__ import annotations

import json
import subprocess

from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.lake import ProcessLake
from unit_tests.lake.shop import complete, state, stream, users


def test_the_catalog_made_from_discover_is_synced(moto_lake: ProcessLake) -> None:
    described = {**stream()["stream"], "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True}
    discovered = {"type": "CATALOG", "catalog": {"streams": [{**described, "source_defined_primary_key": [["id"]]}]}}
    lines = json.dumps({"type": "LOG", "log": {"level": "INFO", "message": "discovering"}}) + "\n" + json.dumps(discovered) + "\n"

    made = subprocess.run([str(SCRIPT), "catalog"], input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert made.returncode == 0, made.stderr
    assert made.stderr == "users: incremental, append_dedup, key id, cursor none\n1 stream\n"
    moto_lake.connector().write(json.loads(made.stdout), [*users([1, 2, 1]), state(3), complete()]).expect_success()
    assert moto_lake.ids() == [1, 2]


def test_an_unknown_stream_is_refused_and_nothing_is_printed() -> None:
    discovered = json.dumps({"streams": [{"name": "users", "json_schema": {}}]})

    made = subprocess.run(
        [str(SCRIPT), "catalog", "--select", "user"], input=discovered, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )

    assert (made.returncode, made.stdout) == (1, "")
    assert "Did you mean users?" in made.stderr
