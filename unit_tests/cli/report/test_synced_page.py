"""The page of `report` about syncs: its numbers are those that `inspect` prints for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from unit_tests.cli.report.synced_page import write_page
from unit_tests.lake.lake import Lake

CHARTS = ["Rows in the table", "Size of the table", "Duration of each sync", "Rows per second of each sync", "Files by size"]
VALUES = "Values that did not fit their type"


@dataclass(frozen=True)
class Reported:
    """A page and the lake that it is about."""

    lake: Lake
    document: str

    def inspect(self, *arguments: str) -> Any:
        """What `inspect` prints for a program."""
        return json.loads(self.lake.connector().run("inspect", *arguments, "--output", "json").text)

    def numbers(self, table: str, title: str) -> list[list[str]]:
        """The values of the numbers below a chart, row by row."""
        (figure,) = (figure for figure in self.figures(table) if f"<h3>{title}</h3>" in figure)
        rows = re.findall(r"<tr>(.*?)</tr>", figure.partition("<tbody>")[2], re.DOTALL)
        return [re.findall(r'<data value="([^"]*)"', row) for row in rows]

    def figures(self, table: str) -> list[str]:
        """The figures of a table's section."""
        sections = self.document.split('<details class="table"')[1:]
        (section,) = (section for section in sections if f"<h2>{table}</h2>" in section)
        return section.split("<figure")[1:]


@pytest.fixture(scope="module")
def reported(make_lake: Callable[[], Lake]) -> Reported:
    lake = make_lake()
    return Reported(lake, write_page(lake).read_text(encoding="utf-8"))


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
    overview = reported.document.partition('<table class="list overview">')[2].partition("</table>")[0]
    rows = [re.findall(r'<data value="([^"]*)"', row)[:3] for row in re.findall(r"<tr>(.*?)</tr>", overview, re.DOTALL)[1:]]

    assert rows == [[str(table[name]) for name in ("rows", "bytes", "files")] for table in tables]
    assert f'<dt>Rows</dt><dd><data value="{sum(table["rows"] for table in tables)}">' in reported.document


def test_schemas_are_a_timeline(reported: Reported) -> None:
    (figure,) = (figure for figure in reported.figures("shop.users") if "<h3>Schemas</h3>" in figure)

    assert re.findall(r"<strong>version (.*?)</strong>", figure) == ["1-0-1", "1-0-0"]
    assert "KeyAddition /added: integer" in figure
