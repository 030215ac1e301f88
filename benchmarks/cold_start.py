"""How long a container of the image takes from `docker run` to its first words: the spec, the result of a check, the first STATE of a sync.

A small sync runs with the image's class data archive and, side by side, without it. See docs/image.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import target
from benchmarks.machine import describe_machine

STREAMS, RECORDS = 3, 100
BUCKET = "benchmark"
ARCHIVE_DIRECTORY = "/opt/destination-s3-spark/share"
LIMITS = ["--read-only", "--tmpfs=/tmp", "--memory=4g", "--cpus=2", "--user=1000", "--network=host"]
WITHOUT_ARCHIVE = [f"--tmpfs={ARCHIVE_DIRECTORY}"]
"""An empty directory over that of the archive."""


def main() -> None:
    """Parse the command line, run each case in turn as often as asked, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="airbyte/destination-s3-spark:dev")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    print(describe_machine())
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name, target.endpoint(None, BUCKET, Path(name)) as address:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "config.json").write_text(json.dumps(target.config(address, BUCKET, "cold-start", "on")))
        (directory / "catalog.json").write_text(json.dumps(catalog()))
        files = [f"--volume={directory}:/config:ro"]
        check = ["check", "--config", "/config/config.json"]
        write = ["write", "--config", "/config/config.json", "--catalog", "/config/catalog.json"]
        cases = {
            "spec": ([], ["spec"], "SPEC", b""),
            "check": (files, check, "CONNECTION_STATUS", b""),
            "first STATE": (files, write, "STATE", messages()),
            "first STATE, without the archive": ([*files, *WITHOUT_ARCHIVE], write, "STATE", messages()),
        }
        seconds: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(args.runs):
            for case, (options, command, awaited, lines) in cases.items():
                seconds[case].append(
                    _seconds_until(["docker", "run", "--rm", "-i", *LIMITS, *options, args.image, *command], awaited, lines)
                )
    for case, taken in seconds.items():
        print(f"{case}: median {statistics.median(taken):.2f} s of {', '.join(f'{run:.2f}' for run in taken)}")


def _seconds_until(command: list[str], awaited: str, lines: bytes) -> float:
    """From the start of the command to the first message of the type. Ends the benchmark when there is none."""
    started = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.close()
        taken = next((time.monotonic() - started for line in process.stdout if json.loads(line)["type"] == awaited), None)
        process.stdout.read()
    if taken is None or process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} said no {awaited} or failed, exit code {process.returncode}")
    return taken


def catalog() -> dict[str, object]:
    """Streams of one number and one text, appended to."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    return {
        "streams": [
            {
                "stream": {"name": f"stream_{number}", "json_schema": schema, "supported_sync_modes": ["full_refresh"]},
                "sync_mode": "full_refresh",
                "destination_sync_mode": "append",
                "generation_id": 1,
                "minimum_generation_id": 0,
                "sync_id": 1,
            }
            for number in range(STREAMS)
        ]
    }


def messages() -> bytes:
    """Each stream's records, its STATE, and that it is complete."""
    said: list[dict[str, object]] = []
    for number in range(STREAMS):
        name = f"stream_{number}"
        described = {"name": name}
        said += [
            {"type": "RECORD", "record": {"stream": name, "emitted_at": 1, "data": {"id": row, "name": f"row {row}"}}}
            for row in range(RECORDS)
        ]
        said.append({"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": described, "stream_state": {"at": 1}}}})
        status = {"stream_descriptor": described, "status": "COMPLETE"}
        said.append({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}})
    return b"".join(json.dumps(message).encode() + b"\n" for message in said)


if __name__ == "__main__":
    main()
