"""Headless Chromium that opens a file and tells what it made of it."""

from __future__ import annotations

import html
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


MEASURE = """<script>
const found = [];
if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the screen");
for (const axis of document.querySelectorAll(".x-axis")) {
  let end = -Infinity;
  for (const label of axis.children) {
    const place = label.getBoundingClientRect();
    if (!place.width) continue;
    if (place.left < end) found.push("overlaps the label before it: " + label.textContent);
    end = place.right;
  }
}
parent.document.title = JSON.stringify(found);
</script>"""


def misplaced(page: Path, width: int, scratch: Path) -> list[str]:
    """What is too wide for a screen of this width, and labels of axes that overlap. The browser's own window cannot be that narrow."""
    content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text()).replace("</body>", f"{MEASURE}</body>")
    frame = scratch / f"frame-{width}.html"
    frame.write_text(f'<title>none</title><iframe style="width:{width}px;height:900px" srcdoc="{html.escape(content)}"></iframe>')
    title = re.search(r"<title>(.*?)</title>", open_page(frame, scratch).document)
    assert title is not None
    found: list[str] = json.loads(html.unescape(title[1]))
    return found
