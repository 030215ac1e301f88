"""The `changes` command at the end of a pipe."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from integration_tests.connector import SCRIPT, TIMEOUT_S
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.lake import Lake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, state, stream, users


def test_a_reader_that_reads_nothing_is_no_failure(moto: S3Server, tmp_path: Path) -> None:
    """What is printed is less than a pipe holds, so it is missed at the very end."""
    lake = Lake(new_bucket(moto).settings, tmp_path)
    dedup = catalog(stream(mode="append_dedup", key="id"))
    lake.connector(change_log={"enabled": True}).write(dedup, [*users([1, 2]), state(1), complete()]).expect_success()
    config = tmp_path / "config.json"
    config.write_text(json.dumps(lake.raw_config()))

    command = [str(SCRIPT), "changes", "--config", str(config), "--stream", "users"]
    printed = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True).stdout
    unread = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert unread.stdout is not None
    unread.stdout.close()

    assert len(printed.splitlines()) == 2
    assert (unread.communicate(timeout=TIMEOUT_S)[1], unread.returncode) == (b"", 0)
