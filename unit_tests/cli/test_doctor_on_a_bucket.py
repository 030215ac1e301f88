"""`doctor` as a person runs it, on a bucket in memory."""

from __future__ import annotations

import json

from unit_tests.lake.lake import Lake
from unit_tests.lake.memory_bucket import Refusal


def test_a_permission_that_is_missing_is_a_cross(lake: Lake) -> None:
    lake.memory.fail("DeleteObjects", Refusal(403, "AccessDenied"))

    done = lake.connector().run("doctor", "--output", "json")

    assert done.exit_code == 1
    (cross,) = [finding for finding in json.loads(done.text) if finding["verdict"] == "bad"]
    assert cross["check"] == "delete objects (s3:DeleteObject)"
