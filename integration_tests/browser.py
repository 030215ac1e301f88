"""Headless Chromium that opens a file and tells what it made of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

TIMEOUT_S = 60
OPTIONS = [
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the browser's own requests stay on this machine
    "--enable-logging=stderr",
    "--v=0",
]


@dataclass(frozen=True)
class Opened:
    """A page as the browser has it: its document, what it wrote to the console, and the addresses that it asked for."""

    document: str
    console: list[str]
    requests: list[str]


def chromium() -> str:
    """The browser's command. Skips the test where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    return found


def open_page(page: Path, scratch: Path) -> Opened:
    """Open a file. `scratch` takes the browser's own files."""
    log = scratch / "net-log.json"
    command = [chromium(), *OPTIONS, f"--user-data-dir={scratch / 'profile'}", f"--log-net-log={log}", "--dump-dom", page.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    # What the browser asks for itself, such as updates, is initiated by no page.
    events = [event["params"] for event in json.loads(log.read_text())["events"] if "initiator" in event.get("params", {})]
    requests = [params["url"] for params in events if params["initiator"] != "not an origin" and "url" in params]
    return Opened(ended.stdout, re.findall(r":CONSOLE:\d+\] (.*)", ended.stderr), [url for url in requests if url != page.as_uri()])
