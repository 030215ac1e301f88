"""Real sources from PyPI that need no network, each a process of an environment that scripts/install-sources makes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration_tests.connector import PASSED_ON
from unit_tests.lake.messages import JsonObject

INSTALLED = Path(__file__).parents[2] / ".cache" / "sources"
"""One environment for sources on version 6 of Airbyte's Python kit, one for those on version 7."""
TIMEOUT_S = 60


@dataclass(frozen=True)
class RealSource:
    """An installed source with its configuration. `directory` takes the files of its runs."""

    program: Path
    config: Mapping[str, Any]
    directory: Path

    def discover(self) -> dict[str, JsonObject]:
        """The streams that the source offers, by name."""
        found = subprocess.run(
            [*self._command("discover", config=self.config)], capture_output=True, timeout=TIMEOUT_S, check=True, env=self._environment
        )
        messages = [json.loads(line) for line in found.stdout.splitlines() if line.startswith(b"{")]
        (catalog,) = (message["catalog"] for message in messages if message["type"] == "CATALOG")
        return {stream["name"]: stream for stream in catalog["streams"]}

    def start(self, catalog: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> subprocess.Popen[bytes]:
        """Start a read."""
        command = self._command("read", config=self.config, catalog=catalog, **({"state": list(states)} if states else {}))
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def _command(self, verb: str, **files: Any) -> list[str]:
        command = [str(self.program), verb]
        for name, content in files.items():
            path = self.directory / f"{name}.json"
            path.write_text(json.dumps(content))
            command += [f"--{name}", str(path)]
        return command


def installed(environment: str, program: str) -> Path:
    """The program of an environment. Skips where the sources are not installed, except in CI."""
    path = INSTALLED / environment / "bin" / program
    if not (INSTALLED / "installed").exists():
        missing = "The sources are not installed: run scripts/install-sources, which needs PyPI."
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def selected(described: JsonObject, sync_mode: str, mode: str) -> JsonObject:
    """A discovered stream as a user chose it in the connection."""
    return {
        "stream": described,
        "sync_mode": sync_mode,
        "destination_sync_mode": mode,
        "primary_key": described.get("source_defined_primary_key") or [],
        "cursor_field": described.get("default_cursor_field") or [],
    }
