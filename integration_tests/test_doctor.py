"""`doctor` as a person runs it: the installed command, with Spark and a real store."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.lake import ProcessLake
from integration_tests.s3_proxy import Fault, S3Proxy
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import stream


def doctor(
    lake: ProcessLake, directory: Path, *arguments: str, endpoint: str | None = None, **options: Any
) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the findings."""
    config = directory / "config.json"
    config.write_text(json.dumps(lake.connector(endpoint).config(**options)))
    done = subprocess.run(
        [str(SCRIPT), "doctor", "--config", str(config), "--output", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_a_good_setup_has_no_cross_and_nothing_is_left_behind(strict_lake: ProcessLake, tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps(catalog(stream())))

    code, findings = doctor(strict_lake, tmp_path, "--catalog", str(file))

    assert (code, {finding["verdict"] for finding in findings} - {"good", "doubtful"}) == (0, set())
    checks = {finding["check"] for finding in findings}
    assert {"options", "endpoint", "clock", "conditional writes (If-None-Match)", "spool directory", "memory", "Java", "Spark"} <= checks
    mode, users = [finding for finding in findings if finding["part"] == "streams"]
    assert "generations and stream statuses" in mode["detail"]
    assert f"s3://{strict_lake.bucket.name}/lake/" in users["detail"]
    assert (strict_lake.bucket.list_keys(), strict_lake.bucket.open_uploads()) == ([], [])


def test_a_permission_that_is_missing_is_a_cross(moto_lake: ProcessLake, proxy: S3Proxy, tmp_path: Path) -> None:
    proxy.inject(Fault("DeleteObjects", status=403, code="AccessDenied"))

    code, findings = doctor(moto_lake, tmp_path, endpoint=proxy.endpoint)

    assert code == 1
    (cross,) = [finding for finding in findings if finding["verdict"] == "bad"]
    assert cross["check"] == "delete objects (s3:DeleteObject)"
