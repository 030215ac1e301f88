"""`DestinationS3Spark.write` with messages that are objects: how PyAirbyte and other Python programs call the connector."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from integration_tests.lake import ProcessLake
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import state, stream, users

PROGRAM = """
import json, sys
from airbyte_cdk.models import AirbyteMessageSerializer, ConfiguredAirbyteCatalogSerializer
from destination_s3_spark import DestinationS3Spark

work = json.load(open(sys.argv[1]))

def messages():
    for line in work["lines"]:
        yield AirbyteMessageSerializer.load(json.loads(line))

with open(work["answers"], "w") as answers:
    catalog = ConfiguredAirbyteCatalogSerializer.load(work["catalog"])
    for answer in DestinationS3Spark().write(work["config"], catalog, messages()):
        print(answer.state.stream.stream_state.cursor, answer.state.destinationStats.recordCount, file=answers)
"""


def run(lake: ProcessLake) -> list[str]:
    """The program's answers: Spark runs in it, so it is a process of its own. Its stdout belongs to the CDK's logger."""
    without_ids = stream(generation=None, minimum_generation=None, sync_id=None)
    lines = [line.decode() for line in [*users(range(3)), state(3), *users([3]), state(4)]]
    answers = Path(lake.directory) / "answers.txt"
    work = {
        "config": lake.connector().config(),
        "catalog": catalog(without_ids),
        "lines": lines,
        "answers": str(answers),
    }
    file = Path(lake.directory) / "work.json"
    file.write_text(json.dumps(work))
    subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, timeout=180, check=True)
    return answers.read_text().splitlines()


def test_messages_of_this_process_are_synced(moto_lake: ProcessLake) -> None:
    assert run(moto_lake) == ["3 3.0", "4 1.0"]
    assert moto_lake.ids() == [0, 1, 2, 3]
    moto_lake.verify_at_rest()
