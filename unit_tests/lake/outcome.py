"""What a run of the connector leaves behind, and the configuration that it usually gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unit_tests.lake.buckets import REGION, Bucket

BUCKET_PATH = "lake"
SUMMARY_PREFIX = "sync summary as JSON: "
Message = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a finished process left behind. `lines` are stdout's, each with its line end."""

    exit_code: int
    lines: tuple[bytes, ...]
    stderr: str

    @cached_property
    def messages(self) -> list[Message]:
        """Every line of stdout: nothing but Airbyte messages may be there."""
        return [json.loads(line) for line in self.lines]

    def of_type(self, kind: str) -> list[Message]:
        return [message for message in self.messages if message["type"] == kind]

    @property
    def text(self) -> str:
        """All of stdout, for commands that talk to a person."""
        return b"".join(self.lines).decode()

    @property
    def state_lines(self) -> list[bytes]:
        return [line for line, message in zip(self.lines, self.messages, strict=True) if message["type"] == "STATE"]

    @property
    def states(self) -> list[Message]:
        return [message["state"] for message in self.of_type("STATE")]

    @property
    def errors(self) -> list[Message]:
        """The `error` parts of TRACE ERRORs, with the stream descriptor as Airbyte puts it there."""
        return [message["trace"]["error"] for message in self.of_type("TRACE") if message["trace"]["type"] == "ERROR"]

    @property
    def error(self) -> Message:
        """The one error. Fails when there is none or more than one."""
        (error,) = self.errors
        return error

    @property
    def error_message(self) -> str:
        return str(self.error["message"])

    @property
    def log_text(self) -> str:
        return "\n".join(message["log"]["message"] for message in self.of_type("LOG"))

    @property
    def warnings(self) -> str:
        """The text of the LOG messages of level WARN."""
        return "\n".join(message["log"]["message"] for message in self.of_type("LOG") if message["log"]["level"] == "WARN")

    @property
    def summary(self) -> Message:
        """The one summary for programs."""
        (line,) = (message["log"]["message"] for message in self.of_type("LOG") if message["log"]["message"].startswith(SUMMARY_PREFIX))
        found: Message = json.loads(line.removeprefix(SUMMARY_PREFIX))
        return found

    @property
    def connection_status(self) -> Message:
        (message,) = self.of_type("CONNECTION_STATUS")
        status: Message = message["connectionStatus"]
        return status

    def expect_success(self) -> Outcome:
        """Itself, if every stream completed."""
        assert (self.exit_code, self.errors) == (0, []), self.describe()
        return self

    def expect_failure(self, failure_type: str) -> Outcome:
        """Itself, if it failed with one error of this type."""
        assert self.exit_code != 0, self.describe()
        assert [error["failure_type"] for error in self.errors] == [failure_type], self.describe()
        return self

    def describe(self) -> str:
        """All that was said, for a failing assertion."""
        return f"exit code {self.exit_code}\n{b''.join(self.lines).decode(errors='replace')[-6000:]}\n--- stderr\n{self.stderr[-3000:]}"


def state_lines(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if json.loads(line)["type"] == "STATE"]


def usual_options(bucket: Bucket) -> dict[str, Any]:
    """Return a configuration for the bucket: Parquet, two Spark tasks at once."""
    server = bucket.server
    return {
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "s3_bucket_name": bucket.name,
        "s3_bucket_path": BUCKET_PATH,
        "s3_bucket_region": REGION,
        "s3_endpoint": server.endpoint,
        "format": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
        "spark": {"master": "local[2]"},
    }
