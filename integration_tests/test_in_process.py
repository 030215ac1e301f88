"""`DestinationS3Spark.write` with messages that are objects: how PyAirbyte and other Python programs call the connector."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from integration_tests.lake import Lake
from integration_tests.source import catalog, state, stream, users

PROGRAM = """
import json, sys
from airbyte_cdk.models import AirbyteMessageSerializer, ConfiguredAirbyteCatalogSerializer
from destination_s3_spark import DestinationS3Spark

work = json.load(open(sys.argv[1]))

def messages():
    for line in work["lines"]:
        yield AirbyteMessageSerializer.load(json.loads(line))
    if work["breaks"]:
        raise BrokenPipeError("the source went away")

try:
    catalog = ConfiguredAirbyteCatalogSerializer.load(work["catalog"])
    for answer in DestinationS3Spark().write(work["config"], catalog, messages()):
        print(answer.state.stream.stream_state.cursor, answer.state.destinationStats.recordCount)
except Exception as error:
    print(type(error).__name__)
"""


def run(lake: Lake, breaks: bool) -> list[str]:
    """What the program prints: Spark runs in it, so it is a process of its own."""
    without_ids = stream()
    for name in ("generation_id", "minimum_generation_id", "sync_id"):
        del without_ids[name]
    lines = [line.decode() for line in [*users(range(3)), state(3), *users([3])]]
    work = {"config": lake.connector().config(), "catalog": catalog(without_ids), "lines": lines, "breaks": breaks}
    file = Path(lake.directory) / "work.json"
    file.write_text(json.dumps(work))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, timeout=180, check=False)
    return [line for line in done.stdout.splitlines() if not line.startswith("{")]  # the CDK's logger prints LOG messages in between


def test_messages_of_this_process_are_synced_and_their_end_is_complete(moto_lake: Lake) -> None:
    assert run(moto_lake, breaks=False) == ["3 3.0"]
    assert moto_lake.ids() == [0, 1, 2, 3]
    moto_lake.verify_at_rest()


def test_a_source_that_breaks_is_not_taken_for_one_that_ended(moto_lake: Lake) -> None:
    assert run(moto_lake, breaks=True) == ["3 3.0", "BrokenPipeError"]
    assert moto_lake.ids() == [0, 1, 2]
    moto_lake.verify()
