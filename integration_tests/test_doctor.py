"""`doctor` as a person runs it: the installed command, with Spark and a real store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import stream


def test_a_good_setup_has_no_cross_and_nothing_is_left_behind(strict_lake: ProcessLake, tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps(catalog(stream())))

    config = tmp_path / "config.json"
    config.write_text(json.dumps(strict_lake.connector().config()))
    command = [str(SCRIPT), "doctor", "--config", str(config), "--output", "json", "--catalog", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    findings = json.loads(done.stdout)

    assert (done.returncode, {finding["verdict"] for finding in findings} - {"good", "doubtful"}) == (0, set())
    checks = {finding["check"] for finding in findings}
    assert {"options", "endpoint", "clock", "conditional writes (If-None-Match)", "spool directory", "memory", "Java", "Spark"} <= checks
    mode, users = [finding for finding in findings if finding["part"] == "streams"]
    assert "generations and stream statuses" in mode["detail"]
    assert f"s3://{strict_lake.bucket.name}/lake/" in users["detail"]
    assert (strict_lake.bucket.list_keys(), strict_lake.bucket.open_uploads()) == ([], [])
