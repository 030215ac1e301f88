"""`report` as a person uses it: the installed command writes a page about real syncs, and a real browser opens it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration_tests.browser import Opened, chromium, misplaced, open_page
from integration_tests.connector import SCRIPT, TIMEOUT_S
from integration_tests.lake import ProcessLake
from unit_tests.lake.buckets import S3Server, new_bucket
from unit_tests.lake.messages import catalog
from unit_tests.lake.shop import complete, record, state, stream

HOSTILE = "<img src=https://127.0.0.1:9/x onerror=alert(1)>"
FIELD = '"><script>console.error("run")</script>'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "day": {"type": "string", "format": "date"}, FIELD: {"type": "integer"}},
}
WIDER = {**SCHEMA, "properties": {**SCHEMA["properties"], "added": {"type": "integer"}}}
CHARTS = ["Rows in the table", "Size of the table", "Duration of each sync", "Rows per second of each sync", "Files by size"]
VALUES = "Values that did not fit their type"


@dataclass(frozen=True)
class Reported:
    """A page and the lake that it is about."""

    lake: ProcessLake
    page: Path
    opened: Opened

    def inspect(self, *arguments: str) -> Any:
        """What `inspect` prints for a program."""
        return json.loads(run(self.lake, "inspect", *arguments, "--output", "json"))

    def numbers(self, table: str, title: str) -> list[list[str]]:
        """The values of the numbers below a chart, row by row."""
        (figure,) = (figure for figure in self.figures(table) if f"<h3>{title}</h3>" in figure)
        rows = re.findall(r"<tr>(.*?)</tr>", figure.partition("<tbody>")[2], re.DOTALL)
        return [re.findall(r'<data value="([^"]*)"', row) for row in rows]

    def figures(self, table: str) -> list[str]:
        """The figures of a table's section."""
        sections = self.opened.document.split('<details class="table"')[1:]
        (section,) = (section for section in sections if f"<h2>{table}</h2>" in section)
        return section.split("<figure")[1:]


def run(lake: ProcessLake, *arguments: str) -> str:
    config = lake.directory / "report-config.json"
    config.write_text(json.dumps(lake.connector().config()))
    command = [str(SCRIPT), *arguments, "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def reported(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Two syncs of a table, the second with a column more, and one of a table with a hostile name."""
    chromium()
    lake = ProcessLake.of(new_bucket(moto), tmp_path_factory.mktemp("report"))
    first = [record({"id": 1, "day": "2026-01-02", FIELD: "many"}), record({"id": 2, "day": "no day"}), state(2), complete()]
    lake.connector().write(catalog(stream(schema=SCHEMA)), first).expect_success()
    second = [record({"id": 3, "added": 1, FIELD: "more"}), state(3), complete()]
    hostile = [record({"id": 1}, HOSTILE), state(1, HOSTILE), complete(HOSTILE)]
    streams = catalog(stream(schema=WIDER, sync_id=8), stream(HOSTILE, schema=SCHEMA, sync_id=8))
    lake.connector().write(streams, [*second, *hostile]).expect_success()
    page = lake.directory / "report.html"
    assert run(lake, "report", "--out", str(page)).startswith(f"{page}: 2 tables, ")
    return Reported(lake, page, open_page(page, tmp_path_factory.mktemp("browser")))


def test_the_browser_tells_of_errors_requests_and_what_is_too_wide(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<script>console.error("wrong")</script><img src="http://127.0.0.1:9/x"><p style="width:500px">wide</p></body>')

    opened = open_page(page, tmp_path)

    assert "wrong" in opened.console[0]
    assert "http://127.0.0.1:9/x" in opened.requests
    assert misplaced(page, 360, tmp_path) == ["the page is wider than the screen"]


def test_the_page_opens_without_an_error_or_a_request(reported: Reported) -> None:
    assert (reported.opened.console, reported.opened.requests) == ([], [])


def test_names_of_sources_are_text(reported: Reported) -> None:
    document = reported.opened.document

    assert "<script" not in document
    assert "<img" not in document
    assert "&lt;img src=https://127.0.0.1:9/x onerror=alert(1)&gt;" in document
    assert '"&gt;&lt;script&gt;' in document


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_and_tables_fit_on_a_phone_and_a_desktop(reported: Reported, width: int, tmp_path: Path) -> None:
    assert misplaced(reported.page, width, tmp_path) == []


def test_every_chart_has_marks_and_says_in_words_what_it_shows(reported: Reported) -> None:
    for figure in (figure for figure in reported.figures("shop.users") if any(f"<h3>{title}" in figure for title in [*CHARTS, VALUES])):
        assert len(re.findall(r'<(?:rect|path) class="[^"]*\bmark\b', figure)) > 0
        assert all(len(label) > 30 for label in re.findall(r'<svg role="img" aria-label="([^"]*)"', figure))


def test_the_numbers_are_those_of_inspect(reported: Reported) -> None:
    syncs, commits, values, files = (reported.inspect("users", view) for view in ("syncs", "commits", "values", "files"))

    data = [commit for commit in commits if commit["kind"] == "AddData"]
    assert reported.numbers("shop.users", "Rows in the table") == [[str(c["block"]), str(c["table_rows"])] for c in data]
    assert reported.numbers("shop.users", "Size of the table") == [[str(c["block"]), str(c["table_bytes"])] for c in data]
    assert [c["table_bytes"] for c in data][-1] == sum(file["bytes"] for file in files if file["kind"] == "final")
    durations = [[str(s[name]) for name in ("sync_id", "duration_s", "rows", "bytes_rewritten")] for s in syncs]
    assert reported.numbers("shop.users", "Duration of each sync") == durations
    assert reported.numbers("shop.users", "Rows per second of each sync") == durations
    assert [(v["sync_id"], v["values"]) for v in values] == [(7, 1), (7, 1), (8, 1)]
    assert reported.numbers("shop.users", VALUES) == [[str(v["sync_id"]), str(v["values"]), str(v["share"])] for v in values]
    sizes = reported.numbers("shop.users", "Files by size")
    assert sum(int(count) for (count,) in sizes) == len([file for file in files if file["kind"] == "final"])
    last = reported.numbers("shop.users", "Last syncs")
    assert last == [[str(s[name]) for name in ("rows", "bytes", "values_changed")] for s in reversed(syncs)]


def test_the_overview_has_the_numbers_of_all_tables(reported: Reported) -> None:
    tables = reported.inspect()
    overview = reported.opened.document.partition('<table class="list overview">')[2].partition("</table>")[0]
    rows = [re.findall(r'<data value="([^"]*)"', row)[:3] for row in re.findall(r"<tr>(.*?)</tr>", overview, re.DOTALL)[1:]]

    assert rows == [[str(table[name]) for name in ("rows", "bytes", "files")] for table in tables]
    assert f'<dt>Rows</dt><dd><data value="{sum(table["rows"] for table in tables)}">' in reported.opened.document


def test_schemas_are_a_timeline(reported: Reported) -> None:
    (figure,) = (figure for figure in reported.figures("shop.users") if "<h3>Schemas</h3>" in figure)

    assert re.findall(r"<strong>version (.*?)</strong>", figure) == ["1-0-1", "1-0-0"]
    assert "KeyAddition /added: integer" in figure
